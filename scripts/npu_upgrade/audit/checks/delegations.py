"""Parameters that stay at their default: a namesake's, one that all other calls give, one of a sibling's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import audited_scopes
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import (
    Function,
    every_parameter,
    is_spread,
    landing,
    misfit,
    named_of,
    signature,
)
from npu_upgrade.code.walk import is_super, last_name, names_read
from npu_upgrade.program.callees import Resolver, resolver_of
from npu_upgrade.program.places import calls_of
from npu_upgrade.program.scope import Callee, Scope

ABOUT = "parameters left at their default that a namesake's caller has, all other calls give, or a stand-in"

_HANDED = 3  # parameters that are handed on, from which on one that is not was forgotten
_FEWEST = 2  # parameters under their names, or other calls, that say what is usual
_DISTINCT = 12  # characters of a name that stands for one thing wherever it is called


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    for scope in audited_scopes(world, resolver):
        if isinstance(scope.node, ast.Module):
            continue
        for call in resolver.body(scope.node).calls:
            callee = next(iter(resolver.callees(call, scope)), None)
            if "original" in last_name(call.func) and not is_spread(call):
                yield from _to_original(call, scope, scope.node)
            if callee is None or callee.node is scope.node or is_spread(call):
                continue
            if misfit(call, callee.node, bound=callee.bound) or is_super(getattr(call.func, "value", None)):
                continue
            if last_name(call.func) == scope.node.name:
                yield from _to_namesake(call, callee, scope, scope.node)
            elif callee.file.project == scope.file.project:
                yield from _beside(call, callee, scope, resolver)
                yield from _elsewhere(call, callee, scope, world)


def _to_original(call: ast.Call, scope: Scope, own: Function) -> Iterator[Finding]:
    """A parameter that a function does not hand to what it stands in for, which takes the same."""
    values = [*call.args, *(one.value for one in call.keywords)]
    handed = {value.id for value in values if isinstance(value, ast.Name)}
    takes = [arg.arg for arg in every_parameter(own.args)]
    left = [name for name in takes if name not in handed]
    if len(left) != 1 or len(takes) - 1 < _HANDED or left[0] in {one.arg for one in call.keywords}:
        return
    if any(left[0] in names_read(value) for value in values):  # in another form
        return
    what = f"{scope.name} stands in for {unparse(call.func)}() and does not hand its {left[0]} on"
    yield Finding(
        kind="not-handed-on",
        owner=scope.name,
        subject=f"{unparse(call.func)}: {left[0]}",
        what=what,
        here=side(scope.file, call.lineno, unparse(call)),
        there=None,
        incident="S",
        why=f"the original works with its default for {left[0]}, or refuses the call.",
        todo=f"give {left[0]}, or say why the default is meant",
    )


def _to_namesake(call: ast.Call, callee: Callee, scope: Scope, own: Function) -> Iterator[Finding]:
    takes = [arg.arg for arg in named_of(callee.node.args)]
    given = _given(call, callee)
    shared = [arg.arg for arg in every_parameter(own.args) if arg.arg in takes and arg.arg != scope.self_name]
    handed = [name for name in shared if isinstance(value := given.get(name), ast.Name) and value.id == name]
    read = names_read(own)
    for name in shared:
        fewest = _FEWEST if name in read else 1
        if name not in given and len(handed) >= fewest and len(handed) == len(shared) - 1:
            handed_on = f"{scope.name} hands {', '.join(handed)} on to {unparse(call.func)}(), not its {name}"
            yield _finding("not-handed-on", call, callee, scope, name, handed_on)


def _beside(call: ast.Call, callee: Callee, scope: Scope, resolver: Resolver) -> Iterator[Finding]:
    """A parameter of the function that it hands to the other object it may return, and not to this one."""
    returned = [one.value for one in resolver.body(scope.node).returns if isinstance(one.value, ast.Call)]
    if not callee.makes or call not in returned or isinstance(scope.node, ast.Module):
        return
    given = _given(call, callee)
    takes = {arg.arg for arg in named_of(callee.node.args)} - given.keys()
    own = {arg.arg for arg in every_parameter(scope.node.args)} - {scope.self_name}
    for other in returned:
        for made in resolver.callees(other, scope)[:1] if other is not call else ():
            for name, value in _given(other, made).items() if made.makes else ():
                if name in takes & own and isinstance(value, ast.Name) and value.id == name:
                    what = f"{scope.name} makes {made.name} with its {name}, and {callee.name} without"
                    yield _finding("not-handed-on", call, callee, scope, name, what)


def _elsewhere(call: ast.Call, callee: Callee, scope: Scope, world: World) -> Iterator[Finding]:
    """A parameter that all other calls of the project's function give."""
    name, given = last_name(call.func), _given(call, callee)
    left = [arg.arg for arg in named_of(callee.node.args) if arg.arg not in given]
    if not left or len(name) < _DISTINCT or callee.owner:
        return
    others = [one for one in _calls(name, world) if one is not call]
    for parameter in left if len(others) >= _FEWEST else ():
        if all(parameter in _given(one, callee) for one in others):
            what = f"{scope.name} calls {name}() without {parameter}, which all other calls give"
            yield _finding("given-elsewhere", call, callee, scope, parameter, what)


def _calls(name: str, world: World) -> list[ast.Call]:
    """The project's calls of what has this name, less those that tell nothing of what they give."""
    calls = calls_of(world.program, world.side.project.package, name)
    return [call for call in calls if not is_spread(call)]


def _given(call: ast.Call, callee: Callee) -> dict[str, ast.expr]:
    """The values of a call by the names of the parameters that they land on."""
    return {arg.arg: value for arg, value in landing(call, callee.node, bound=callee.bound)}


def _finding(kind: str, call: ast.Call, callee: Callee, scope: Scope, name: str, what: str) -> Finding:
    return Finding(
        kind=kind,
        owner=scope.name,
        subject=f"{unparse(call.func)}: {name}",
        what=what,
        here=side(scope.file, call.lineno, unparse(call)),
        there=side(callee.file, callee.node.lineno, signature(callee.node)),
        incident="S",
        why=f"{callee.name} works with its default for {name}.",
        todo=f"give {name}, or say why the default is meant",
    )
