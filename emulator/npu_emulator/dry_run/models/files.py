"""Write a checkpoint's files: config.json, model.safetensors, a byte-level tokenizer with a chat template."""

from __future__ import annotations

import json
from pathlib import Path

VOCABULARY = 512
_SPECIAL = ("<pad>", "<s>", "</s>")
_CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(folder: Path, config: dict, shapes: dict[str, tuple[int, ...]], seed: int = 0) -> None:
    """Write a random checkpoint: matrices normal with deviation 0.15, vectors near one."""
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in sorted(shapes.items()):
        values = torch.randn(shape, generator=random)
        weights[name] = values * 0.15 if len(shape) > 1 else 1 + 0.1 * values
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    _write_tokenizer(folder)


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: index for index, word in enumerate([*_SPECIAL, *alphabet])}
    tokenizer = Tokenizer(BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": "<pad>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": _CHAT,
            "model_max_length": 512,
        },
    )


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
