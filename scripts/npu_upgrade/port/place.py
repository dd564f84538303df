"""Puts hunks into a unit of an NPU runner, by a three-way merge whose base is the GPU side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.code.sequences import Change
from npu_upgrade.code.statements import Statement, render, split_statements
from npu_upgrade.code.uses import free_names, reads, rebinds
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.needs import uses
from npu_upgrade.port.safe import Unsafe, unsafe, with_paired_fences
from npu_upgrade.port.sides import keys_of
from npu_upgrade.port.unit_diff import UnitDiff
from npu_upgrade.threeway.align import align
from npu_upgrade.threeway.blocks import CONTINUES
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import syntax_error

_PRAGMA = re.compile(r"#\s*(type:|noqa|pragma|pyright|ty:|fmt:)")


@dataclass(frozen=True)
class Placed:
    """A unit with hunks in it; ``text`` is None, and ``reason`` says why, when they have no place.

    ``held`` tells that the unit has them already, so that the merge brings nothing; ``unsafe``
    what is wrong with the unit that has them.
    """

    text: str | None
    reason: str = ""
    held: bool = False
    unsafe: Unsafe | None = None


def place(hunks: Sequence[Hunk], diff: UnitDiff, source: str) -> Placed:
    """``source`` (the unit on the NPU side) with hunks of one difference of the GPU unit.

    They are refused when the merge leaves a conflict, does not have all of their statements,
    leaves a name without its definition that the hunks do not read themselves, or is less safe
    than the unit was (:mod:`safe`).
    """
    ours = split_statements(source)
    pieces = [piece for hunk in hunks for piece in hunk.pieces]
    theirs = diff.compose(pieces)
    merged = merge_method(diff.old, ours, theirs)
    if merged.conflicts:
        return Placed(None, merged.conflicts[0].reason)
    result = [piece for piece in merged.pieces if isinstance(piece, Statement)]
    if not merged.flags and [(s.key, s.indent) for s in result] == [(s.key, s.indent) for s in ours]:
        return Placed(source, held=True)
    if reason := _missing(diff.old, theirs, ours, result) or _undefined(hunks, diff, ours, result):
        return Placed(None, reason)
    if found := unsafe(pieces, diff, ours, result):
        safe = (other for other in _other_places(pieces, diff, ours) if not unsafe(pieces, diff, ours, other))
        result = next(safe, [])
        if not result:
            return Placed(None, found.reason, unsafe=found)
    return Placed(render(with_paired_fences(ours, laid_out(ours, result))))


def _other_places(
    pieces: Sequence[Change], diff: UnitDiff, ours: Sequence[Statement]
) -> Iterator[list[Statement]]:
    """The unit with one added run elsewhere: between its neighbours of the GPU unit, then below them."""
    start, end = pieces[0].b0, pieces[-1].b1
    if any(one.a0 != one.a1 for one in pieces) or sum(one.b1 - one.b0 for one in pieces) != end - start:
        return
    run = diff.new[start:end]
    low = next(_where(reversed(diff.new[:start]), ours), 0)
    high = next((n for n in _where(diff.new[end:], ours) if n > low), low + 1)
    below = itertools.takewhile(
        lambda n: not rebinds(s.key for s in run) & reads([ours[n - 1].key]), range(high + 1, len(ours))
    )
    for at in (*range(high, low, -1), *below):
        if at < len(ours) and not CONTINUES.match(ours[at].key):
            depth = ours[at].indent - run[0].indent
            other = [*ours[:at], *(s.shifted(depth) for s in run), *ours[at:]]
            if syntax_error(other) is None:  # what opens a block stands nowhere without it
                yield other


def _where(side: Iterable[Statement], ours: Sequence[Statement]) -> Iterator[int]:
    """The places of statements that the unit has once."""
    keys = [s.key for s in ours]
    return (keys.index(s.key) for s in side if keys.count(s.key) == 1)


def _missing(
    old: Sequence[Statement], new: Sequence[Statement], ours: Sequence[Statement], result: Sequence[Statement]
) -> str:
    """Why the result is not what was asked for, which is to go from ``old`` to ``new``; empty when it is."""
    base, theirs, before, after = map(keys_of, (old, new, ours, result))
    for key, count in (theirs - base).items():
        if after[key] <= before[key] and after[key] < min(before[key], base[key]) + count:
            return f"the NPU side has something else where this belongs: {key}"
    for key, count in (base - theirs).items():
        if before[key] and after[key] > max(0, before[key] - count):
            return f"the NPU side still needs what goes here: {key}"
    return ""


def _undefined(
    hunks: Sequence[Hunk], diff: UnitDiff, ours: Sequence[Statement], result: Sequence[Statement]
) -> str:
    """The names whose definition, or first value, goes while the NPU side alone still reads them."""
    before, after = (free_names(side) for side in (ours, result))
    lost = after - before - {name for hunk in hunks for name in uses(hunk).names}
    # What a hunk only takes away, it takes because the GPU side has no reader for it any more.
    dropped = [key for hunk in hunks if not hunk.added for key in hunk.removed]
    needless = rebinds(dropped) - reads(s.key for s in diff.new)
    lost |= needless & reads(s.key for s in result)
    return f"the NPU side still reads {', '.join(sorted(lost))}, which this drops" if lost else ""


def laid_out(ours: Sequence[Statement], result: Sequence[Statement]) -> list[Statement]:
    """The result with its own blank lines, and without what linters were told of statements that went."""
    blanks = {comment.text: comment.blanks for statement in ours for comment in statement.comments}
    out: list[Statement] = []
    for one in result:
        comments = [c for c in one.comments if c.text in blanks or not _PRAGMA.match(c.text)]
        own = (replace(c, blanks=blanks.get(c.text, c.blanks)) for c in comments)
        out.append(replace(one, comments=tuple(own)))
    for a, b in align(ours, out):
        if [c.text for c in ours[a].comments] == [c.text for c in out[b].comments]:
            out[b] = ours[a].shifted(out[b].indent - ours[a].indent)
    return out
