"""Statements of the NPU side that are otherwise at one place than in the old pair, and nobody else has it so.

Where upstream or another side changed, the new form is found there, or the old one is gone there; where the
NPU side changed on purpose, more than one place did, or a new name came with it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from npu_upgrade.audit.checks.lost import (
    functions_of_both,
    is_followed,
    is_moved,
    is_there,
    named,
    named_beyond,
    place_of,
    statements_of,
    told_of_what_it_follows,
)
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.one_place import Otherwise, otherwise
from npu_upgrade.audit.overrides import functions_of
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, defaults_of, places_of, signature
from npu_upgrade.code.statements import nodes_of
from npu_upgrade.code.walk import last_name, walk
from npu_upgrade.ground.tables import cut
from npu_upgrade.program.conditions import guards, text_of
from npu_upgrade.program.program import File
from npu_upgrade.program.scope import Scope

ABOUT = "statements at one place otherwise than in the old pair, or parameters in another order than there"

_TOGETHER = 2  # statements that are replaced by as many: more were written anew
Place = tuple[str, str]  # a class and a function, of which either may be none


@dataclass(frozen=True)
class _Altered:
    """``scope`` is the function with it, or the module where it is in none."""

    place: Place
    scope: Scope
    old: File
    before: str
    now: str
    what: Otherwise


def check(world: World) -> Iterator[Finding]:
    if world.old is None or not world.of_omni:
        return
    found = [one for file in world.files for one in _in_file(file, world.old.program.file(file.path))]
    told, times = told_of_what_it_follows(world), Counter((one.before, one.now) for one in found)
    for one in found:
        alone = times[one.before, one.now] == 1 and id(one.scope.node) not in told
        if alone and not _has_reason(one, world) and not _is_default(one, world):
            yield _finding(one)
    for file in world.files:
        yield from _parameters_moved(file, world.old.program.file(file.path), world)


def _in_file(file: File, old: File | None) -> Iterator[_Altered]:
    if old is None or old.source == file.source:
        return
    before = _blocks(old)
    for place, (scope, body) in _blocks(file).items():
        then = before[place][1] if place in before else ()
        theirs, ours = ([one.key for one in statements_of(block)] for block in (then, body))
        changes = SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes()
        for kind, a0, a1, b0, b1 in changes if ours != theirs else ():
            if kind == "replace" and a1 - a0 == b1 - b0 <= _TOGETHER:
                for was, now in zip(theirs[a0:a1], ours[b0:b1], strict=True):
                    if what := otherwise(was, now):
                        yield _Altered(place, scope, old, was, now, what)


def _blocks(file: File) -> dict[Place, tuple[Scope, Sequence[ast.stmt]]]:
    """The statements of each function, and those of the module and its classes that are in none."""
    outside = [("", file.tree.body), *((name, cls.node.body) for name, cls in file.classes.items())]
    found: dict[Place, tuple[Scope, Sequence[ast.stmt]]] = {}
    for name, body in outside:
        left = [one for one in body if not isinstance(one, (Function, ast.ClassDef))]
        found[name, ""] = (Scope(file, file.tree), left)
    return found | {place_of(scope): (scope, scope.node.body) for scope in functions_of(file)}


def _has_reason(one: _Altered, world: World) -> bool:
    """Whether another side tells why it is otherwise, or a name that is new there or gone everywhere."""
    name, what = one.place[1], one.what
    if what.name and what.now and (what.name not in one.old.source or _is_renamed(one)):
        return True
    if not is_there(what.before, one.scope, world):
        return True
    if not name:
        return False
    return (
        (bool(what.now) and any(one.now in text_of(other.node) for other in named_beyond(name, world)))
        or is_followed(name, one.before, world)
        or _is_asked_around(one)
        or (not what.name and is_moved(what.before, what.before, one.scope, world))
    )


def _is_asked_around(one: _Altered) -> bool:
    """Whether it is an operand that is gone, and a condition around the statement has it."""
    node = one.scope.node
    if one.what.now or isinstance(node, ast.Module):
        return False
    headed = (inner for inner in walk(node) if isinstance(inner, ast.If))
    same = (inner for inner in headed if one.now.endswith(f"if {unparse(inner.test)}:"))
    return any(one.what.before in guards(node, inner) for inner in same)


def _is_default(one: _Altered, world: World) -> bool:
    """Whether it is a keyword that is gone, and what its callee takes by itself is the same."""
    name, _, value = one.what.before.partition("=")
    calls = (node for node in nodes_of(one.before) if isinstance(node, ast.Call))
    call = next((call for call in calls if any(keyword.arg == name for keyword in call.keywords)), None)
    if one.what.now or not value or call is None:
        return False
    callees = (scope.node for scope in named(last_name(call.func), world))
    defaults = (pair for node in callees if isinstance(node, Function) for pair in defaults_of(node.args))
    return any(arg.arg == name and default and unparse(default) == value for arg, default in defaults)


def _parameters_moved(file: File, old: File | None, world: World) -> Iterator[Finding]:
    """Functions whose parameters stand in another order than before, and are given by place."""
    if old is None or old.source == file.source:
        return
    for scope, was in functions_of_both(file, old):
        if isinstance(scope.node, ast.Module) or isinstance(was.node, ast.Module):
            continue
        orders = [[arg.arg for arg in places_of(node.args)] for node in (was.node, scope.node)]
        if orders[0] == orders[1] or sorted(orders[0]) != sorted(orders[1]):
            continue
        if is_followed(scope.node.name, unparse(was.node.args), world):
            continue
        moved = ", ".join(now for then, now in zip(*orders, strict=True) if then != now)
        yield Finding(
            kind="moved",
            owner=place_of(scope)[0] or scope.node.name,
            subject=f"{moved} of {scope.node.name}",
            what=f"{scope.name} takes {moved} in another order than in the old pair",
            here=side(file, scope.node.lineno, signature(scope.node)),
            there=side(old, was.node.lineno, signature(was.node)),
            incident="S",
            why="who gives them by place gives each in the other's",
            todo="put them back in order, or change all calls and waive it",
        )


def _is_renamed(one: _Altered) -> bool:
    """Whether a name of the function's own is called otherwise throughout."""
    left = {node.id for node in walk(one.scope.node) if isinstance(node, ast.Name)}
    return one.what.before.isidentifier() and one.what.before not in left


def _finding(one: _Altered) -> Finding:
    owner, name = one.place
    file = one.scope.file
    where = ".".join(filter(None, one.place)) or file.path.rpartition("/")[2]
    had = cut(one.what.before, 60)
    now = f"has `{cut(one.what.now, 60)}`" if one.what.now else "has it no longer"
    line = one.scope.node.body[0].lineno
    return Finding(
        kind="altered",
        owner=owner or name or file.module,
        subject=f"{had} in {name or owner or file.module}: {cut(one.before, 80)}",
        what=f"{where} had `{had}` in `{cut(one.before, 100)}` and {now}",
        here=side(file, line, where),
        there=side(one.old, line, cut(one.before, 100)),
        incident="P",
        why="neither upstream nor another side has it so, and the statements around it are as they were",
        todo="put it back, or waive it with the reason",
    )
