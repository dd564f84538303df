"""The weight files of a checkpoint: every safetensors header, held against the index."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.finding import Finding, error, note, shortened, unsure
from npu_upgrade.checkpoint.reading import read_object
from npu_upgrade.checkpoint.safetensors import Header, Tensor, read_header

INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf", ".ckpt", ".npz", ".h5", ".msgpack")
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
        if path.suffix in OTHER_FORMATS and path.name not in _SIDE_FILES
    )
    index_name = next((name for name in INDEXES if _there(folder / name)), None)
    if index_name:
        _read_index(found, folder / index_name)
    named = sorted({*(found.index or {}).values()})
    # vLLM loads what the index names; a second copy (consolidated next to model) is left alone
    found.shards = named if found.index else _one_copy(present)
    with ThreadPoolExecutor(max_workers=8) as pool:
        headers = dict(
            zip(found.shards, pool.map(lambda name: read_header(folder / name), found.shards), strict=True)
        )
    _take(found, headers)
    if found.index is not None:
        _against_index(found, headers, present)
    if not found.shards and found.other:
        what = f"weights are not safetensors and were not looked into: {shortened(found.other, 3)}"
        found.findings.append(unsure("weights-not-judged", what))
    return found


def _there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _one_copy(present: list[str]) -> list[str]:
    own = [name for name in present if not name.startswith("consolidated")]
    return own or present


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
    outside = sorted(file[:80] for file in named if not _plain(file))
    if outside:
        what = f"{path.name} names files that are not in this folder: {shortened(outside, 3)}"
        found.findings.append(error("index-path", what, path.name))
    inside = {file for file in named if _plain(file)}
    found.index = {key: file for key, file in weight_map.items() if isinstance(file, str) and file in inside}


def _plain(name: Any) -> bool:
    """Whether an index's entry is a file name: no folder, no way out of this one."""
    return (
        isinstance(name, str)
        and 0 < len(name) < 256
        and not set(name) & {"/", "\\", "\0"}
        and name not in (".", "..")
        and name.isprintable()
    )


def _take(found: Weights, headers: dict[str, Header]) -> None:
    for name, header in headers.items():
        found.findings += header.findings
        twice = sorted(header.tensors.keys() & found.tensors.keys())
        if twice and found.index is None:
            what = f"{name} has tensors another shard has too: {shortened(twice, 3)}"
            found.findings.append(error("tensor-twice", what, name))
        found.tensors |= header.tensors


def _against_index(found: Weights, headers: dict[str, Header], present: list[str]) -> None:
    index = found.index or {}
    missing: dict[str, list[str]] = {}
    for tensor, file in index.items():
        header = headers[file]
        if header.sound and tensor not in header.tensors:
            missing.setdefault(file, []).append(tensor)
    for file, tensors in sorted(missing.items()):
        what = f"{file} lacks {len(tensors)} tensors the index puts there: {shortened(sorted(tensors), 3)}"
        found.findings.append(error("tensor-missing", what, file))
    extra = sorted(
        key for file, header in headers.items() for key in header.tensors if index.get(key) != file
    )
    if extra:
        what = f"{len(extra)} tensors are in shards where the index does not name them: {shortened(extra, 3)}"
        found.findings.append(error("tensor-extra", what, extra[0]))
    unnamed = sorted(
        set(present) - set(headers) - {name for name in present if name.startswith("consolidated")}
    )
    if unnamed:
        what = f"files that the index does not name: {shortened(unnamed, 3)}"
        found.findings.append(note("shard-unnamed", what, unnamed[0]))
