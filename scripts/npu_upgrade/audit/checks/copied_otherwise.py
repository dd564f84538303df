"""Copies that decide, reset, give or order otherwise than what they are copies of, then and now."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.checks.parity_conditions import sense_of
from npu_upgrade.audit.copies import Copy
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.parity.lost import EMPTY
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.tables import cut

ABOUT = "conditions, resets, arguments and order of steps of copied methods that are not as upstream has them"


@dataclass(frozen=True)
class Other:
    """One place: ``kind`` of difference, what it is about, and both sides as text."""

    kind: str
    subject: str
    ours: str
    theirs: str
    line: int


def check(world: World) -> Iterator[Finding]:
    for copy in world.copies:
        ours, theirs = _parsed(copy.unit.source), _parsed(copy.target.source if copy.target else "")
        if ours is None or theirs is None:
            continue
        # What upstream said in any version is stale at most, which another check tells.
        known = {text for statement in copy.known for text in _texts(statement)}
        found = (*_senses(ours, theirs, known), *_resets(ours, theirs, copy), *_emptied(ours, theirs))
        for other in (*found, *_moved(ours, theirs)):
            yield _finding(copy, other)


def _parsed(source: str) -> Function | None:
    tree = ast.parse(textwrap.dedent(source))
    return next((node for node in tree.body if isinstance(node, Function)), None)


def _texts(statement: str) -> Iterator[str]:
    """The conditions in one statement, in one spelling."""
    try:
        tree = ast.parse(statement if statement.rstrip()[-1:] != ":" else f"{statement} pass")
    except SyntaxError:
        return
    yield from (
        sense_of(node) for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_condition(node)
    )


def _is_condition(node: ast.expr) -> bool:
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negated or isinstance(node, (ast.BoolOp, ast.Compare, ast.Attribute, ast.Name))


def _conditions(node: Function) -> Iterator[tuple[str, ast.expr]]:
    """What a condition is for (the first thing under it, or the name it is given to), and the condition."""
    for inner in walk(node):
        if isinstance(inner, (ast.If, ast.While)):
            yield unparse(inner.body[0]), inner.test
        elif isinstance(inner, ast.IfExp):
            yield unparse(inner.body), inner.test
        elif isinstance(inner, ast.Assign) and isinstance(inner.value, (ast.BoolOp, ast.Compare)):
            yield f"{unparse(inner.targets[0])} =", inner.value
        elif isinstance(inner, ast.keyword) and isinstance(inner.value, (ast.BoolOp, ast.Compare)):
            yield f"{inner.arg}=", inner.value


def _senses(ours: Function, theirs: Function, known: set[str]) -> Iterator[Other]:
    """Conditions before the same step that are the opposite of upstream's, in whole or in an operand."""
    mine, others = list(_conditions(ours)), list(_conditions(theirs))
    said = {sense_of(test) for _, test in others} | known
    for step, test in others:
        same = [other for at, other in mine if at == step]
        if sense_of(test) in map(sense_of, same):
            continue
        turned = (other for other in same if sense_of(other) not in said and _is_inverted(other, test))
        if other := next(turned, None):
            yield Other("inverted", cut(step, 60), unparse(other), unparse(test), other.lineno)


def _is_inverted(one: ast.expr, other: ast.expr) -> bool:
    """Whether some operands say the opposite, and all others the same."""
    if sense_of(one) == sense_of(other, negated=True):
        return True
    if not (isinstance(one, ast.BoolOp) and isinstance(other, ast.BoolOp) and type(one.op) is type(other.op)):
        return False
    left, right = sorted(map(sense_of, one.values)), sorted(map(sense_of, other.values))
    turned = {sense_of(value, negated=True) for value in other.values}
    differ = set(left) - set(right)
    return len(left) == len(right) and bool(differ) and differ <= turned


def _resets(ours: Function, theirs: Function, copy: Copy) -> Iterator[Other]:
    """Attributes that upstream clears after use and the copy only uses."""
    mine = {name for name, _ in _cleared(ours)}
    stored = {
        unparse(node)
        for node in walk(ours)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    }
    text = unparse(ours)
    for name, statement in _cleared(theirs):
        was_there = unparse(statement) in copy.origin or unparse(statement) in {s.key for s in copy.base}
        if was_there and name not in mine | stored and f"{name}" in text:
            yield Other("not-reset", name, f"{name} is used", unparse(statement), ours.lineno)
    kept, called = {name for name, _ in _done_with(ours)}, _called(ours)
    for name, statement in _done_with(theirs):
        if name not in kept and name in called:
            yield Other("not-reset", name, f"{name} is called", unparse(statement), ours.lineno)


def _cleared(node: Function) -> Iterator[tuple[str, ast.Assign]]:
    for inner in walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Attribute):
            name = unparse(inner.targets[0])
            if name.startswith("self.") and unparse(inner.value) in EMPTY:
                yield name, inner


def _done_with(node: Function) -> Iterator[tuple[str, ast.Assign]]:
    """Local names that are emptied after what they hold was called."""
    called = _called(node)
    for inner in walk(node):
        target = inner.targets[0] if isinstance(inner, ast.Assign) else None
        name = target.id if isinstance(target, ast.Name) else ""
        after = name in called and isinstance(inner, ast.Assign) and min(called[name]) < inner.lineno
        if after and unparse(inner.value) in EMPTY:
            yield name, inner


def _called(node: Function) -> dict[str, list[int]]:
    """Names that are called, with the lines of the calls."""
    found: dict[str, list[int]] = {}
    for inner in walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            found.setdefault(inner.func.id, []).append(inner.lineno)
    return found


def _emptied(ours: Function, theirs: Function) -> Iterator[Other]:
    """Keywords of the same call that upstream gives something and the copy gives nothing."""
    mine, others = _calls(ours), _calls(theirs)
    for name in mine.keys() & others.keys():
        if len(mine[name]) != 1 or len(others[name]) != 1:
            continue
        given = {k.arg: unparse(k.value) for k in others[name][0].keywords if k.arg}
        for keyword in mine[name][0].keywords:
            value, theirs_ = unparse(keyword.value), given.get(keyword.arg or "", "")
            if value in EMPTY and theirs_ and theirs_ not in EMPTY and theirs_ in _names(ours):
                yield Other("emptied", f"{name}({keyword.arg}=)", value, theirs_, keyword.value.lineno)


def _moved(ours: Function, theirs: Function) -> Iterator[Other]:
    """Steps that stand before one that upstream has before them: the fewest that would have to move."""
    mine, others = _steps(ours), _steps(theirs)
    both = [name for name in mine if name in others]
    rank = {name: number for number, name in enumerate(name for name in others if name in mine)}
    kept = _longest_rising([rank[name] for name in both])
    for number, name in enumerate(both):
        if rank[name] in kept:
            continue
        passed = [one for one in both[:number] if rank[one] in kept and rank[one] > rank[name]]
        before = [one for one in both[number + 1 :] if rank[one] in kept and rank[one] < rank[name]]
        related = (one for one in (*passed, *before[::-1]) if _touch(others[name], others[one]))
        if other := next(related, None):
            place = "after" if other in passed else "before"
            theirs_ = f"{name} {'before' if place == 'after' else 'after'} {other}"
            yield Other("moved", name, f"{place} {other}", theirs_, mine[name].lineno)


def _steps(node: Function) -> dict[str, ast.stmt]:
    """The calls that stand as statements or give a statement its value, of those that are made once."""
    found: dict[str, list[ast.stmt]] = {}
    for inner in walk(node):
        if isinstance(inner, (ast.Expr, ast.Assign)) and isinstance(inner.value, ast.Call):
            found.setdefault(unparse(inner.value.func), []).append(inner)
    once = {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1}
    return dict(sorted(once.items(), key=lambda item: item[1].lineno))


def _longest_rising(numbers: list[int]) -> set[int]:
    """The longest part of these numbers that rises."""
    best: list[list[int]] = []
    for number in numbers:
        before = max((one for one in best if one[-1] < number), key=len, default=[])
        best.append([*before, number])
    return set(max(best, key=len, default=[]))


def _touch(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether the order of two steps can matter: one changes something in place, and the other may see it."""
    pairs = [(one, other), (other, one)]
    seen = [there for change, there in pairs if isinstance(change, ast.Expr)]
    return bool(seen) and (bool(_names(one) & _names(other) - {"self"}) or any(map(_of_self, seen)))


def _of_self(step: ast.stmt) -> bool:
    """Whether it calls a method of the same object, which may read anything of it."""
    called = getattr(getattr(step, "value", None), "func", None)
    return isinstance(called, ast.Attribute) and unparse(called.value) == "self"


def _names(node: ast.AST) -> set[str]:
    return {unparse(inner) for inner in walk(node) if isinstance(inner, (ast.Name, ast.Attribute))}


def _calls(node: Function) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            found.setdefault(unparse(inner.func), []).append(inner)
    return found


_WHAT = {
    "inverted": "decides about {subject} by {ours}, where {upstream} has {theirs}",
    "not-reset": "does not clear {subject}, as {upstream} does",
    "moved": "has {subject} {ours}, where {upstream} has {theirs}",
    "emptied": "gives {subject} {ours}, where {upstream} gives {theirs}",
}


def _finding(copy: Copy, other: Other) -> Finding:
    what = _WHAT[other.kind].format(
        subject=other.subject,
        ours=cut(other.ours, 80),
        theirs=cut(other.theirs, 80),
        upstream=copy.upstream_name,
    )
    assert copy.target
    return Finding(
        kind=other.kind,
        owner=copy.unit.owner,
        subject=f"{other.subject} in {copy.unit.name}: {cut(other.theirs, 60)}",
        what=f"{copy.unit.qualname} {what}",
        here=Side("vllm-omni", copy.path, copy.unit.start + other.line, cut(other.ours, 100)),
        there=Side("vllm-ascend", copy.upstream_path, copy.target.start + 1, cut(other.theirs, 100)),
        incident="P",
        why="it is a copy, and no version of what it was copied from has it so",
        todo="take upstream's, or waive it with the reason",
    )
