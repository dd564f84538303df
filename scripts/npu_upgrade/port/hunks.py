"""What the GPU side gained, as hunks for the NPU runners."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from npu_upgrade.code.sequences import Change
from npu_upgrade.code.statements import Statement, render
from npu_upgrade.ground.files import sha256
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.port.driven import Upstream, split_pieces
from npu_upgrade.port.safe import unsafe
from npu_upgrade.port.sides import keys_of
from npu_upgrade.port.unit_diff import UnitDiff, diff_units

_REACH = 6  # so many hunks around one may have to come with it
TEXT = ('"', "'")
"""What a statement begins with that is nothing but text: it says something, and does nothing."""


@dataclass(frozen=True)
class Hunk:
    """One thing the GPU side gained.

    ``kind`` is ``change`` (inside a unit that the NPU runner has), ``method`` (one that its
    class lacks) or ``base`` (a base class that it lacks); ``unit`` is the name on the NPU
    side. ``old`` and ``new`` are the statements before and after, for a base class its name;
    a ``change`` can be taken by itself through ``diff`` and ``pieces``, and stands behind the
    statement ``after`` of the GPU unit.
    """

    kind: str
    runner: Runner
    unit: str
    old: tuple[Statement, ...]
    new: tuple[Statement, ...]
    diff: UnitDiff | None = field(default=None, compare=False, repr=False)
    pieces: tuple[Change, ...] = ()
    after: str = ""

    @cached_property
    def id(self) -> str:
        """The hash of the content: the same hunk has it again in the next upgrade."""
        texts = [self.kind, self.runner.kind, self.unit]
        texts += ["-", *(s.key for s in self.old), "+", *(s.key for s in self.new)]
        return f"port-{sha256(chr(0).join(texts))[:8]}"

    @cached_property
    def added(self) -> Counter[str]:
        """The statements that come, by their keys."""
        return keys_of(self.new) - keys_of(self.old)

    @cached_property
    def removed(self) -> Counter[str]:
        """The statements that go, by their keys."""
        return keys_of(self.old) - keys_of(self.new)

    @property
    def group(self) -> str:
        """The runner and method it belongs to, by which hunks are asked for together."""
        return f"{self.runner.kind}.{self.unit.rpartition('.')[2]}"

    @property
    def text(self) -> str:
        """The hunk for people: what goes with ``-``, what comes with ``+``."""
        sides = [(sign, side) for sign, side in (("-", self.old), ("+", self.new)) if side]
        lines = [(sign, line) for sign, side in sides for line in render(side).split("\n") if line.strip()]
        edge = min((len(line) - len(line.lstrip()) for _, line in lines), default=0)
        return "\n".join(f"{sign} {line[edge:]}" for sign, line in lines)


def unit_hunks(
    runner: Runner, unit: str, old: Sequence[Statement], new: Sequence[Statement], upstream: Upstream
) -> Iterator[Hunk]:
    """The hunks between two versions of a GPU unit that are not upstream's doing."""
    diff, groups = split_pieces(diff_units(old, new), upstream)
    groups = _whole(diff, groups)
    loose = [piece for piece in diff.pieces if not any(piece in group for group in groups)]
    for pieces in [_carrying(diff, group, loose) for group in groups]:
        before = tuple(s for piece in pieces for s in old[piece.a0 : piece.a1])
        after = tuple(s for piece in pieces for s in new[piece.b0 : piece.b1])
        place = pieces[0].b0
        hunk = Hunk("change", runner, unit, before, after, diff, pieces, new[place - 1].key if place else "")
        if not all(key.startswith(TEXT) for key in hunk.added + hunk.removed):
            yield hunk


def _whole(diff: UnitDiff, groups: list[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """The groups, joined with their neighbours where one alone leaves no Python."""
    found: list[tuple[Change, ...]] = []
    waiting = list(groups)
    while waiting:
        group = waiting.pop(0)
        if not diff.parses(group):
            joined = _joined(diff, group, found, waiting)
            for part in joined:
                (found if part in found else waiting).remove(part)
            group = tuple(sorted({piece for part in (group, *joined) for piece in part}))
        found.append(group)
    return sorted(found)


def _carrying(diff: UnitDiff, group: tuple[Change, ...], loose: Sequence[Change]) -> tuple[Change, ...]:
    """The group with the ``loose`` pieces, upstream's and nobody's, that give its names and conditions."""
    found = group
    while lacking := unsafe(found, diff, diff.old, diff.compose(found)):
        more = [
            piece
            for piece in loose
            if piece not in found and lacking.is_cured_by(s.key for s in diff.new[piece.b0 : piece.b1])
        ]
        if not more:
            break
        nearest = min(more, key=lambda piece: (piece > group[0], abs(piece.b0 - group[0].b0)))
        found = tuple(sorted({*found, nearest}))
    return found if diff.parses(found) else group


def _joined(
    diff: UnitDiff,
    group: tuple[Change, ...],
    before: Sequence[tuple[Change, ...]],
    after: Sequence[tuple[Change, ...]],
) -> list[tuple[Change, ...]]:
    """The fewest near groups with which ``group`` is Python; none when there are no such."""
    near = sorted([*before, *after], key=lambda other: abs(other[0].b0 - group[0].b0))[:_REACH]
    for count in range(1, min(3, len(near)) + 1):
        for others in itertools.combinations(near, count):
            if diff.parses([*group, *(piece for other in others for piece in other)]):
                return list(others)
    return []
