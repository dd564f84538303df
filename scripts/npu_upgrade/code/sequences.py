"""Aligning two sequences of keys: longest common subsequence, patience, change groups."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

Pair = tuple[int, int]


class Change(NamedTuple):
    """A run that differs: ``a[a0:a1]`` became ``b[b0:b1]`` (either may be empty)."""

    a0: int
    a1: int
    b0: int
    b1: int


def changes(pairs: Iterable[Pair], len_a: int, len_b: int, a_from: int = 0, b_from: int = 0) -> list[Change]:
    """The change groups between matched pairs (pairs increase in both coordinates).

    ``a_from`` and ``b_from`` are added to all positions.
    """
    out: list[Change] = []
    a = b = 0
    for x, y in [*pairs, (len_a, len_b)]:
        if x > a or y > b:
            out.append(Change(a_from + a, a_from + x, b_from + b, b_from + y))
        a, b = x + 1, y + 1
    return out


def longest_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """A longest common subsequence as index pairs; O(len(a) * len(b))."""
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below, item = rows[i], rows[i + 1], a[i]
        for j in range(len(b) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if item == b[j] else max(below[j], row[j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def patience(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """Anchor on items unique to both sides, then align the gaps; keeps blocks together."""
    pairs: list[Pair] = []
    stack = [(0, len(a), 0, len(b))]
    while stack:
        a0, a1, b0, b1 = stack.pop()
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            pairs.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            pairs.append((a1, b1))
        if a0 == a1 or b0 == b1:
            continue
        anchors = _anchors(a, b, a0, a1, b0, b1)
        if not anchors:
            pairs += [(a0 + i, b0 + j) for i, j in longest_common(a[a0:a1], b[b0:b1])]
            continue
        x, y = a0, b0
        for i, j in [*anchors, (a1, b1)]:
            stack.append((x, i, y, j))
            x, y = i + 1, j + 1
        pairs += anchors
    return sorted(pairs)


def similarity(a: str, b: str, least: float = 0.3) -> float:
    """Share of common text of two strings, 0 to 1; 0 where it is below ``least``, which is quick to see."""
    if a == b:
        return 1.0
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    few = matcher.real_quick_ratio() < least or matcher.quick_ratio() < least
    return matcher.ratio() if not few else 0.0


def dice(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[float, int]:
    """(2 * common / total, common) over a longest common subsequence found by difflib."""
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    common = sum(block.size for block in matcher.get_matching_blocks())
    return 2 * common / max(1, len(a) + len(b)), common


def overlap(a: Counter, b: Counter) -> float:
    """Dice of two multisets: an upper bound of :func:`dice`, much cheaper."""
    total = sum(a.values()) + sum(b.values())
    return 2 * sum((a & b).values()) / max(1, total)


def _anchors(a: Sequence, b: Sequence, a0: int, a1: int, b0: int, b1: int) -> list[Pair]:
    """The longest increasing run of pairs of items that are unique on both sides."""
    count_a, count_b = Counter(a[a0:a1]), Counter(b[b0:b1])
    where = {b[j]: j for j in range(b0, b1) if count_b[b[j]] == 1}
    pairs = [(i, where[a[i]]) for i in range(a0, a1) if count_a[a[i]] == 1 and a[i] in where]
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for number, (_, j) in enumerate(pairs):
        place = bisect.bisect_left(tails, j)
        if place == len(tails):
            tails.append(j)
            ends.append(number)
        else:
            tails[place], ends[place] = j, number
        before.append(ends[place - 1] if place else None)
    run: list[Pair] = []
    number = ends[-1] if ends else None
    while number is not None:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]
