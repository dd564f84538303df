"""Splitting corresponding ranges of three versions at the blocks that all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.code.statements import CONTINUES, Statement
from npu_upgrade.threeway.align import align_similar


@dataclass(frozen=True, slots=True)
class Span:
    """Corresponding half-open ranges of base, ours and theirs."""

    b0: int
    b1: int
    o0: int
    o1: int
    t0: int
    t1: int


def split_at_blocks(
    span: Span, base: Sequence[Statement], ours: Sequence[Statement], theirs: Sequence[Statement]
) -> list[Span]:
    """The parts of ``span`` between and at blocks that all three versions have.

    Empty when there is no such block, so that a caller that recurses comes to an end.
    """
    starts = [
        block_starts(base, span.b0, span.b1),
        block_starts(ours, span.o0, span.o1),
        block_starts(theirs, span.t0, span.t1),
    ]
    heads = [[side[n] for n in starts[k]] for k, side in enumerate((base, ours, theirs))]
    in_ours, in_theirs = dict(align_similar(heads[0], heads[1])), dict(align_similar(heads[0], heads[2]))
    parts: list[Span] = []
    b, o, t = span.b0, span.o0, span.t0
    for number in range(len(starts[0])):
        if number not in in_ours or number not in in_theirs:
            continue
        low = (starts[0][number], starts[1][in_ours[number]], starts[2][in_theirs[number]])
        if (b, o, t) != low:
            parts.append(Span(b, low[0], o, low[1], t, low[2]))
        b = _next(starts[0], number, span.b1)
        o = _next(starts[1], in_ours[number], span.o1)
        t = _next(starts[2], in_theirs[number], span.t1)
        parts.append(Span(low[0], b, low[1], o, low[2], t))
    if parts and (b, o, t) != (span.b1, span.o1, span.t1):
        parts.append(Span(b, span.b1, o, span.o1, t, span.t1))
    return parts if parts != [span] else _split_header(span)


def _split_header(span: Span) -> list[Span]:
    """One block that all three have: its header, and what stands under it."""
    if span.b1 - span.b0 < 2 and span.o1 - span.o0 < 2 and span.t1 - span.t0 < 2:
        return []
    b, o, t = span.b0 + 1, span.o0 + 1, span.t0 + 1
    return [Span(span.b0, b, span.o0, o, span.t0, t), Span(b, span.b1, o, span.o1, t, span.t1)]


def block_starts(side: Sequence[Statement], start: int, end: int) -> list[int]:
    """Where the outermost blocks of ``side[start:end]`` begin (``else`` is no beginning)."""
    if start == end:
        return []
    top = min(side[n].indent for n in range(start, end))
    return [
        n
        for n in range(start, end)
        if n == start or (side[n].indent == top and not CONTINUES.match(side[n].key))
    ]


def _next(starts: list[int], number: int, end: int) -> int:
    return starts[number + 1] if number + 1 < len(starts) else end


def enclosing_block(side: Sequence[Statement], start: int, end: int) -> tuple[int, int]:
    """The smallest run of whole blocks around ``side[start:end]`` that is larger than it."""
    top = min((side[n].indent for n in range(start, end)), default=0)
    low, high = start, end
    while low > 0 and side[low - 1].indent > top:
        low -= 1
    low = max(0, low - 1)
    top = min(top, side[low].indent) if side else 0
    while high < len(side) and (side[high].indent > top or CONTINUES.match(side[high].key)):
        high += 1
    # At the top of a method there is no header to grow to: then it is all of it.
    return (low, high) if (low, high) != (start, end) else (0, len(side))


def whole_block(side: Sequence[Statement], number: int) -> range:
    """A statement with the block that it begins; with the header above where it is all that stands there."""
    top = side[number].indent
    continues = CONTINUES.match(side[number].key) is not None
    end = number + 1
    while end < len(side) and (
        side[end].indent > top
        or (side[end].indent == top and not continues and CONTINUES.match(side[end].key))
    ):
        end += 1
    alone = end == len(side) or side[end].indent < top
    if number and side[number - 1].indent < top and alone:
        return whole_block(side, number - 1)
    return range(number, end)
