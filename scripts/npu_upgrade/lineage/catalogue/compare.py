"""Two catalogues, or the GPU and the NPU side of one, beside each other, with what markers tell of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.catalogue.block import WHOLE, Block, Catalogue, Method
from npu_upgrade.lineage.catalogue.reference import Row
from npu_upgrade.lineage.dialect import neutral
from npu_upgrade.lineage.marker_places import counted
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class Half:
    """One side of one method, with its markers by dialect."""

    method: Method
    path: str
    markers: Counter[str]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.method.blocks

    @property
    def missed(self) -> list[Block]:
        """Blocks of a copied method that no marker is for."""
        return [block for block in self.blocks if block.marker in ("outside", "partly", "inexpressible")]


@dataclass(frozen=True)
class Beside:
    """One method on both sides; a side is None where it has no such method, or no omni code in it."""

    path: str
    name: str
    a: Half | None
    b: Half | None

    def only(self, side: str) -> list[Block]:
        """The blocks that this side alone has."""
        mine, other = (self.a, self.b) if side == "a" else (self.b, self.a)
        known = {block.id for block in other.blocks} if other else set()
        return [block for block in mine.blocks if block.id not in known] if mine else []

    @property
    def common(self) -> int:
        """How many blocks both sides have."""
        ids = {block.id for block in self.b.blocks} if self.b else set()
        return sum(block.id in ids for block in self.a.blocks) if self.a else 0

    def as_json(self) -> dict[str, Any]:
        sides = {"a": _half_data(self.a, self.only("a")), "b": _half_data(self.b, self.only("b"))}
        return {"path": self.path, "method": self.name, "in both": self.common} | sides


def beside(
    a: tuple[Catalogue, SourceTree],
    b: tuple[Catalogue, SourceTree],
    sides: tuple[str | None, str | None] = (None, None),
) -> list[Beside]:
    """The methods of both, paired by path and name; ``sides`` keeps one side (npu, gpu) of each.

    With two different sides, the classes of the runners are paired as they mirror one another.
    """
    crossed = sides[0] != sides[1]
    halves = [_halves(*which, side, crossed) for which, side in zip((a, b), sides, strict=True)]
    places = list(dict.fromkeys([*halves[0], *halves[1]]))
    found = []
    for place in places:
        one, other = (half.get(place) for half in halves)
        named = other or one
        if named:
            found.append(Beside(named.path, named.method.name, one, other))
    return found


def beside_text(found: Sequence[Beside]) -> str:
    """A table of the methods, and what a search for markers misses in each."""
    head = ("method", "markers a", "blocks a", "missed a", "markers b", "blocks b", "missed b", "in both")
    lines = [table(head, (_diff_row(one) for one in found)), ""]
    for one in found:
        for label, half in (("a", one.a), ("b", one.b)):
            lines += [
                f"{one.name} {label} {block.first}-{block.last}: {block.kind}, {block.marker}: "
                + (block.purpose or block.made_of)
                for block in (half.missed if half else [])
            ]
    return "\n".join(lines)


def _diff_row(one: Beside) -> tuple[str, ...]:
    cells: list[str] = []
    for half in (one.a, one.b):
        if half is None:
            cells += ["-", "-", "-"]
        else:
            markers = ", ".join(f"{name} {count}" for name, count in half.markers.items())
            cells += [markers or "none", str(len(half.blocks)), str(len(half.missed))]
    return (one.name, *cells, str(one.common))


def changed(old: Iterable[Row], new: Iterable[Row]) -> list[str]:
    """What a reader of the ``old`` rows would have wrong about the ``new``, a line each."""
    before, after = _placed(old), _placed(new)
    lines = [f"gone: {_name(row)}" for place, row in before.items() if place not in after]
    lines += [f"new: {_name(row)} at {row.lines}" for place, row in after.items() if place not in before]
    for place, row in after.items():
        known = before.get(place, row)
        if known.lines != row.lines:
            lines.append(f"moved: {_name(row)} from {known.lines} to {row.lines}")
        if known.marker != row.marker:
            lines.append(f"marker: {_name(row)} was {known.marker}, is {row.marker}")
    return lines


def _halves(
    catalogue: Catalogue, omni: SourceTree, side: str | None, crossed: bool
) -> dict[tuple[str, str], Half]:
    found = {}
    for file in catalogue.files:
        if side and file.side != side:
            continue
        source = omni.read(file.path)
        for method in file.methods:
            markers = counted(source, method.first, method.last)
            half = Half(method, file.path, markers)
            place = file.path, method.name
            if crossed:  # without the words of devices: equal for what mirrors one another
                owner, _, rest = method.name.rpartition(".")
                place = neutral(file.path.rpartition("/")[2]), f"{neutral(owner)}.{rest}"
            found[place] = half
    return found


def _placed(rows: Iterable[Row]) -> dict[tuple[str, str, str, int], Row]:
    """The rows by file, method and block; the same block twice is numbered."""
    found: dict[tuple[str, str, str, int], Row] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        key = (row.path, row.method, row.id)
        found[(*key, seen[key])] = row
        seen[key] += 1
    return found


def _name(row: Row) -> str:
    return f"{row.path.rpartition('/')[2]} {row.method} {row.id} ({row.kind})"


def _half_data(half: Half | None, only: list[Block]) -> dict[str, Any] | None:
    if half is None:
        return None
    return {
        "path": half.path,
        "lines": [half.method.first, half.method.last],
        "markers": dict(half.markers),
        "blocks": len(half.blocks),
        "whole": any(block.kind in WHOLE for block in half.blocks),
        "missed by a search for markers": [_brief(block) for block in half.missed],
        "only here": [_brief(block) for block in only],
    }


def _brief(block: Block) -> dict[str, Any]:
    shown = block.purpose or block.made_of
    return {
        "id": block.id,
        "kind": block.kind,
        "lines": [block.first, block.last],
        "marker": block.marker,
        "what": shown,
    }
