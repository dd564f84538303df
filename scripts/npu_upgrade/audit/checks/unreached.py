"""Overrides for GPUs that an NPU class inherits, and whose only callers the plugin has replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, passes_on
from npu_upgrade.code.walk import dotted, is_super, walk
from npu_upgrade.program.facts import METHOD, Effective, effective
from npu_upgrade.program.places import calls_of
from npu_upgrade.program.program import ClassSymbol, Method

ABOUT = "overrides that an NPU class inherits and nothing calls there, because the plugin replaced the caller"

_VLLM = "vllm"


def check(world: World) -> Iterator[Finding]:
    seen = set[tuple[str, str]]()
    for cls in world.last_classes if world.of_omni else ():
        if any(owner.project == world.triple.ascend.project for owner in cls.mro):
            for method, caller, instead in _unreached(cls, world):
                if (method.owner.name, method.name) not in seen:
                    seen.add((method.owner.name, method.name))
                    yield _finding(cls, method, caller, instead)


def _unreached(cls: ClassSymbol, world: World) -> Iterator[tuple[Method, Method, Method]]:
    """Inherited overrides that are not reached, their caller in vLLM, and what the class has in its place."""
    whole = effective(cls)
    for name, method in whole.methods.items():
        if name.startswith("__") or method.owner.project != cls.project or method.owner in world.side.classes:
            continue
        above = [owner for owner in cls.mro if name in owner.methods and owner.project != cls.project]
        if not above or any(owner.project != _VLLM for owner in above) or passes_on(method.node):
            continue
        callers = [one for owner in above for one in owner.methods.values() if _calls(one.node, name)]
        replaced = [one for one in callers if whole.methods.get(one.name) not in (None, one)]
        if not callers or len(replaced) < len(callers) or _is_called(whole, name, world, callers):
            continue
        made = _made(method.node)
        if not made or made - {one for other in _others(whole, method) for one in _made(other)}:
            yield method, callers[0], whole.methods[callers[0].name]


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


def _finding(cls: ClassSymbol, method: Method, caller: Method, instead: Method) -> Finding:
    return Finding(
        kind="unreached",
        owner=cls.name,
        subject=f"{method.owner.name}.{method.name}",
        what=f"{method.owner.name}.{method.name} is not called for {cls.name}: {instead.owner.name}."
        f"{instead.name} stands in the place of {caller.owner.name}.{caller.name}, which calls it",
        here=side(method.owner, method.node, method.name),
        there=side(instead.owner, instead.node, instead.name),
        incident="P",
        why="what it makes for the GPU side is never made on the NPU side",
        todo=f"do in the NPU class what {method.owner.name}.{method.name} does, where {instead.name} ends",
    )
