"""How one GPU unit changed, in pieces that can be taken one by one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.sequences import Change, changes
from npu_upgrade.code.statements import Statement, render
from npu_upgrade.threeway.align import align, align_similar
from npu_upgrade.threeway.pieces import as_module
from npu_upgrade.threeway.shifts import headers, parents

_Place = tuple[str, int | None]
"""A statement by its version (``old`` or ``new``) and number."""


@dataclass(frozen=True)
class UnitDiff:
    """Two versions of a unit and the pieces by which they differ, in order and disjoint."""

    old: Sequence[Statement]
    new: Sequence[Statement]
    pieces: Sequence[Change]

    def compose(self, chosen: Collection[Change]) -> list[Statement]:
        """The old version with only the ``chosen`` pieces changed.

        Every statement stands below those of its headers (of either version) that are there.
        """
        if not chosen:
            return list(self.old)
        out: list[Statement] = []
        known: dict[_Place, tuple[int, int]] = {}  # where a statement stands, and at which column
        ends = {piece.b1 for piece in chosen}
        for a, b in self._order(chosen):
            # comments and blank lines change in and behind a chosen piece alone
            statement = self.old[a] if a is not None and b not in ends else self.new[b or 0]
            here = [place for place in (("old", a), ("new", b)) if place[1] is not None]
            sides = here if len(here) == 1 else self._sides(a or 0, b or 0, chosen)
            _, indent = max(self._below(place, known) for place in sides)
            known |= {place: (len(out), indent) for place in here}
            out.append(statement.shifted(indent - statement.indent))
        return out

    def parses(self, chosen: Collection[Change]) -> bool:
        """Whether the unit is Python with only these pieces changed."""
        try:
            ast.parse(as_module(render(self.compose(chosen))))
        except SyntaxError:
            return False
        return True

    def _order(self, chosen: Collection[Change]) -> list[tuple[int | None, int | None]]:
        """The statements of the composed version, each by its numbers in both."""
        out: list[tuple[int | None, int | None]] = []
        a = b = 0
        for piece in [*self.pieces, Change(len(self.old), len(self.old), len(self.new), len(self.new))]:
            out += zip(range(a, piece.a0), range(b, piece.b0), strict=True)
            if piece in chosen:
                out += ((None, number) for number in range(piece.b0, piece.b1))
            else:
                out += ((number, None) for number in range(piece.a0, piece.a1))
            a, b = piece.a1, piece.b1
        return out

    def _sides(self, a: int, b: int, chosen: Collection[Change]) -> list[_Place]:
        """By which version's headers a common statement stands: those of the pieces that moved it."""
        movers = self._movers[0][a] + self._movers[1][b]
        before = [p for p in self.pieces if p.b1 <= b and p.a1 <= a]
        taken = {piece in chosen for piece in movers or before[-1:] or self.pieces[:1]}
        return [("old", a)] * (taken != {True}) + [("new", b)] * (taken != {False})

    def _below(self, place: _Place, known: dict[_Place, tuple[int, int]]) -> tuple[int, int]:
        """Where the nearest header of a statement stands that is there, and the column below it."""
        version, number = place
        side, above = (self.old, self._above[0]) if version == "old" else (self.new, self._above[1])
        assert number is not None
        child, header = number, above[number]
        while header is not None:
            found = known.get((version, header)) or known.get(self._stand_ins.get((version, header), ("", 0)))
            if found:
                return found[0], found[1] + side[child].indent - side[header].indent
            child, header = header, above[header]
        return -1, side[child].indent

    @cached_property
    def _above(self) -> tuple[list[int | None], list[int | None]]:
        return parents(self.old), parents(self.new)

    @cached_property
    def _movers(self) -> list[list[list[Change]]]:
        """The pieces in which the headers of each statement of the old version are, and of the new."""
        sides = [
            {number: piece for piece in self.pieces for number in range(piece.a0, piece.a1)},
            {number: piece for piece in self.pieces for number in range(piece.b0, piece.b1)},
        ]
        return [
            [[pieces[one] for one in headers(above, number) if one in pieces] for number in range(len(above))]
            for pieces, above in zip(sides, self._above, strict=True)
        ]

    @cached_property
    def _stand_ins(self) -> dict[_Place, _Place]:
        """The header of the other version that most of a header's statements stand below there."""
        votes: Counter[tuple[int, int]] = Counter()
        for a, b in self._order(()):
            if a is not None and b is not None:
                old, new = self._above[0][a], self._above[1][b]
                votes.update([(old, new)] if old is not None and new is not None else [])
        found: dict[_Place, _Place] = {}
        for (old, new), _ in votes.most_common():
            found.setdefault(("old", old), ("new", new))
            found.setdefault(("new", new), ("old", old))
        return found


def diff_units(old: Sequence[Statement], new: Sequence[Statement]) -> UnitDiff:
    """The difference, changed statements paired one to one where they resemble each other."""
    pairs = align(old, new)
    for gap in changes(pairs, len(old), len(new)):
        inner = align_similar(old[gap.a0 : gap.a1], new[gap.b0 : gap.b1])
        pairs = [*pairs, *((gap.a0 + i, gap.b0 + j) for i, j in inner)]
    pairs.sort()
    found = changes(pairs, len(old), len(new))
    found += [Change(i, i + 1, j, j + 1) for i, j in pairs if old[i].key != new[j].key]
    return UnitDiff(old, new, sorted(found))
