"""Finds what a person put in the place of each conflict, by comparing two texts of a file.

Knows only lines and conflicts; whether the lines are Python is no matter here. Where the
edits around a conflict leave more than one reading, no answer is found.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from npu_upgrade.code.conflict_text import Item, MarkedConflict, marker, scan


@dataclass(frozen=True, slots=True)
class Region:
    """What replaced a conflict; ``text`` is None when that cannot be told, for ``reason``."""

    conflict: MarkedConflict
    text: str | None
    reason: str = ""


def resolved_regions(preimage: str, postimage: str) -> list[Region]:
    """The regions of ``postimage`` that replaced conflicts of ``preimage``; open ones are left out."""
    whole, after = scan(preimage), scan(postimage)
    rows, places = _told(whole), _told(after)
    before, told = [whole[row] for row in rows], [after[row] for row in places]
    forward = _mates(before, told)
    size, other = len(before) - 1, len(told) - 1
    backward = {size - i: other - j for i, j in _mates(before[::-1], told[::-1]).items()}
    found = []
    for number, item in enumerate(before):
        if isinstance(item, MarkedConflict) and number not in forward:
            gap = _gap(number, before, forward, len(told))
            sure = gap is not None and gap == _gap(number, before, backward, len(told))
            blanks = rows[number] - rows[number - 1] - 1 if number else rows[number]
            found.append(_region(item, gap if sure else None, blanks, after, places))
    return found


def _mates(a: Sequence[Hashable], b: Sequence[Hashable]) -> dict[int, int]:
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return {i + k: j + k for i, j, size in blocks for k in range(size)}


def _gap(number: int, before: Sequence[Item], mates: dict[int, int], end: int) -> tuple[int, int] | None:
    """The range between the neighbours of a conflict; None when a neighbour was changed."""
    low = mates.get(number - 1) if number else -1
    high = mates.get(number + 1) if number + 1 < len(before) else end
    return None if low is None or high is None else (low + 1, high)


def _region(
    conflict: MarkedConflict,
    gap: tuple[int, int] | None,
    blanks: int,
    after: Sequence[Item],
    places: Sequence[int],
) -> Region:
    """The lines of ``after`` in ``gap``, less the ``blanks`` lines that stood before the conflict."""
    if gap is None:
        return Region(conflict, None, "the lines next to it were edited too, or stand in several places")
    low = places[gap[0] - 1] + 1 if gap[0] else 0
    high = places[gap[1]] if gap[1] < len(places) else len(after)
    lines = after[low:high]
    while blanks and lines and _is_blank(lines[0]):
        blanks, lines = blanks - 1, lines[1:]
    if any(isinstance(item, MarkedConflict) or marker(item) for item in lines):
        return Region(conflict, None, "conflict markers are left in its place")
    return Region(conflict, "\n".join(str(line) for line in lines).rstrip())


def _told(items: Sequence[Item]) -> list[int]:
    """The places of the items that say something."""
    return [number for number, item in enumerate(items) if not _is_blank(item)]


def _is_blank(item: Item) -> bool:
    return isinstance(item, str) and not item.strip()
