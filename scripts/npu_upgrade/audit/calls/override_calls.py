"""The calls that reach NPU overrides from code above and around them, and do not fit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.calls.overrides import audited_classes
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import misfit
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.running import running_methods, scope_of
from npu_upgrade.program.scope import Callee, Scope


@dataclass(frozen=True)
class BadCall:
    """A call that does not fit the override it reaches, with the reason."""

    call: ast.Call
    scope: Scope
    callee: Callee
    reason: str

    @property
    def text(self) -> str:
        return unparse(self.call.func)

    @property
    def names(self) -> list[str]:
        """The parameters that the reason is about; ``*`` for any, where it only counts them."""
        return self.reason.rpartition("parameter ")[2].split(", ") if "parameter " in self.reason else ["*"]


def bad_calls(world: World, resolver: Resolver) -> Iterator[BadCall]:
    """Calls outside the audited files, by methods that run on NPU objects, that do not fit."""
    audited = {id(file) for file in world.files}
    seen: set[tuple[int, int]] = set()
    for cls in audited_classes(world):
        for method in running_methods(cls, resolver):
            if id(method.owner.file) in audited:
                continue
            scope = scope_of(cls, method)
            for bad in _in_scope(scope, resolver):
                key = (id(bad.call), id(bad.callee.node))
                mine = id(bad.callee.file) in audited or method.owner.project == "vllm-omni"
                if mine and key not in seen and not _of_upstream(bad):
                    seen.add(key)
                    yield bad


def _of_upstream(bad: BadCall) -> bool:
    """Whether vllm-ascend's method under an override of omni's does not fit the call either."""
    owner = bad.callee.owner
    if owner is None or owner.project != "vllm-omni" or bad.scope.file.project != "vllm":
        return False
    below = [cls.methods[bad.callee.node.name] for cls in owner.mro if bad.callee.node.name in cls.methods]
    ascend = next((method.node for method in below if method.owner.project == "vllm-ascend"), None)
    return ascend is not None and bool(misfit(bad.call, ascend, bound=bad.callee.bound))


def _in_scope(scope: Scope, resolver: Resolver) -> Iterator[BadCall]:
    for call in resolver.body(scope.node).calls:
        if not isinstance(call.func, ast.Attribute):
            continue
        found = [callee for callee in resolver.callees(call, scope) if callee.by != "name"]
        reasons = [misfit(call, callee.node, bound=callee.bound) for callee in found]
        if found and all(reasons):
            yield BadCall(call, scope, found[0], reasons[0])
