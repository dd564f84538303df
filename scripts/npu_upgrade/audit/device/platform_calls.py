"""Calls of vllm-omni's platform object that the NPU platform, or what it hands out, does not take."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import is_bound, misfit
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import ClassSymbol, Method

_PLATFORM = "current_omni_platform"


@dataclass(frozen=True)
class Misfit:
    """A call in ``method`` that ends in ``target`` on an NPU and does not fit it, with the reason."""

    method: Method
    node: ast.Call
    target: Method
    reason: str


def platform_misfits(world: World) -> Iterator[Misfit]:
    """The calls in vllm-omni's methods of NPU classes: of the platform, and of classes it hands out."""
    platform = _npu_platform(world)
    if platform is None:
        return
    methods = {
        id(method.node): method
        for cls in world.concrete
        for base in cls.mro
        if base.project == "vllm-omni"
        for method in base.methods.values()
    }
    for method in methods.values():
        for node, target in _calls(method, platform):
            if reason := misfit(node, target.node, bound=is_bound(target.node)):
                yield Misfit(method, node, target, reason)


def _npu_platform(world: World) -> ClassSymbol | None:
    classes = [cls for file in world.files for cls in file.classes.values()]
    return next((cls for cls in classes if cls.name.endswith("OmniPlatform")), None)


def _calls(method: Method, platform: ClassSymbol) -> Iterator[tuple[ast.Call, Method]]:
    handed: dict[str, Method] = {}
    for node in walk(method.node):
        if isinstance(node, ast.Assign) and (getter := _of_platform(node.value, platform)):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            handed |= {name: made for name in names if (made := _constructor(getter))}
    for node in walk(method.node):
        if not isinstance(node, ast.Call):
            continue
        target = _of_platform(node, platform)
        if target is None and isinstance(node.func, ast.Name):
            target = handed.get(node.func.id)
        if target:
            yield node, target


def _of_platform(node: ast.expr, platform: ClassSymbol) -> Method | None:
    """The NPU platform's method that ``current_omni_platform.NAME(...)`` calls."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == _PLATFORM:
        return platform.lookup(func.attr)
    return None


def _constructor(getter: Method) -> Method | None:
    """The constructor of the class that a method returns."""
    returned = [node.value for node in walk(getter.node) if isinstance(node, ast.Return) and node.value]
    classes = [getter.owner.file.resolve(value) for value in returned if isinstance(value, ast.Name)]
    found = [cls for cls in classes if isinstance(cls, ClassSymbol)]
    return found[0].lookup("__init__") if len(found) == 1 else None
