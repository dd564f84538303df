"""Write a checkpoint's files: config.json, model.safetensors, a byte-level tokenizer with a chat template."""

from __future__ import annotations

import functools
import json
from pathlib import Path

VOCABULARY = 512
_SPECIAL = ("<pad>", "<s>", "</s>")
FIRST_MORE = len(_SPECIAL) + 256  # the id of the first special token that a model adds
_CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(
    folder: Path,
    config: dict,
    shapes: dict[str, tuple[int, ...]],
    seed: int = 0,
    more: tuple[str, ...] = (),
    tokenizer: str = "PreTrainedTokenizerFast",
    weights: dict | None = None,
) -> None:
    """Write a random checkpoint: matrices normal with deviation 0.15, vectors near one.

    ``more`` are the special tokens that the model has beside those of every one, ``tokenizer`` is the class
    of its tokenizer, ``weights`` are tensors that are not random.
    """
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(seed)
    tensors = dict(weights or {})
    for name, shape in sorted(shapes.items()):
        values = torch.randn(shape, generator=random)
        tensors[name] = values * 0.15 if len(shape) > 1 else 1 + 0.1 * values
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    _write_tokenizer(folder, more, tokenizer)


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """The words of every model's tokenizer by their ids: special tokens, then one for each byte."""
    from tokenizers import pre_tokenizers

    return (*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()))


def _write_tokenizer(folder: Path, more: tuple[str, ...], kind: str) -> None:
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    words = {word: index for index, word in enumerate([*vocabulary(), *more])}
    tokenizer = Tokenizer(BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*_SPECIAL, *more])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": kind,
            "pad_token": "<pad>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": _CHAT,
            "model_max_length": 512,
        },
    )


def write_json(path: Path, content: dict) -> None:
    """Write one of the checkpoint's JSON files."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
