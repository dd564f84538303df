"""How far a statement of one side moves because the other side re-indented its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npu_upgrade.code.statements import Statement


def inherited_shifts(side: Sequence[Statement], known: Mapping[int, int]) -> list[int]:
    """The shift in columns of each statement of ``side``.

    ``known`` holds the shift of those that the other side has too. A statement that only
    this side has moves with both its neighbours in the block when they agree (with the next
    one where it opens the block), else with the header above it.
    """
    headers = parents(side)
    shifts: list[int] = []
    for number in range(len(side)):
        if number in known:
            shifts.append(known[number])
            continue
        before, after = (_sibling(side, known, number, step) for step in (-1, 1))
        if after is not None and (before is None or known[before] == known[after]):
            shifts.append(known[after])
        else:
            header = headers[number]
            shifts.append(shifts[header] if header is not None else 0)
    return shifts


def parents(side: Sequence[Statement]) -> list[int | None]:
    """The header each statement stands under (its index), None at the top."""
    found: list[int | None] = []
    open_headers: list[int] = []
    for number, statement in enumerate(side):
        while open_headers and side[open_headers[-1]].indent >= statement.indent:
            open_headers.pop()
        found.append(open_headers[-1] if open_headers else None)
        open_headers.append(number)
    return found


def headers(above: Sequence[int | None], number: int) -> list[int]:
    """The headers that a statement stands below, the nearest first; ``above`` is of :func:`parents`."""
    found: list[int] = []
    header = above[number]
    while header is not None:
        found.append(header)
        header = above[header]
    return found


def _sibling(side: Sequence[Statement], known: Mapping[int, int], start: int, step: int) -> int | None:
    """The nearest statement in the same block, in one direction, whose shift is known."""
    indent = side[start].indent
    number = start + step
    while 0 <= number < len(side) and side[number].indent >= indent:
        if side[number].indent == indent and number in known:
            return number
        number += step
    return None


def agreed_depth(
    base: Sequence[Statement],
    ours: Sequence[Statement],
    theirs: Sequence[Statement],
    in_ours: Mapping[int, int],
    in_theirs: Mapping[int, int],
) -> list[Statement]:
    """``base`` at the depth that both sides have, where they have it under one header.

    Both then moved it for one reason, and that move is no change of either side.
    """
    headers = parents(ours), parents(theirs)
    of_ours = {o: i for i, o in in_ours.items()}
    out = list(base)
    for i, o in sorted(in_ours.items()):
        t = in_theirs.get(i)
        if t is None or ours[o].indent != theirs[t].indent or ours[o].indent == base[i].indent:
            continue
        mine, other = headers[0][o], headers[1][t]
        if mine is None or other is None or ours[mine].key != theirs[other].key:
            continue
        above = of_ours.get(mine)
        # Under a header that each side moved for its own reason, the statement moved for both.
        if above is None or out[above].indent == ours[mine].indent:
            out[i] = base[i].shifted(ours[o].indent - base[i].indent)
    return out
