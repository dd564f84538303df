"""A LoRA adapter to ask for: the user's, or one with random weights that fits the checkpoint.

A random adapter shows that adapters are loaded, routed to and applied; of a real one it says nothing.
"""

from __future__ import annotations

import array
import json
import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.weights import read_weights
from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure
from npu_upgrade.gates.serving.requests import Client, Exchange
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic, write_json

NAME = "gate-lora"
# What reaches the hidden states by itself: values and the attention's output, else the feed-forward's.
_TARGETS = (("v_proj", "query_key_value", "qkv_proj"), ("o_proj",))
_ELSE = (("down_proj",),)
_FLOATS = ("F32", "F16", "BF16")
_RANK, _LAYERS, _DEVIATION = 8, 4, 0.5
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM's --max-lora-rank takes
_PROMPT = "The capital of France is"


@dataclass(frozen=True)
class Adapter:
    """``rank`` of its matrices."""

    folder: Path
    rank: int

    def arguments(self) -> tuple[str, ...]:
        """What vllm serve needs beside ``--enable-lora``."""
        enough = next((one for one in _RANKS if one >= self.rank), self.rank)
        more = ("--max-lora-rank", str(enough)) if enough > 16 else ()
        return ("--lora-modules", f"{NAME}={self.folder}", *more)


def given(folder: Path) -> Adapter:
    """The user's adapter; raises :class:`BadInput` when it is none."""
    path = folder / "adapter_config.json"
    try:
        rank = json.loads(path.read_text("utf-8"))["r"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{folder} is no LoRA adapter: {error}",
            expected="a folder with adapter_config.json, which has r, and the adapter's weights",
            try_="another folder, or leave --lora out to have a random adapter made",
        ) from error
    if not isinstance(rank, int) or rank < 1:
        raise BadInput(f"r of {path} is {rank!r}", expected="a positive number", try_="another adapter")
    return Adapter(folder.absolute(), rank)


def make(model: Path, folder: Path, like: Likeness | None = None) -> Adapter | None:
    """A random adapter for the first layers; None when the checkpoint has no weight that adapters change.

    ``like``: the family that a plan says the checkpoint is, whose modules serve it under their own names.
    """
    floats = {name: one for name, one in read_weights(model).tensors.items() if one.dtype in _FLOATS}
    matrices = {name: one.shape for name, one in floats.items() if len(one.shape) == 2}
    if like:
        matrices = dict(part for name in matrices for part in like.places_of(name, matrices[name]))
    shapes = {name: shape for name, shape in matrices.items() if name.endswith(".weight")}
    targets = _present(shapes, _TARGETS) or _present(shapes, _ELSE)
    chosen = [
        name for one in targets for name in [name for name in sorted(shapes) if f".{one}." in name][:_LAYERS]
    ]
    if not chosen:
        return None
    tensors: dict[str, tuple[int, int]] = {}
    for name in chosen:
        outer, inner = shapes[name]
        stem = "base_model.model." + name.removesuffix(".weight")
        tensors[f"{stem}.lora_A.weight"] = (_RANK, inner)
        tensors[f"{stem}.lora_B.weight"] = (outer, _RANK)
    write_atomic(folder / "adapter_model.safetensors", _safetensors(tensors))
    config = {
        "peft_type": "LORA",
        "r": _RANK,
        "lora_alpha": _RANK,
        "target_modules": targets,
        "bias": "none",
    }
    write_json(folder / "adapter_config.json", config | {"base_model_name_or_path": str(model)})
    return Adapter(folder.absolute(), _RANK)


def _present(shapes: Iterable[str], groups: Iterable[Iterable[str]]) -> list[str]:
    """The first module of each group that a checkpoint has."""
    names = list(shapes)
    found = (next((one for one in group if any(f".{one}." in n for n in names)), None) for group in groups)
    return [one for one in found if one]


def ask(client: Client, name: str) -> list[Check]:
    """The check ``lora``: the adapter is listed, and its name gets another answer than the model's."""
    if NAME not in client.models():
        return [failed("lora", f"the server does not list the adapter {NAME}")]
    body = {"prompt": _PROMPT, "max_tokens": 16, "temperature": 0, "logprobs": 1}
    with_it, without = (client.post("/v1/completions", body | {"model": one}) for one in (NAME, name))
    for exchange in (with_it, without):
        if exchange.why:
            return [failed("lora", f"no answer: {exchange.why}", _PROMPT)]
    try:
        (text, chance), plain = (_said(one) for one in (with_it, without))
    except (KeyError, IndexError, TypeError):
        return [failed("lora", "the answer is no completion", _PROMPT)]
    if (text, chance) == plain:
        why = "text and probabilities are the same as without the adapter"
        return [unsure("lora", why, _PROMPT, text[:200])]
    said = "text" if text != plain[0] else "probabilities"
    return [passed("lora", _PROMPT, text[:200], why=f"other {said} than without the adapter")]


def _said(exchange: Exchange) -> tuple[str, Any]:
    choice = exchange.answer["choices"][0]
    return str(choice["text"]), (choice.get("logprobs") or {}).get("token_logprobs")


def _safetensors(shapes: dict[str, tuple[int, int]]) -> bytes:
    """Random tensors in 32-bit floats: a length, a header in JSON, the values."""
    chance = random.Random(0)
    values = {
        name: array.array("f", (chance.gauss(0, _DEVIATION) for _ in range(rows * columns)))
        for name, (rows, columns) in shapes.items()
    }
    head, place = {}, 0
    for name, value in values.items():
        size = len(value) * value.itemsize
        head[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for value in values.values())
