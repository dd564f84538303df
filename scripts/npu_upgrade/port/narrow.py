"""Conflicts of a method put in as a whole, no larger than what the GPU side changed.

A conflict of three texts spans all that the NPU side has in another way. Of it the GPU side may have
changed a few statements only; the rest is as it was before, and nothing to decide on.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from npu_upgrade.code.sequences import Change, changes, patience
from npu_upgrade.code.statements import CONTINUES, Statement, nodes_of
from npu_upgrade.code.uses import defines, free_names, reads
from npu_upgrade.threeway.align import align_similar
from npu_upgrade.threeway.layout import as_lines
from npu_upgrade.threeway.pieces import Conflict, Piece, resolved, syntax_error
from npu_upgrade.threeway.trees import dump, parse_statement, statement_text

Step = tuple[str, str]
"""The names that a statement gives a value by one call, and what is called."""

_SMALLER = 0.7  # of the statements in a conflict: what makes it no smaller is left as it is
_NEAR = 6  # statements from a conflict on, that what is done in it may stand beside it
_FEW = 12  # statements of the NPU side that are shown beside a change of unclear place


def narrowed(pieces: Sequence[Piece]) -> list[Piece]:
    """``pieces`` with each conflict cut to the blocks that differ between base and theirs.

    What ours has beside them stays with either answer. A conflict stays as it is where it gets no smaller
    by it, before a branch of its last block, and where an answer would not be Python. A name more in an
    unpacking, behind the others, is no conflict: it comes into that of ours.
    """
    out: list[Piece] = []
    for number, piece in enumerate(pieces):
        rest = pieces[number + 1 :]
        parts = _parts(piece) if isinstance(piece, Conflict) and not _continues(rest) else None
        if parts is None or syntax_error([*out, *parts, *rest]) is not None:
            parts = [piece]
        out += parts
    return out


def with_same_steps(pieces: Sequence[Piece], theirs: Sequence[Statement]) -> list[Piece]:
    """``pieces`` with what stands beside a conflict in it where the conflict's theirs does that step, too.

    A step gives the same names a value by the same call: taken beside theirs it would run twice. What the
    whole of ``theirs`` has as it is stays outside, and so does what stands between, with either answer.
    """
    out = list(pieces)
    known = {one.key for one in theirs}
    place = 0
    while place < len(out):
        if isinstance(conflict := out[place], Conflict):
            for way in (-1, 1):
                steps = {*map(_step, conflict.theirs)} - {None, *map(_step, conflict.ours)}
                level = _level([*conflict.base, *conflict.ours, *conflict.theirs])
                at = _same_step(out, place, way, level, steps, known)
                wider = _wider(out, place, at) if at is not None else None
                if wider is not None and at is not None:
                    first = min(at, place)
                    out[first : max(at, place) + 1] = [wider]
                    conflict, place = wider, first
        place += 1
    return out


def with_definitions(
    pieces: Sequence[Piece], ours: Sequence[Statement], theirs: Sequence[Statement]
) -> list[Piece]:
    """``pieces`` with what gives the names a value that a conflict's theirs reads, and ours does not have.

    The GPU side has it as it was before, so that no change brings it. A call that the NPU side makes itself
    is not made once more.
    """
    out = list(pieces)
    known = free_names(ours) | free_names(theirs)
    for place, piece in enumerate(out):
        for _ in range(_NEAR if isinstance(piece, Conflict) else 0):
            conflict = out[place]
            assert isinstance(conflict, Conflict)
            there = resolved(out, "theirs")
            lost = (free_names(there) - known) & reads(one.key for one in conflict.theirs)
            first = next((n for n, one in enumerate(theirs) if one in conflict.theirs), 0)
            gives = next((one for one in reversed(theirs[:first]) if defines([one.key]) & lost), None)
            if gives is None or _assignment(gives) is None:
                break
            made = {name for one in there if _assignment(one) for name in _called(one)}
            if not made.isdisjoint(_called(gives)):
                break
            here = gives.shifted(_level(conflict.theirs) - gives.indent)
            more = replace(conflict, theirs=(here, *conflict.theirs))
            if syntax_error([*out[:place], more, *out[place + 1 :]]) is not None:
                break
            out[place] = more
    return out


def less_made_twice(pieces: Sequence[Piece], ours: Sequence[Statement]) -> tuple[list[Piece], list[str]]:
    """``pieces`` without the calls brought in that ours makes itself, where nothing reads what they give.

    What such a call gives was for something that did not come. With them goes a header of which nothing is
    left. Returns the calls left out, too.
    """
    own = {one.key for one in ours}
    made = {name for one in ours for name in _called(one) if name.startswith("self.")}
    read = [reads(one.key for one in resolved(pieces, side)) for side in ("ours", "theirs")]
    out, gone = list(pieces), list[str]()
    for number in range(len(out) - 1, -1, -1):
        one = out[number]
        if not isinstance(one, Statement) or one.key in own:
            continue
        given = _assignment(one)
        if given is None or not isinstance(given.value, ast.Call):
            continue
        names = all(isinstance(target, ast.Name) for target in given.targets)
        called = ast.unparse(given.value.func)
        if not names or called not in made or any(defines([one.key]) & side for side in read):
            continue
        header = out[number - 1] if number and _is_empty_without(out, number) else None
        first = number - (isinstance(header, Statement) and header.key not in own)
        left = [*out[:first], *out[number + 1 :]]
        if syntax_error(left) is None:
            out = left
            gone.append(f"{called}()")
    return out, gone


def _is_empty_without(pieces: Sequence[Piece], number: int) -> bool:
    """Whether a statement is all that stands below the header before it."""
    here, above = pieces[number], pieces[number - 1]
    after = pieces[number + 1] if number + 1 < len(pieces) else None
    if not isinstance(here, Statement) or not isinstance(above, Statement) or isinstance(after, Conflict):
        return False
    alone = after is None or after.indent < here.indent
    return above.is_header and above.indent < here.indent and alone


def _called(statement: Statement) -> set[str]:
    """What a statement calls."""
    return {ast.unparse(node.func) for node in nodes_of(statement.key) if isinstance(node, ast.Call)}


def _assignment(statement: Statement) -> ast.Assign | None:
    tree = parse_statement(statement.key) if " = " in statement.key else None
    return tree if isinstance(tree, ast.Assign) else None


def _same_step(
    pieces: Sequence[Piece], place: int, way: int, level: int, steps: Collection[Step | None], known: set[str]
) -> int | None:
    """Where one of the steps stands before (``way`` -1) or behind (1) a place, in its block and near."""
    number = place + way
    while 0 <= number < len(pieces) and abs(number - place) <= _NEAR:
        one = pieces[number]
        if not isinstance(one, Statement) or one.indent < level:
            break
        if one.indent == level and one.key not in known and _step(one) in steps:
            return number
        number += way
    return None


def _wider(pieces: Sequence[Piece], place: int, at: int) -> Conflict | None:
    """The conflict at a place with a statement of ours that stands near it.

    None where that is no Python, or what is between them reads what the statement gives.
    """
    conflict, step = pieces[place], pieces[at]
    assert isinstance(conflict, Conflict)
    assert isinstance(step, Statement)
    first, last = min(at, place), max(at, place)
    between = tuple(one for one in pieces[first + 1 : last] if isinstance(one, Statement))
    sides = (conflict.base, conflict.ours, conflict.theirs)
    if at < place and reads(one.key for one in between) & defines([step.key]):
        return None  # it is between the two for what the step gives
    if at < place:
        base, ours, theirs = ((*between, *side) for side in sides)
        ours = (step, *ours)
    else:
        base, ours, theirs = ((*side, *between) for side in sides)
        ours = (*ours, step)
    wider = Conflict(base, ours, theirs, conflict.reason)
    return wider if syntax_error([*pieces[:first], wider, *pieces[last + 1 :]]) is None else None


def _step(statement: Statement) -> Step | None:
    given = _assignment(statement)
    if given is None or not isinstance(given.value, ast.Call):
        return None
    return ", ".join(map(ast.unparse, given.targets)), ast.unparse(given.value.func)


def _continues(rest: Sequence[Piece]) -> bool:
    """Whether what follows is a branch, which would be one of what a part puts before it."""
    after = rest[0] if rest else None
    return isinstance(after, Statement) and CONTINUES.match(after.key) is not None


def _parts(conflict: Conflict) -> list[Piece] | None:
    base, ours, theirs = conflict.base, conflict.ours, conflict.theirs
    out: list[Piece] = []
    place = 0
    pairs = align_similar(base, ours)
    for change in _changed_blocks(base, theirs):
        old, new = base[change.a0 : change.a1], theirs[change.b0 : change.b1]
        if unpacked := _unpacked(old, new, ours[place:]):
            at, statement = unpacked
            out += [*ours[place : place + at], statement]
            place += at + 1
            continue
        start, end = _counterpart(change, pairs, ours, place, _level([*old, *new]))
        _contest(out, ours[place:start], Conflict(old, ours[start:end], new, conflict.reason))
        place = end
    out += ours[place:]
    size = sum(_size(piece) for piece in out if isinstance(piece, Conflict))
    return out if size < _SMALLER * _size(conflict) else None


def _contest(out: list[Piece], between: Sequence[Statement], one: Conflict) -> None:
    """Add a conflict behind what is between it and the one before it; both are one where nothing is."""
    if not between and out and isinstance(last := out[-1], Conflict):
        sides = ((*getattr(last, side), *getattr(one, side)) for side in ("base", "ours", "theirs"))
        out[-1] = Conflict(*sides, one.reason)
    else:
        out += [*between, one]


def _size(conflict: Conflict) -> int:
    return len(conflict.base) + len(conflict.ours) + len(conflict.theirs)


def _changed_blocks(base: Sequence[Statement], theirs: Sequence[Statement]) -> Iterator[Change]:
    """What differs, in whole blocks of the outermost depth."""
    top = _level([*base, *theirs])
    old, new = (_starts(side, top) for side in (base, theirs))
    keys = [
        [tuple((one.key, one.indent) for one in side[a:b]) for a, b in itertools.pairwise(starts)]
        for side, starts in ((base, old), (theirs, new))
    ]
    for one in changes(patience(*keys), *map(len, keys)):
        yield Change(old[one.a0], old[one.a1], new[one.b0], new[one.b1])


def _starts(side: Sequence[Statement], top: int) -> list[int]:
    """Where the blocks of a text begin, and its end. What belongs to a block before the text is one."""
    begins = [
        number
        for number, one in enumerate(side)
        if not number or (one.indent <= top and not CONTINUES.match(one.key))
    ]
    return [*begins, len(side)]


def _level(side: Sequence[Statement]) -> int:
    return min((one.indent for one in side), default=0)


def _counterpart(
    change: Change, pairs: Sequence[tuple[int, int]], ours: Sequence[Statement], place: int, level: int
) -> tuple[int, int]:
    """The statements of ours, from ``place`` on, that stand where the change would be."""
    low = max([place, *(j + 1 for i, j in pairs if i < change.a0)])
    high = max(low, min([len(ours), *(j for i, j in pairs if i >= change.a1)]))
    if high - low <= _FEW:
        return low, high
    inside = [j for i, j in pairs if change.a0 <= i < change.a1 and low <= j < high]
    if inside:
        start, end = min(inside), max(inside) + 1
        while start > low and not _begins(ours[start], level):
            start -= 1
        while end < high and not _begins(ours[end], level):
            end += 1
        return start, end
    before = max((i for i, j in pairs if i < change.a0), default=-len(ours))
    after = min((i for i, j in pairs if i >= change.a1), default=2 * len(ours))
    free = [n for n in range(low, high + 1) if n == len(ours) or _begins(ours[n], level)]
    if not free:
        return high, high
    near = free[0] if change.a0 - before < after - change.a1 else free[-1]
    return near, near


def _begins(statement: Statement, level: int) -> bool:
    """Whether something of this depth may stand before a statement."""
    return statement.indent <= level and CONTINUES.match(statement.key) is None


def _unpacked(
    old: Sequence[Statement], new: Sequence[Statement], ours: Sequence[Statement]
) -> tuple[int, Statement] | None:
    """The unpacking of ours with the names that theirs has more, and its place in ours."""
    if not len(old) == len(new) == 1:
        return None
    before, after = _unpacking(old[0]), _unpacking(new[0])
    if not before or not after or before[1] != after[1] or after[0][: len(before[0])] != before[0]:
        return None
    found = [(n, mine[0]) for n, one in enumerate(ours) if (mine := _unpacking(one)) and mine[1] == after[1]]
    if len(found) != 1:
        return None
    number, names = found[0]
    more = [name for name in after[0][len(before[0]) :] if name not in names]
    here = ours[number]
    tree = parse_statement(here.key)
    assert isinstance(tree, ast.Assign)
    target = tree.targets[0]
    assert isinstance(target, ast.Tuple)
    target.elts += [ast.Name(name, ast.Store()) for name in more]
    key = statement_text(tree)
    lines = _with_lines(here, more) or as_lines(key, here.indent, (here.code,))
    return number, replace(here, key=key, lines=lines)


def _with_lines(here: Statement, names: Sequence[str]) -> tuple[str, ...] | None:
    """The lines of an unpacking that has one name a line, with more of them."""
    close = next((n for n, line in enumerate(here.lines) if line.startswith((") =", "] ="))), None)
    if not close or not here.lines[close - 1].partition("#")[0].rstrip().endswith(","):
        return None
    last = here.lines[close - 1]
    depth = last[: len(last) - len(last.lstrip())]
    return (*here.lines[:close], *(f"{depth}{name}," for name in names), *here.lines[close:])


def _unpacking(statement: Statement) -> tuple[list[str], str] | None:
    """The names that an unpacking gives values to, and what is unpacked."""
    given = _assignment(statement)
    if given is None or len(given.targets) != 1:
        return None
    target = given.targets[0]
    if not isinstance(target, ast.Tuple) or not all(isinstance(one, ast.Name) for one in target.elts):
        return None
    return [one.id for one in target.elts if isinstance(one, ast.Name)], dump(given.value)
