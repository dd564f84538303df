"""Upstream's pairs of which a merge took one half: two calls with a new argument, a begin and its end.

And ours: what is done before a return, which a new return of upstream's does not do.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from npu_upgrade.code.statements import Statement
from npu_upgrade.code.uses import defines, reads
from npu_upgrade.threeway.blocks import whole_block
from npu_upgrade.threeway.pieces import Conflict, Flag, Piece, resolved
from npu_upgrade.threeway.shifts import parents
from npu_upgrade.threeway.trees import parse_statement

_OPPOSITES = (
    *({"begin", "end"}, {"start", "end"}, {"start", "stop"}, {"start", "finish"}, {"enter", "exit"}),
    *({"open", "close"}, {"acquire", "release"}, {"push", "pop"}, {"lock", "unlock"}, {"enable", "disable"}),
    *({"attach", "detach"}, {"register", "unregister"}, {"save", "restore"}, {"setup", "teardown"}),
    *({"pause", "resume"}, {"suspend", "resume"}, {"pre", "post"}, {"before", "after"}),
    *({"preprocess", "postprocess"}, {"prepare", "finalize"}, {"prepare", "complete"}, {"prepare", "finish"}),
)
_RETURN = "return "


class _Call(NamedTuple):
    """A call in a statement: the ``arguments`` by name or place, None where it passes on what it got."""

    name: str
    arguments: frozenset[str] | None
    statement: Statement


def parted(
    base: Sequence[Statement], ours: Sequence[Statement], theirs: Sequence[Statement], pieces: Sequence[Piece]
) -> Iterator[Flag]:
    """A flag for each half of a pair that upstream changed and the merge left as it was.

    What a conflict holds is for a person to decide, and no half.
    """
    merged = [piece for piece in pieces if isinstance(piece, Statement)]
    asked = [s for piece in pieces if isinstance(piece, Conflict) for s in (*piece.ours, *piece.theirs)]
    before, had, after, now = map(_by_name, (base, ours, theirs, merged))
    known = {statement.key for side in (base, ours) for statement in side}
    fresh = [one for one in merged if one.key not in known]
    halves = (
        *_arguments(before, after, now),
        *_opposites(had, after, now, {call.name for one in asked for call in _calls(one)}),
        *_resets(ours, theirs, [*merged, *asked]),
        *_unread(fresh, [*merged, *asked], theirs),
        *_returns(base, ours, merged),
    )
    # a half may be one in two ways: one of them says it
    yield from {(flag.ours, flag.theirs): flag for flag in reversed(halves)}.values()


def _arguments(
    base: dict[str, list[_Call]], theirs: dict[str, list[_Call]], merged: dict[str, list[_Call]]
) -> Iterator[Flag]:
    """Where upstream gave an argument to all its calls of one function, or took it, and some have it."""
    for name, calls in merged.items():
        before, after = (_common(side.get(name, [])) for side in (base, theirs))
        if len(calls) < 2 or before is None or after is None:
            continue
        for argument in sorted((after[0] - before[1]) | (before[0] - after[1])):
            new = argument in after[0]
            old = [one for one in calls if one.arguments is not None and (argument in one.arguments) != new]
            if not 0 < len(old) < len(calls):
                continue
            what = "an argument that" if argument.isdigit() else f"{argument}, which"
            told = f"lacks {what} upstream gave to" if new else f"has {what} upstream took from"
            reason = f"this call of {name} {told} all of them"
            text = theirs[name][0].statement.code
            for one in old:
                yield Flag("parted", reason, "", one.statement.code, text)


def _common(calls: Sequence[_Call]) -> tuple[frozenset[str], frozenset[str]] | None:
    """The arguments that all of several calls have, and those that any has; None where they are unknown."""
    known = [call.arguments for call in calls if call.arguments is not None]
    if len(known) < 2 or len(known) < len(calls):
        return None
    return frozenset.intersection(*known), frozenset().union(*known)


def _opposites(
    ours: dict[str, list[_Call]],
    theirs: dict[str, list[_Call]],
    merged: dict[str, list[_Call]],
    asked: set[str],
) -> Iterator[Flag]:
    """Where upstream calls two functions that belong together, ours neither, and the merge one of them."""
    fresh = [name for name in theirs if name not in ours]
    for pair in combinations(fresh, 2):
        here = [name for name in pair if name in merged]
        missing = next((name for name in pair if name not in merged), None)
        if len(here) == 1 and missing not in asked and missing and _belong(*pair):
            reason = f"upstream calls {missing} with {here[0]}, and only {here[0]} is called here"
            half, other = merged[here[0]][0].statement.code, theirs[missing][0].statement.code
            yield Flag("parted", reason, "", half, other)


def _resets(
    ours: Sequence[Statement], theirs: Sequence[Statement], left: Sequence[Statement]
) -> Iterator[Flag]:
    """Where upstream sets a field of the object and sets it back, and the merge took one of the two."""
    if half := _half_set(ours, theirs, left):
        has = {one.key for one in left}
        reason = f"upstream sets {' and '.join(half)} back, which is only set here"
        parts = [(key in has, one.code) for each in half.values() for key, one in each.items()]
        taken, lost = ([code for here, code in parts if here == which] for which in (True, False))
        yield Flag("parted", reason, "", taken[0], "\n".join(lost))


def _half_set(
    ours: Sequence[Statement], theirs: Sequence[Statement], left: Sequence[Statement]
) -> dict[str, dict[str, Statement]]:
    """The fields that upstream sets more than once to a constant and ours never, where the merge took a part.

    Each with the statements that set it, by their keys.
    """
    had, has = ({one.key for one in side} for side in (ours, left))
    of_field: dict[str, dict[str, Statement]] = {}
    for statement in theirs:
        if statement.key not in had and (field := _set_to_constant(statement.key)):
            of_field.setdefault(field, {})[statement.key] = statement
    return {field: each for field, each in of_field.items() if 0 < len(each.keys() & has) < len(each)}


def with_resets(
    base: Sequence[Statement], ours: Sequence[Statement], theirs: Sequence[Statement], pieces: Sequence[Piece]
) -> tuple[list[Statement], list[Statement]]:
    """``ours`` with the blocks that set a field back where the merge sets it again, and these blocks.

    Ours had cut out both; what sets it may be asked by a conflict. What only upstream's new text has is not
    put anywhere, nor where the statement before it is not the same in base and ours.
    """
    has = resolved(pieces, "theirs")
    half = _half_set(ours, theirs, has)
    lost = {key for each in half.values() for key in each} - {one.key for one in has}
    own = {one.key for one in ours}
    grown, put = list(ours), list[Statement]()
    for number, statement in enumerate(base):
        if statement.key not in lost or statement in put:
            continue
        block = _block_of(base, number, lost)
        text = [base[one] for one in block]
        place = _behind(base, block.start, grown)
        if place is None or not own.isdisjoint(one.key for one in text):
            return list(ours), []
        grown[place:place] = text
        put += text
    return (grown, put) if lost <= {one.key for one in put} else (list(ours), [])


def fields_set(statements: Sequence[Statement]) -> list[str]:
    """The fields of the object that some statements set to a constant."""
    return [*dict.fromkeys(filter(None, (_set_to_constant(one.key) for one in statements)))]


def _block_of(base: Sequence[Statement], number: int, lost: set[str]) -> range:
    """A lost statement with the header above it, where all below that is lost."""
    above = parents(base)
    block = whole_block(base, number)
    while (header := above[block.start]) is not None:
        below = whole_block(base, header)
        if not all(base[one].key in lost or one in block for one in below[1:]):
            break
        block = below
    return block


def _behind(base: Sequence[Statement], number: int, ours: Sequence[Statement]) -> int | None:
    """Where in ours a statement of base belongs: behind the one before it in its block, if that is sure."""
    top = base[number].indent
    before = next((n for n in range(number - 1, -1, -1) if base[n].indent <= top), None)
    if before is None or base[before].indent < top:
        return None
    key = base[before].key
    here = [n for n, one in enumerate(ours) if one.key == key]
    if len(here) != 1 or sum(one.key == key for one in base) != 1 or ours[here[0]].indent != top:
        return None
    above = {
        side[header].key if (header := parents(side)[at]) is not None else ""
        for side, at in ((base, before), (ours, here[0]))
    }
    return whole_block(ours, here[0]).stop if len(above) == 1 else None


@functools.lru_cache(maxsize=8192)
def _set_to_constant(key: str) -> str:
    """The field of self that a statement gives a constant, by assigning or by a call such as ``fill_(0)``."""
    tree, target = parse_statement(key), None
    if isinstance(tree, ast.Assign) and isinstance(tree.value, ast.Constant):
        target = tree.targets[0]
    elif isinstance(tree, ast.Expr) and isinstance(call := tree.value, ast.Call) and not call.keywords:
        in_place = isinstance(call.func, ast.Attribute) and call.func.attr in ("fill_", "zero_")
        if in_place and all(isinstance(one, ast.Constant) for one in call.args):
            target = call.func.value
    named = ast.unparse(target) if isinstance(target, ast.Attribute) else ""
    return named if named.startswith("self.") else ""


def _unread(
    fresh: Sequence[Statement], left: Sequence[Statement], theirs: Sequence[Statement]
) -> Iterator[Flag]:
    """Where upstream's new call gives a name a value, and what reads it in upstream was left out."""
    known = reads(one.key for one in left)
    for statement in fresh:
        tree = parse_statement(statement.key)
        if not isinstance(tree, ast.Assign) or not isinstance(tree.value, ast.Call):
            continue
        if not all(isinstance(target, ast.Name) for target in tree.targets):
            continue  # of several values some may be for nothing
        lost = (defines([statement.key]) & reads(one.key for one in theirs)) - known
        known |= lost
        for name in sorted(lost):
            reader = next(one for one in theirs if name in reads([one.key]))
            reason = f"upstream gives {name} a value here for what was left out: nothing reads it"
            yield Flag("parted", reason, "", statement.code, reader.code)


def _returns(
    base: Sequence[Statement], ours: Sequence[Statement], merged: Sequence[Statement]
) -> Iterator[Flag]:
    """Where upstream returns early now, and ours has a step of its own right before another early return."""
    known, above = {statement.key for statement in base}, parents(ours)
    own: list[Statement] = []
    for number, last in enumerate(ours):
        header = above[number]
        if last.key.startswith(_RETURN) and header is not None and above[header] is not None:
            start = max((n for n in range(header + 1, number) if above[n] == header), default=number)
            own += [one for one in ours[start:number] if one.key not in known]
    had = Counter(one.key for one in ours)
    if not own:
        return
    new, places, around = [], [], parents(merged)
    for number, statement in enumerate(merged):
        had[statement.key] -= 1
        if statement.key.startswith(_RETURN) and had[statement.key] < 0:
            new.append(statement.code)
            header = around[number]
            places += [merged[header].key.rstrip(":")] if header else []  # the first is the method's own
    if new:
        where = f" below `{'`, `'.join(dict.fromkeys(places))}`" if places else " here"
        reason = f"upstream returns{where} now, without what ours does before it returns elsewhere"
        yield Flag("parted", reason, "", own[0].code, "\n".join(new))


def _belong(one: str, other: str) -> bool:
    """Whether two names differ in one word, and these words are opposites."""
    words, others = (name.rpartition(".")[2].strip("_").split("_") for name in (one, other))
    if len(words) != len(others):
        return False
    apart = [{a, b} for a, b in zip(words, others, strict=True) if a != b]
    return len(apart) == 1 and apart[0] in _OPPOSITES


def _by_name(statements: Iterable[Statement]) -> dict[str, list[_Call]]:
    found: dict[str, list[_Call]] = {}
    for statement in statements:
        for call in _calls(statement):
            found.setdefault(call.name, []).append(call)
    return found


def _calls(statement: Statement) -> list[_Call]:
    return [_Call(name, arguments, statement) for name, arguments in _calls_of(statement.key)]


@functools.lru_cache(maxsize=8192)
def _calls_of(key: str) -> list[tuple[str, frozenset[str] | None]]:
    tree = parse_statement(key)
    found = []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call):
            starred = any(isinstance(one, ast.Starred) for one in node.args)
            names = [one.arg for one in node.keywords]
            places = map(str, range(len(node.args)))
            known = None if starred or None in names else frozenset([*places, *filter(None, names)])
            found.append((ast.unparse(node.func), known))
    return found
