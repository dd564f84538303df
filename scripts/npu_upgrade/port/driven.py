"""Which parts of a GPU-side change only follow vLLM: those reach the NPU side through vllm-ascend."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.sequences import Change, similarity
from npu_upgrade.code.statements import Statement
from npu_upgrade.port.unit_diff import UnitDiff
from npu_upgrade.threeway.align import SIMILAR, weight
from npu_upgrade.threeway.blocks import block_starts

_WORD = re.compile(r"[A-Za-z_]\w*")

TELLING = 2
"""A statement of more words than this says where it comes from; ``else:`` does not."""


@dataclass(frozen=True)
class Upstream:
    """The statements (by their keys) that vLLM and vllm-ascend had before and have after."""

    before: Collection[str] = frozenset()
    after: Collection[str] = frozenset()

    @cached_property
    def gained(self) -> set[str]:
        """The words that upstream did not have before."""
        return words_of(self.after) - words_of(self.before)

    def brings(self, statement: Statement) -> bool:
        """Whether a statement that is new on the GPU side is upstream's."""
        return statement.key in self.after

    def drives(self, statement: Statement, known: Collection[str]) -> bool:
        """Whether a statement is upstream's, or all it says beyond the ``known`` words is.

        A call that omni has in its own form gets the argument that upstream's call got.
        """
        novel = words_of([statement.key]).difference(known)
        if self.brings(statement) or not novel or not novel <= self.gained:
            return self.brings(statement)
        like = (key for key in self.after if novel <= words_of([key]))
        return any(similarity(statement.key, key) >= SIMILAR for key in like)

    def takes(self, statement: Statement) -> bool:
        """Whether a statement that is gone on the GPU side is one that upstream dropped."""
        return statement.key in self.before and statement.key not in self.after


def split_pieces(diff: UnitDiff, upstream: Upstream) -> tuple[UnitDiff, list[tuple[Change, ...]]]:
    """The difference in smaller pieces, and which of them belong together and are not upstream's."""
    pieces = [part for piece in diff.pieces for part in _parts(piece, diff, upstream)]
    groups: list[list[Change]] = []
    for piece in pieces:
        owner = _owner(piece, diff, upstream)
        touching = bool(groups) and _touch(groups[-1][-1], piece)
        if owner == "omni" and not touching:
            groups.append([piece])
        elif touching and owner != "upstream":
            groups[-1].append(piece)
    return UnitDiff(diff.old, diff.new, pieces), [tuple(group) for group in groups]


def _parts(piece: Change, diff: UnitDiff, upstream: Upstream) -> list[Change]:
    """A piece cut where upstream's part of it ends and omni's begins."""
    if piece.a1 - piece.a0 == piece.b1 - piece.b0 == 1:
        return [piece]
    gone = _runs([upstream.takes(s) for s in diff.old[piece.a0 : piece.a1]])
    cuts = _cuts(diff.new, piece.b0, piece.b1, upstream)
    removals = [Change(piece.a0 + a, piece.a0 + b, piece.b0, piece.b0) for a, b in gone]
    return removals + [Change(piece.a1, piece.a1, a, b) for a, b in cuts]


def _cuts(side: Sequence[Statement], start: int, end: int, upstream: Upstream) -> list[tuple[int, int]]:
    """The parts of an added run: its blocks; one that upstream opened is cut behind its header."""
    starts = block_starts(side, start, end)
    found: list[tuple[int, int]] = []
    for first, last in itertools.pairwise([*starts, end]) if starts else ():
        whose = {upstream.brings(s) for s in side[first:last] if weight(s.key) > TELLING}
        if len(whose) == 2 and upstream.brings(side[first]) and last - first > 1:
            found += [(first, first + 1), *_cuts(side, first + 1, last, upstream)]
        else:
            found.append((first, last))
    return found


def _owner(piece: Change, diff: UnitDiff, upstream: Upstream) -> str:
    """``omni``, ``upstream``, or nobody's where the statements say too little."""
    new = [s for s in diff.new[piece.b0 : piece.b1] if weight(s.key) > TELLING]
    old = [s for s in diff.old[piece.a0 : piece.a1] if weight(s.key) > TELLING]
    if new:
        known = words_of(s.key for s in diff.old)
        return "upstream" if all(upstream.drives(s, known) for s in new) else "omni"
    if old and piece.b0 == piece.b1:
        return "upstream" if all(map(upstream.takes, old)) else "omni"
    # A short statement that upstream does not have comes from omni all the same.
    light = diff.new[piece.b0 : piece.b1]
    return "omni" if light and not any(s.key in upstream.after for s in light) else ""


def words_of(keys: Iterable[str]) -> set[str]:
    """The identifiers in some statements."""
    return {word for key in keys for word in _WORD.findall(key)}


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    edges = [n for n in range(len(flags)) if n == 0 or flags[n] != flags[n - 1]]
    return list(itertools.pairwise([*edges, len(flags)])) if flags else []


def _touch(one: Change, other: Change) -> bool:
    return one.a1 == other.a0 and one.b1 == other.b0
