"""The weight files of a checkpoint: every safetensors header, held against its file and against the index.

A safetensors file is 8 bytes (little endian) with the length of a JSON header, the header, the data. Each
entry has ``dtype``, ``shape`` and ``data_offsets`` into the data; entries cover the data without holes or
overlaps.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from npu_upgrade.checkpoint.reading import (
    Finding,
    error,
    listed,
    note,
    parse_json,
    read_object,
    regular,
    unsure,
)
from npu_upgrade.ground.tables import shortened

MOST_HEADER = 100_000_000  # the limit of the format's reference reader
_MOST_DIMENSIONS = 16
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
}


class Tensor(NamedTuple):
    """One entry of a header. ``begin`` and ``end`` are bytes into the data, ``file`` the shard's name."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    file: str

    @property
    def bytes(self) -> int:
        return self.end - self.begin


@dataclass
class Header:
    """What one file holds: ``tensors`` by name (those that are as they should be), and what is wrong."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not any(one.severity == "error" for one in self.findings)


def read_header(path: Path) -> Header:
    """The header of ``path``; a broken file gives findings, never an exception."""
    name = path.name
    if problem := regular(path):
        kind = "shard-missing" if "not there" in problem else "shard-unreadable"
        return Header(findings=[error(kind, f"{name} {problem}", name)])
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            if problem := _wrong_length(size, start, length):
                return Header(findings=[error(problem[0], f"{name} {problem[1]}", name)])
            text = stream.read(length)
    except OSError as problem:
        return Header(findings=[error("shard-unreadable", f"{name}: {problem.strerror}", name)])
    return parse_header(text, size - 8 - length, name)


def _wrong_length(size: int, start: bytes, length: int) -> tuple[str, str] | None:
    if size == 0:
        return "shard-empty", "has no bytes"
    if len(start) < 8:
        return "shard-truncated", f"has {size} bytes, less than the 8 of the header's length"
    if start.startswith(b"version "):
        return "shard-pointer", "is a Git LFS pointer, not the weights: git lfs pull"
    if length > MOST_HEADER:
        return "shard-header", f"says its header has {length} bytes, the format allows {MOST_HEADER}"
    if length > size - 8:
        problem = f"says its header has {length} bytes, the file has {size - 8} after the length"
        return "shard-truncated", problem
    return None


def parse_header(text: bytes, data_bytes: int, name: str) -> Header:
    """The header's JSON against the number of bytes of data that follow it."""
    value, found = parse_json(text, f"header of {name}")
    if not isinstance(value, dict):
        found = [error("shard-header", one.what, name) for one in found]
        return Header(findings=found or [error("shard-header", f"the header of {name} is no object", name)])
    header = Header(findings=[error("shard-header", one.what, name) for one in found])
    value.pop("__metadata__", None)
    wrong: list[str] = []
    for tensor, entry in value.items():
        one = _entry(entry, name)
        if isinstance(one, str):
            wrong.append(f"{tensor}: {one}")
        else:
            header.tensors[tensor] = one
    header.findings += listed("tensor-entry", name, wrong, name)
    header.findings += _layout(header.tensors, data_bytes, name, complete=not wrong)
    return header


def _entry(entry: Any, name: str) -> Tensor | str:
    """One entry as a tensor, or what is wrong with it."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        return "no dtype, shape and data_offsets"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        return f"unknown dtype {str(dtype)[:40]!r}"
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not all(map(_whole, shape)):
        return f"no shape: {str(shape)[:60]}"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)):
        return f"no offsets: {str(offsets)[:60]}"
    begin, end = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or end - begin != bits // 8:
        return f"{dtype} {shape} has {bits // 8} bytes, its offsets {offsets} say {end - begin}"
    return Tensor(dtype, tuple(shape), begin, end, name)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _layout(tensors: dict[str, Tensor], data_bytes: int, name: str, complete: bool) -> list[Finding]:
    """Whether the entries lie in the file, one after the other."""
    most = max((one.end for one in tensors.values()), default=0)
    if most > data_bytes:
        what = f"{name} is truncated: {most} bytes of data announced, {data_bytes} there"
        return listed(
            "shard-truncated", what, (k for k, one in tensors.items() if one.end > data_bytes), name
        )
    found, reached, before = [], 0, ""
    for key, one in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if one.begin < reached:
            found.append(error("tensor-overlap", f"{name}: {key} lies in the bytes of {before}", name))
        elif one.begin > reached and complete:
            what = f"{name}: {one.begin - reached} bytes before {key} belong to no tensor"
            found.append(error("tensor-hole", what, name))
        if one.end >= reached:
            reached, before = one.end, key
        if len(found) > 3:
            break
    if complete and not found and reached < data_bytes:
        what = f"{name} has {data_bytes - reached} bytes after its last tensor"
        found.append(error("shard-trailing", what, name))
    if not tensors and complete:
        found.append(note("shard-no-tensors", f"{name} holds no tensor", name))
    return found


_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
_OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf", ".ckpt", ".npz", ".h5", ".msgpack")
_SIDE_FILES = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")


@dataclass
class Weights:
    """``tensors`` of all sound shards by name; ``index`` is the weight map (name -> shard) or None."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    index: dict[str, str] | None = None
    other: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """All tensor names, those an index names and no header has included."""
        return set(self.tensors) | set(self.index or {})

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.tensors.values())

    @property
    def complete(self) -> bool:
        """Whether every tensor's header was read, so that what is not there is missing."""
        return bool(self.tensors) and not any(one.severity == "error" for one in self.findings)


def read_weights(folder: Path) -> Weights:
    """All headers of the folder; several shards are read at a time."""
    found = Weights()
    present = sorted(path.name for path in folder.glob("*.safetensors"))
    found.other = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in _OTHER_FORMATS and path.name not in _SIDE_FILES
    )
    index_name = next((name for name in _INDEXES if os.path.lexists(folder / name)), None)
    if index_name:
        _read_index(found, folder / index_name)
    named = sorted({*(found.index or {}).values()})
    # vLLM loads what the index names; a second copy (consolidated next to model) is left alone
    own = [name for name in present if not name.startswith("consolidated")]
    found.shards = named if found.index else own or present
    with ThreadPoolExecutor(max_workers=8) as pool:
        read = pool.map(lambda name: read_header(folder / name), found.shards)
        headers = dict(zip(found.shards, read, strict=True))
    _take(found, headers)
    if found.index is not None:
        _against_index(found, headers, own)
    if not found.shards and found.other:
        what = f"weights are not safetensors and were not looked into: {shortened(found.other, 3)}"
        found.findings.append(unsure("weights-not-judged", what))
    return found


def _read_index(found: Weights, path: Path) -> None:
    value, found.findings = read_object(path)
    if not value:
        found.findings = found.findings or [error("index-map", f"{path.name} is empty", path.name)]
        return
    weight_map = value.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        found.findings.append(error("index-map", f"{path.name} has no weight_map", path.name))
        return
    named = {file if isinstance(file, str) else f"{file!s:.80}/" for file in weight_map.values()}
    what, outside = (
        f"{path.name} names files that are not in this folder",
        {f for f in named if not _plain(f)},
    )
    found.findings += listed("index-path", what, (file[:80] for file in outside), path.name)
    inside = {key: file for key, file in weight_map.items() if isinstance(file, str)}
    found.index = {key: file for key, file in inside.items() if file not in outside}


def _plain(name: str) -> bool:
    """Whether an index's entry is a file name: no folder, no way out of this one."""
    fits = 0 < len(name) < 256 and name.isprintable()
    return fits and name not in (".", "..") and not set(name) & {"/", "\\"}


def _take(found: Weights, headers: dict[str, Header]) -> None:
    for name, header in headers.items():
        found.findings += header.findings
        twice = header.tensors.keys() & found.tensors.keys() if found.index is None else ()
        found.findings += listed("tensor-twice", f"{name} has tensors another shard has too", twice, name)
        found.tensors |= header.tensors


def _against_index(found: Weights, headers: dict[str, Header], own: list[str]) -> None:
    index = found.index or {}
    missing: dict[str, list[str]] = {}
    for tensor, file in index.items():
        header = headers[file]
        if header.sound and tensor not in header.tensors:
            missing.setdefault(file, []).append(tensor)
    for file, tensors in sorted(missing.items()):
        what = f"{file} lacks {len(tensors)} tensors the index puts there"
        found.findings += listed("tensor-missing", what, tensors, file)
    extra = [key for file, header in headers.items() for key in header.tensors if index.get(key) != file]
    what = f"{len(extra)} tensors are in shards where the index does not name them"
    found.findings += listed("tensor-extra", what, extra)
    if unnamed := sorted(set(own) - set(headers)):
        what = f"files that the index does not name: {shortened(unnamed, 3)}"
        found.findings.append(note("shard-unnamed", what, unnamed[0]))
