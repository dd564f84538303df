"""Two texts side by side, as rows of a table; long equal parts are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

CONTEXT = 3
MOST_ROWS = 600
MOST_LINES = 4000  # of one text; the rest is said to be left out
MOST_WIDTH = 400


@dataclass(frozen=True)
class Row:
    """``kind``: equal, changed, added, dropped or gap; line numbers are 1-based, 0 for none."""

    kind: str
    left_line: int
    left: str
    right_line: int
    right: str


@dataclass(frozen=True)
class Sides:
    """The rows of one comparison; ``left_out`` is how many more there would be."""

    rows: list[Row]
    left_out: int
    changed: int


def compare(left: str, right: str) -> Sides:
    """The differences of two texts with a few lines around them."""
    a, b = left.split("\n")[:MOST_LINES], right.split("\n")[:MOST_LINES]
    rows = list(differences(a, b))
    changed = sum(row.kind not in ("equal", "gap") for row in rows)
    return Sides(rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS), changed)


def differences(a: list[str], b: list[str]) -> Iterator[Row]:
    """The rows where two texts differ, with a few around them."""
    groups = list(SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(CONTEXT))
    end = 0
    for group in groups:
        if group[0][1] > end:
            yield _gap(group[0][1] - end)
        for tag, i1, i2, j1, j2 in group:
            yield from _run(tag, a, b, (i1, i2), (j1, j2))
        end = group[-1][2]
    if groups and end < len(a):
        yield _gap(len(a) - end)


def _gap(lines: int) -> Row:
    return Row("gap", 0, f"{lines} equal line" + "s" * (lines != 1), 0, "")


def _run(
    tag: str, a: list[str], b: list[str], left: tuple[int, int], right: tuple[int, int]
) -> Iterator[Row]:
    rows = max(left[1] - left[0], right[1] - right[0])
    for number in range(rows):
        i, j = left[0] + number, right[0] + number
        has_left, has_right = i < left[1], j < right[1]
        kind = "equal" if tag == "equal" else "changed" if has_left and has_right else "dropped"
        kind = "added" if not has_left else kind
        yield Row(
            kind,
            i + 1 if has_left else 0,
            a[i][:MOST_WIDTH] if has_left else "",
            j + 1 if has_right else 0,
            b[j][:MOST_WIDTH] if has_right else "",
        )
