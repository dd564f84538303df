"""A function that hands its parameters on to its namesake elsewhere, and leaves one at its default."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import audited_scopes
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function, every_parameter, misfit, named_of, places_of, signature
from npu_upgrade.code.walk import last_name
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.scope import Callee, Scope

ABOUT = "parameters that a function has and does not hand on to its namesake, which takes them"

_FEWEST = 2  # parameters that are handed on under their names, so that the call stands for the whole


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    for scope in audited_scopes(world, resolver):
        if isinstance(scope.node, ast.Module):
            continue
        for call in resolver.body(scope.node).calls:
            if last_name(call.func) == scope.node.name and not _is_super(call.func):
                for callee in resolver.callees(call, scope)[:1]:
                    yield from _judged(call, callee, scope, scope.node)


def _judged(call: ast.Call, callee: Callee, scope: Scope, own: Function) -> Iterator[Finding]:
    if callee.node is own or misfit(call, callee.node, bound=callee.bound) or _is_open(call):
        return
    takes = [arg.arg for arg in named_of(callee.node.args)]
    places = places_of(callee.node.args)[int(callee.bound) :]
    given = {place.arg: value for place, value in zip(places, call.args, strict=False)}
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    shared = [arg.arg for arg in every_parameter(own.args) if arg.arg in takes and arg.arg != scope.self_name]
    handed = [name for name in shared if isinstance(value := given.get(name), ast.Name) and value.id == name]
    for name in shared:
        if name not in given and len(handed) >= _FEWEST and len(handed) == len(shared) - 1:
            yield Finding(
                kind="not-handed-on",
                owner=scope.name,
                subject=f"{unparse(call.func)}: {name}",
                what=f"{scope.name} hands {', '.join(handed)} on to {unparse(call.func)}(), not its {name}",
                here=side(scope.file, call.lineno, unparse(call)),
                there=side(callee.file, callee.node.lineno, signature(callee.node)),
                incident="S",
                why=f"{callee.name} works with its default in the place of the caller's {name}.",
                todo=f"hand {name} on, or say why the default is meant",
            )


def _is_super(func: ast.expr) -> bool:
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Call)
        and last_name(func.value.func) == "super"
    )


def _is_open(call: ast.Call) -> bool:
    return any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords)
