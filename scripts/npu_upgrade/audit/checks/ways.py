"""Ways through a function that nobody takes: what it tells apart by a parameter, and no call gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import audited_scopes, device_files
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import (
    Function,
    defaults_of,
    is_spread,
    landing,
    named_of,
    places_of,
    signature,
)
from npu_upgrade.code.walk import last_name, string, walk
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.places import calls_of
from npu_upgrade.program.program import File
from npu_upgrade.program.scope import Callee, Scope

ABOUT = "ways of a function by a parameter's value that no call takes, and imports that happen on such a way"

_FEWEST = 2  # values that are told apart, and calls


def check(world: World) -> Iterator[Finding]:
    for file in (*world.files, *device_files(world)):
        for node in file.nodes:
            if isinstance(node, Function):
                yield from _values(node, file, world)
    yield from _imports(world)


def _values(node: Function, file: File, world: World) -> Iterator[Finding]:
    """Strings that a function compares a parameter with, and that neither a call nor the default gives."""
    told = _told_apart(node) | _handed_on(node, file)
    calls = calls_of(world.program, _package_of(file), node.name) if told else []
    if len(calls) < _FEWEST or any(map(is_spread, calls)):
        return
    for name, values in told.items():
        given = [_given(call, node, name, bound=isinstance(call.func, ast.Attribute)) for call in calls]
        if len(values) >= _FEWEST and all(isinstance(one, ast.Constant) for one in given):
            taken = {string(one) for one in given}
            for value, place in values.items():
                if value not in taken:
                    what = f"{node.name} has a way for {name}={value!r}, and no call gives it"
                    yield _finding(
                        file, place, node, f"{name}={value!r}", what, "its callers take another way"
                    )


def _told_apart(node: Function) -> dict[str, dict[str, ast.Compare]]:
    """The strings that each parameter is compared with."""
    names = {arg.arg for arg in named_of(node.args)}
    found: dict[str, dict[str, ast.Compare]] = {}
    for one in (one for one in walk(node) if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq)):
        name = one.left.id if isinstance(one.left, ast.Name) else ""
        if name in names and (value := string(one.comparators[0])):
            found.setdefault(name, {}).setdefault(value, one)
    return found


def _handed_on(node: Function, file: File) -> dict[str, dict[str, ast.Compare]]:
    """The strings that a function of the same file compares with what a parameter hands on to it."""
    names, found = {arg.arg for arg in named_of(node.args)}, {}
    for call in (one for one in walk(node) if isinstance(one, ast.Call)):
        callee = file.functions.get(last_name(call.func))
        told = _told_apart(callee.node) if callee and callee.node is not node else {}
        for arg, value in landing(call, callee.node, bound=False) if callee and told else ():
            if isinstance(value, ast.Name) and value.id in names and arg.arg in told:
                found[value.id] = told[arg.arg]
    return found


def _given(call: ast.Call, node: Function, name: str, *, bound: bool) -> ast.expr | None:
    """What a call gives for a parameter, or its default."""
    landed = {arg.arg: value for arg, value in landing(call, node, bound=bound and _is_method(node))}
    return landed.get(name) or {arg.arg: value for arg, value in defaults_of(node.args)}.get(name)


def _package_of(file: File) -> str:
    return file.path.partition("/")[0]


def _is_method(node: Function) -> bool:
    places = places_of(node.args)
    return bool(places) and places[0].arg in ("self", "cls")


def _imports(world: World) -> Iterator[Finding]:
    """Imports for their effect in a project below, on a way that no call of the NPU side takes."""
    resolver = resolver_of(world.program)
    found: dict[int, list[tuple[ast.Call, Callee, Scope]]] = {}
    for scope in audited_scopes(world, resolver):
        for call in resolver.body(scope.node).calls:
            for callee in resolver.callees(call, scope)[:1]:
                if callee.file.project != scope.file.project and not callee.makes and not is_spread(call):
                    found.setdefault(id(callee.node), []).append((call, callee, scope))
    for uses in found.values():
        uses.sort(key=lambda one: (one[2].file.path, one[0].lineno))
        node, file = uses[0][1].node, uses[0][1].file
        calls = list({id(call): call for call, _, _ in uses}.values())
        for name, ways in _importing(node).items() if len(calls) >= _FEWEST else ():
            mine = _truths(calls, node, name)
            theirs = _truths(calls_of(world.program, _package_of(file), node.name), node, name)
            if len(mine) == 1 and len(theirs) == len(ways):
                call, _, scope = uses[-1]
                missed = unparse(ways[not mine.pop()])
                what = f"no call of {node.name} takes the way by {name} that does `{missed}`"
                yield Finding(
                    kind="import",
                    owner=scope.name,
                    subject=f"{node.name}: {name}",
                    what=what,
                    here=side(scope.file, call, unparse(call)),
                    there=side(file, ways[True], signature(node)),
                    incident="P",
                    why="what it imports for its effect, such as patches, is not there on the NPU side",
                    todo=f"call {node.name} for both, as {file.project} does, or say who else does",
                )


def _importing(node: Function) -> dict[str, dict[bool, ast.stmt]]:
    """Parameters that decide by themselves between two imports: the first of each way."""
    names = {arg.arg for arg in named_of(node.args)}
    found = {}
    for one in walk(node):
        if isinstance(one, ast.If) and isinstance(one.test, ast.Name) and one.test.id in names and one.orelse:
            ways = {True: one.body[0], False: one.orelse[0]}
            if all(isinstance(way, (ast.Import, ast.ImportFrom)) for way in ways.values()):
                found[one.test.id] = ways
    return found


def _truths(calls: Sequence[ast.Call], node: Function, name: str) -> set[bool]:
    """The ways that calls take; one whose value the source does not tell takes both."""
    found: set[bool] = set()
    for call in calls:
        value = _given(call, node, name, bound=False)
        found |= {bool(value.value)} if isinstance(value, ast.Constant) else {True, False}
    return found


def _finding(file: File, place: ast.expr, node: Function, subject: str, what: str, why: str) -> Finding:
    return Finding(
        kind="value",
        owner=node.name,
        subject=subject,
        what=what,
        here=side(file, place, unparse(place)),
        there=side(file, node, signature(node)),
        incident="P",
        why=why,
        todo="give it where it was meant, or remove the way",
    )
