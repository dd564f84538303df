"""The checkpoint behind the runners' tiny models: a random Qwen3 with a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from npu_emulator.dry_run.models import dense, files

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
