"""Checkpoints with a real defect, made from a sound one without any library: ``damaged(name, folder)``."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from bench.wrong_weights import make_biased
from npu_upgrade.gates.vllm_cpu import tiny

WEIGHTS = "model.safetensors"


def damaged(name: str, folder: Path) -> Path:
    """A copy of ``looker`` or ``successor`` in ``folder`` with the damage ``name``; or a sound ``biased``."""
    target = folder / name
    if name == "biased":
        make_biased(target)
        return target
    shutil.copytree(tiny("looker" if name in _OF_LOOKER else "successor"), target)
    _DAMAGES[name](target)
    return target


def _two_shards(folder: Path) -> None:
    """Split the weights over two files with an index, as large checkpoints are."""
    data, header, start = _opened(folder)
    header.pop("__metadata__", None)
    names = sorted(header)
    where = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        shard = f"model-{number:05}-of-00002.safetensors"
        _write_shard(folder / shard, {name: header[name] for name in part}, data[start:])
        where |= dict.fromkeys(part, shard)
    index = {"metadata": {"total_size": len(data) - start}, "weight_map": where}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
    (folder / WEIGHTS).unlink()


def _opened(folder: Path) -> tuple[bytearray, dict[str, dict], int]:
    """A weights file, its header, and where its data begins."""
    data = bytearray((folder / WEIGHTS).read_bytes())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    return data, json.loads(data[8:start]), start


def _write_shard(path: Path, tensors: dict[str, dict], data: bytearray) -> None:
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    pieces, at = [], 0
    for name, tensor in tensors.items():
        first, last = tensor["data_offsets"]
        header[name] = tensor | {"data_offsets": [at, at + last - first]}
        pieces.append(data[first:last])
        at += last - first
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def _corrupt(folder: Path) -> None:
    """The head of the second shard is garbage."""
    _two_shards(folder)
    with open(folder / "model-00002-of-00002.safetensors", "r+b") as stream:
        stream.write(b"\xff" * 64)


def _cut(folder: Path) -> None:
    """The second shard ends early, as after a download that broke off."""
    _two_shards(folder)
    path = folder / "model-00002-of-00002.safetensors"
    os.truncate(path, path.stat().st_size // 2)


def _missing(folder: Path) -> None:
    """The index names a shard that is not there."""
    _two_shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def _architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["architectures"] = ["NewestForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _pipe(folder: Path) -> None:
    """Reading the weights never comes back, as from a network disk that went away."""
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def _other(folder: Path) -> None:
    """The weights of another model with the same shapes: all loads, and the answers are not this model's."""
    data, header, start = _opened(folder)
    rows, columns = header["lm_head.weight"]["shape"]
    first, last = (start + place for place in header["lm_head.weight"]["data_offsets"])
    matrix, row = data[first:last], 4 * columns
    assert len(matrix) == rows * row
    data[first:last] = matrix[7 * row :] + matrix[: 7 * row]  # each token is answered with a later one
    (folder / WEIGHTS).write_bytes(data)


def _blind(folder: Path) -> None:
    """What the tower sees of a picture is multiplied by zero on its way to the decoder."""
    data, header, start = _opened(folder)
    first, last = (start + place for place in header["language_projection.weight"]["data_offsets"])
    data[first:last] = bytes(last - first)
    (folder / WEIGHTS).write_bytes(data)


_OF_LOOKER = frozenset({"blind"})
_DAMAGES: dict[str, Callable[[Path], None]] = {
    "corrupt-shard": _corrupt,
    "cut-shard": _cut,
    "missing-shard": _missing,
    "unknown-architecture": _architecture,
    "endless-read": _pipe,
    "other-weights": _other,
    "blind": _blind,
}
