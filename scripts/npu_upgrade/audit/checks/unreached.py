"""Overrides that an NPU class inherits and whose only callers in vLLM another of its bases has replaced.

Those of the GPU side, where the plugin replaced the caller; those of the plugin, where the downstream did.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, passes_on
from npu_upgrade.code.walk import dotted, is_super, walk
from npu_upgrade.program.facts import METHOD, Effective, effective
from npu_upgrade.program.places import calls_of
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import onward

ABOUT = (
    "overrides that an NPU class inherits and nothing calls there, because another base replaced the caller"
)

_VLLM = "vllm"
_STANDS = " stands in the place of "


@dataclass(frozen=True)
class _Unreached:
    """An inherited override, its caller in vLLM, and what a class has in the caller's place."""

    method: Method
    caller: Method
    instead: Method


def check(world: World) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[tuple[ClassSymbol, _Unreached]]] = {}
    for cls in world.last_classes if world.of_omni else ():
        if any(owner.project == world.triple.ascend.project for owner in cls.mro):
            for one in _unreached(cls, world):
                found.setdefault((one.method.owner.name, one.method.name), []).append((cls, one))
    for several in found.values():
        cls, one = several[0]
        if one.method.owner.project == cls.project:
            yield _finding(cls, one)
        else:
            yield _of_plugin(world.nearest_common([cls for cls, _ in several]), one)


def _unreached(cls: ClassSymbol, world: World) -> Iterator[_Unreached]:
    whole = effective(cls)
    for name, method in whole.methods.items():
        own = method.owner.project == cls.project
        if name.startswith("__") or method.owner in world.side.classes or method.owner.project == _VLLM:
            continue
        above = [
            owner for owner in cls.mro if name in owner.methods and owner.project != method.owner.project
        ]
        if not above or any(owner.project != _VLLM for owner in above) or passes_on(method.node):
            continue
        known = above if own else [owner for owner in cls.mro if owner.project != cls.project]
        callers = [one for owner in known for one in owner.methods.values() if _calls(one.node, name)]
        instead = [last for one in callers if (last := _last(cls, one.name)) not in (None, one)]
        replaced = [one for one in instead if own or one.owner.project == cls.project]
        if not callers or len(replaced) < len(callers) or _is_called(whole, name, world, callers):
            continue
        made = _made(method.node)
        if not own or not made or made - {one for other in _others(whole, method) for one in _made(other)}:
            yield _Unreached(method, callers[-1], replaced[-1])


def _last(cls: ClassSymbol, name: str) -> Method | None:
    """The method that a call on the class reaches in the end, where each before it calls on to the next."""
    method, seen = cls.lookup(name), list[Method]()
    while method and method not in seen:
        seen.append(method)
        method = next((one for one in onward(cls, method) if one.name == name), method)
    return method


def _others(whole: Effective, method: Method) -> Iterator[Function]:
    """All other functions that run with the class."""
    for one in whole.methods.values():
        if one is not method:
            yield from (reached.node for reached in whole.reach(one).values())


def _made(node: Function) -> set[str]:
    """The attributes of ``self`` that a function gives a value, which None is not."""
    found = set[str]()
    for one in walk(node):
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            empty = isinstance(one.value, ast.Constant) and one.value.value is None
            found |= {
                target.attr
                for target in targets
                if isinstance(target, ast.Attribute) and dotted(target.value) == "self" and not empty
            }
    return found


def _calls(node: Function, name: str) -> bool:
    return any(isinstance(one, ast.Call) and dotted(one.func) == f"self.{name}" for one in walk(node))


def _is_called(whole: Effective, name: str, world: World, callers: list[Method]) -> bool:
    """Whether something that runs with the class may call the method: its own methods, or anybody else."""
    for method in whole.methods.values():
        if any((METHOD, name) in one.facts for one in whole.reach(method).values()):
            return True
    known = {id(node) for one in callers for node in walk(one.node)}
    packages = {cls.file.path.partition("/")[0] for cls in whole.cls.mro}
    for package in packages:
        for call in calls_of(world.program, package, name):
            if id(call) not in known and not (
                isinstance(call.func, ast.Attribute) and is_super(call.func.value)
            ):
                return True
    return False


def _finding(cls: ClassSymbol, found: _Unreached) -> Finding:
    method, instead = found.method, found.instead
    return Finding(
        kind="unreached",
        owner=cls.name,
        subject=f"{method.owner.name}.{method.name}",
        what=_what(cls, found),
        here=side(method.owner, method.node, method.name),
        there=side(instead.owner, instead.node, instead.name),
        incident="P",
        why="what it makes for the GPU side is never made on the NPU side",
        todo=f"do in the NPU class what {method.owner.name}.{method.name} does, where {instead.name} ends",
    )


def _of_plugin(cls: ClassSymbol, found: _Unreached) -> Finding:
    method, caller = found.method, found.caller
    return Finding(
        kind="unreached-hook",
        owner=cls.name,
        subject=f"{method.owner.name}.{method.name}",
        what=_what(cls, found),
        here=side(cls),
        there=side(method.owner, method.node, method.name),
        incident="P",
        why=f"{caller.qualname} calls it, and {method.owner.project} has its own for the device",
        todo=f"call self.{method.name} in {cls.name}.{caller.name} where {caller.owner.name}'s calls it",
    )


def _what(cls: ClassSymbol, found: _Unreached) -> str:
    method, caller, instead = found.method, found.caller, found.instead
    return (
        f"{method.owner.name}.{method.name} is not called for {cls.name}: {instead.owner.name}."
        f"{instead.name}{_STANDS}{caller.owner.name}.{caller.name}, which calls it"
    )


def stands_there(what: str) -> str:
    """The name of the method that a finding says to stand in the caller's place."""
    return what.partition(_STANDS)[0].rpartition(".")[2]
