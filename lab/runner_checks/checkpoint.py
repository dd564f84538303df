"""``python -m runner_checks.checkpoint FOLDER [LARGE]``: the checkpoints of the tiny models, random Qwen3s.

With LARGE also one of that name whose decode step takes more than 10 ms on one core.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from npu_emulator.dry_run.models import dense, files

LARGE = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12}
MODELS = ("Multimodal", "Thinker", "Talker", "Waveform", "Recaptioner", "Speaker", "Broken", "BrokenWaveform")
SPECIAL = ("</think>", "<recaption>")


def write(folder: Path, architecture: str, **changes: int) -> Path:
    """Write config, weights and tokenizer; ``changes`` are keys of the model's configuration."""
    config = dense.CONFIG | {"architectures": [architecture]} | changes
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.json").exists():
        files.write(folder, config, dense.shapes(config), more=SPECIAL)
    return folder


def retitle(source: Path, folder: Path, architecture: str) -> Path:
    """The same checkpoint under another architecture, its weights linked."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        target = folder / path.name
        if path.name == "config.json":
            config = json.loads(path.read_text(encoding="utf-8")) | {"architectures": [architecture]}
            files.write_json(target, config)
        elif not target.exists():
            target.symlink_to(path.resolve())
    return folder


if __name__ == "__main__":
    base = write(Path(sys.argv[1]) / "plain", "Qwen3ForCausalLM")
    for name in MODELS:
        retitle(base, Path(sys.argv[1]) / name, name)
    for name in sys.argv[2:]:
        write(Path(sys.argv[1]) / name, "Qwen3ForCausalLM", **LARGE)
