"""Reads conflict markers: the one place that says what a conflict in a file is.

Two-way, ``diff3`` and ``zdiff3`` markers, under any line ends. Whether the lines are Python is no
matter here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.module import split_lines
from npu_upgrade.ground.errors import BadInput

OURS, BASE, THEIRS, END = "<<<<<<<", "|||||||", "=======", ">>>>>>>"


@dataclass(frozen=True)
class MarkedConflict:
    """A conflict as it stands in a file: its sides, their labels, and its rows.

    ``line`` and ``last`` are the 0-based lines of its outer markers; the sides have ``\\n`` between
    their lines whatever the file has.
    """

    base: str
    ours: str
    theirs: str
    labels: dict[str, str] = field(compare=False)
    line: int = field(compare=False)
    last: int = field(compare=False)

    @property
    def has_base(self) -> bool:
        """Whether its markers hold the base; two-way ones do not."""
        return "base" in self.labels


Item = str | MarkedConflict
"""A line outside conflicts (without its end), or a conflict."""


@dataclass(frozen=True)
class Answer:
    """One way to resolve all conflicts of a file.

    ``rows[i]`` is the 0-based line number in the file of line ``i`` of ``text``;
    ``disputed`` holds the lines of the file that belong to conflicts, markers included.
    """

    text: str
    rows: tuple[int, ...]
    disputed: frozenset[int]


def marker(line: str) -> str:
    """Which of the four markers a line is by its looks, empty for none."""
    sign, rest = line[:7], line[7:].rstrip("\r\n")
    if sign not in (OURS, BASE, THEIRS, END) or rest[:1] not in ("", " ", "\t"):
        return ""
    return "" if sign == THEIRS and rest.strip() else sign


def scan(text: str) -> list[Item]:
    """The lines of ``text`` with each complete conflict as one item."""
    lines = split_lines(text)
    items: list[Item] = []
    row = 0
    for found in _conflicts(lines):
        items += [line.rstrip("\r\n") for line in lines[row : found[OURS]]]
        items.append(_conflict(lines, found))
        row = found[END] + 1
    return items + [line.rstrip("\r\n") for line in lines[row:]]


def marker_rows(text: str) -> dict[int, str]:
    """The markers that keep a file from being done, by their 0-based lines.

    Those of complete conflicts, and others that stand alone; a line of seven ``=`` outside of
    conflicts is the underline of a heading.
    """
    lines = split_lines(text)
    rows = {row: sign for row, line in enumerate(lines) if (sign := marker(line)) and sign != THEIRS}
    rows |= {found[THEIRS]: THEIRS for found in _conflicts(lines)}
    return dict(sorted(rows.items()))


def answers(text: str, name: str = "the file") -> tuple[Answer, Answer]:
    """The file with every conflict decided for ours, and for theirs.

    Both are the same for a file without conflicts. :class:`BadInput` when a conflict is
    not closed.
    """
    lines = split_lines(text)
    conflicts = list(_conflicts(lines))
    opened = {row for row, line in enumerate(lines) if marker(line) == OURS}
    if opened - {found[OURS] for found in conflicts}:
        raise BadInput(
            f"{name} holds a conflict that is not closed",
            expected="<<<<<<<, ||||||| (optional), ======= and >>>>>>> in this order",
            try_="restore the missing marker, or resolve the conflict",
        )
    disputed = frozenset(row for found in conflicts for row in range(found[OURS], found[END] + 1))
    ours = {row for found in conflicts for row in range(found[OURS] + 1, found.get(BASE, found[THEIRS]))}
    theirs = {row for found in conflicts for row in range(found[THEIRS] + 1, found[END])}
    outside = set(range(len(lines))) - disputed
    kept = (sorted(outside | side) for side in (ours, theirs))
    first, second = (Answer("".join(lines[row] for row in rows), tuple(rows), disputed) for rows in kept)
    return first, second


def _conflicts(lines: Sequence[str]) -> Iterator[dict[str, int]]:
    """The complete conflicts by the rows of their markers; one that opens again is not complete."""
    found: dict[str, int] = {}
    for row, line in enumerate(lines):
        sign = marker(line)
        if sign == OURS:
            found = {OURS: row}
        elif found and sign == END:
            if THEIRS in found:
                yield found | {END: row}
            found = {}
        elif found and sign and sign not in found and THEIRS not in found:
            found[sign] = row


def _conflict(lines: Sequence[str], found: dict[str, int]) -> MarkedConflict:
    def part(start: int, end: int) -> str:
        return "\n".join(line.rstrip("\r\n") for line in lines[start + 1 : end])

    middle = found.get(BASE, found[THEIRS])
    rows = {"ours": found[OURS], "base": found.get(BASE), "theirs": found[END]}
    labels = {name: lines[row][8:].rstrip("\r\n") for name, row in rows.items() if row is not None}
    sides = part(middle, found[THEIRS]), part(found[OURS], middle), part(found[THEIRS], found[END])
    return MarkedConflict(*sides, labels, found[OURS], found[END])
