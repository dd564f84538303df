"""The header of a safetensors file, checked against the file, without reading a weight.

The format: 8 bytes (little endian) with the length of a JSON header, the header, the data. Each entry has
``dtype``, ``shape`` and ``data_offsets`` into the data; entries cover the data without holes or overlaps.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from npu_upgrade.checkpoint.finding import Finding, error, note, shortened
from npu_upgrade.checkpoint.reading import parse_json, regular

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
    metadata: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not any(one.severity == "error" for one in self.findings)


def read_header(path: Path) -> Header:
    """The header of ``path``; a file that cannot be one is told by findings, never by an exception."""
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
        return "shard-truncated", f"has {size} bytes, less than the 8 that tell the header's length"
    if start.startswith(b"version "):
        return "shard-pointer", "is a Git LFS pointer, not the weights: git lfs pull"
    if length > MOST_HEADER:
        return "shard-header", f"says its header has {length} bytes, the format allows {MOST_HEADER}"
    if length > size - 8:
        return (
            "shard-truncated",
            f"says its header has {length} bytes, the file has {size - 8} after the length",
        )
    return None


def parse_header(text: bytes, data_bytes: int, name: str) -> Header:
    """The header's JSON against the number of bytes of data that follow it."""
    value, found = parse_json(text, f"header of {name}")
    if not isinstance(value, dict):
        found = [error("shard-header", one.what, name) for one in found]
        return Header(findings=found or [error("shard-header", f"the header of {name} is no object", name)])
    header = Header(findings=[error("shard-header", one.what, name) for one in found])
    metadata = value.pop("__metadata__", {})
    header.metadata = metadata if isinstance(metadata, dict) else {}
    wrong: list[str] = []
    for tensor, entry in value.items():
        one = _entry(entry, name)
        if isinstance(one, str):
            wrong.append(f"{tensor}: {one}")
        else:
            header.tensors[tensor] = one
    if wrong:
        header.findings.append(error("tensor-entry", f"{name}: {shortened(wrong, 3)}", name))
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
    beyond = sorted(key for key, one in tensors.items() if one.end > data_bytes)
    if beyond:
        most = max(one.end for one in tensors.values())
        what = f"{name} is truncated: {most} bytes of data announced, {data_bytes} there: "
        what += shortened(beyond, 3)
        return [error("shard-truncated", what, name)]
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
