"""Reads a file with diff3 conflict markers as the two files it can become."""

from __future__ import annotations

import re
from dataclasses import dataclass

from npu_upgrade.ground.errors import BadInput

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True)
class Answer:
    """One way to resolve all conflicts of a file.

    ``rows[i]`` is the 0-based line number in the file of line ``i`` of ``text``;
    ``disputed`` holds the lines of the file that belong to conflicts, markers included.
    """

    text: str
    rows: tuple[int, ...]
    disputed: frozenset[int]


def split_lines(text: str) -> list[str]:
    """The lines of ``text`` as Python counts them, line ends kept."""
    return _LINE.findall(text)


def answers(text: str, name: str = "the file") -> tuple[Answer, Answer]:
    """The file with every conflict decided for ours, and for theirs.

    Both are the same for a file without conflicts. :class:`BadInput` when a conflict is
    not closed. Handles ``merge`` and ``diff3`` style markers.
    """
    lines = split_lines(text)
    sides: dict[str, list[int]] = {"ours": [], "theirs": []}
    disputed: set[int] = set()
    part = ""
    for row, line in enumerate(lines):
        marker = _next_part(line, part)
        if marker is not None or part:
            disputed.add(row)
        if marker is not None:
            part = marker
        elif part in sides:
            sides[part].append(row)
        elif not part:
            sides["ours"].append(row)
            sides["theirs"].append(row)
    if part:
        raise BadInput(
            f"{name} holds a conflict that is not closed",
            expected="<<<<<<<, ||||||| (optional), ======= and >>>>>>> in this order",
            try_="restore the missing marker, or resolve the conflict",
        )
    closed = frozenset(disputed)
    ours, theirs = (Answer("".join(lines[i] for i in rows), tuple(rows), closed) for rows in sides.values())
    return ours, theirs


def _next_part(line: str, part: str) -> str | None:
    """The part of a conflict that starts after ``line``; None when it is not a marker here."""
    sign, rest = line[:7], line[7:].rstrip("\r\n")
    if rest[:1] not in ("", " "):
        return None
    moves = {
        ("", "<<<<<<<"): "ours",
        ("ours", "|||||||"): "base",
        ("ours", "======="): "theirs",
        ("base", "======="): "theirs",
        ("theirs", ">>>>>>>"): "",
    }
    return moves.get((part, sign))
