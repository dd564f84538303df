"""What the makers of pipelines share: seeded weights, a tokenizer by bytes, expected answers."""

from __future__ import annotations

import json
from pathlib import Path

from npu_emulator.dry_run.models.files import write_json

EXPECTED = "expected.safetensors"


def seeded(module, seed: int):
    """``module`` with weights that keep the size of what goes through: matrices by their fan-in."""
    import torch

    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(module.named_parameters()):
            noise = torch.randn(value.shape, generator=random)
            if value.dim() > 1:
                value.copy_(noise * value[0].numel() ** -0.5)
            else:
                value.copy_(1 + 0.1 * noise if name.endswith("weight") else 0.05 * noise)
    return module


def tokenizer(folder: Path, special: tuple[str, ...], **more) -> None:
    """A Qwen2 tokenizer with a token for each byte after the ``special`` ones; the first of them pads."""
    from tokenizers import pre_tokenizers

    folder.mkdir(exist_ok=True)
    words = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    write_json(folder / "vocab.json", {word: index for index, word in enumerate(words)})
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    kept = {
        "tokenizer_class": "Qwen2Tokenizer",
        "pad_token": special[0],
        "unk_token": special[0],
        "model_max_length": 4096,
        "additional_special_tokens": list(special[1:]),
    }
    write_json(folder / "tokenizer_config.json", kept | more)


def expect(folder: Path, answers: dict) -> None:
    """Keep what the requests are to be answered with: name -> tensor."""
    from safetensors.torch import save_file

    save_file({name: one.contiguous() for name, one in answers.items()}, folder / EXPECTED)


def expected(folder: Path) -> dict:
    """What :func:`expect` kept; nothing where a pipeline has no reference."""
    from safetensors.torch import load_file

    path = folder / EXPECTED
    return load_file(path) if path.is_file() else {}


def text(prompt: tuple[int, ...]) -> str:
    """A probe's prompt as text."""
    return "".join(map(chr, prompt))


def key(probe: str, index: int) -> str:
    """The name of a probe's request among the answers."""
    return json.dumps([probe, index])
