"""The calls that reach NPU overrides from code above and around them, and do not fit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

from npu_upgrade.audit.overrides import audited_classes, running_methods
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import is_bound, misfit
from npu_upgrade.code.walk import dotted
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.program import File, Method
from npu_upgrade.program.scope import Callee, Scope, scope_of


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


_RUNNERS, _WORKERS = {"model_runner", "runner", "_runner"}, {"worker", "driver_worker", "_worker"}
_AROUND = (
    *("vllm/v1", "vllm/distributed", "vllm_ascend"),
    *("vllm_omni/core", "vllm_omni/engine", "vllm_omni/entrypoints", "vllm_omni/worker"),
)
_HINTS = ("runner.", "worker.", "collective_rpc")
# Folders of the second generation of runners, which the first has nothing to do with.
_SECOND = ("vllm/v1/worker/gpu/", "/worker/v2/", "/worker_v2/")
_RPC = "collective_rpc"
_CALLED = re.compile(r"\b(?:_?(?:model_)?runner|(?:driver)?_?worker)\.(\w+)\(")
_SENT = re.compile(rf"{_RPC}\(\s*(?:method=)?[\"'](\w+)[\"']")

# An override with the methods above it, and these by name.
_Target = tuple[Method, list[Method]]
_Table = dict[str, list[_Target]]


def outside_calls(world: World, resolver: Resolver) -> Iterator[BadCall]:
    """The calls that fit the parent of an override of a runner or worker, and not the override."""
    runners = _overrides(world, "ModelRunner")
    workers = _overrides(world, "WorkerBase")
    if not runners and not workers:
        return
    for file in _files(world, runners.keys() | workers.keys()):
        for scope in _functions(file):
            for call in resolver.body(scope.node).calls:
                for target, sent in _targets(call, runners, workers):
                    yield from _judged(call, sent, scope, target)


def _overrides(world: World, base: str) -> dict[str, list[_Target]]:
    """The methods of audited runners or workers, with those above them, by name."""
    found: dict[str, list[_Target]] = {}
    for cls in world.classes:
        if any(owner.name.endswith(base) for owner in cls.mro[1:]):
            for name, method in cls.methods.items():
                above = [owner.methods[name] for owner in cls.mro[1:] if name in owner.methods]
                if above and not name.startswith("__"):
                    found.setdefault(name, []).append((method, above))
    return found


def _files(world: World, names: Set[str]) -> Iterator[File]:
    for prefix in _AROUND:
        tree = world.program.trees.get(prefix.partition("/")[0])
        for path in tree.list(prefix) if tree else []:
            mentions = path.endswith(".py") and _mentions(world.program.text(path), names)
            if mentions and (file := world.program.file(path)):
                yield file


def _mentions(text: str, names: Set[str]) -> bool:
    found = {*_CALLED.findall(text), *_SENT.findall(text)} if any(hint in text for hint in _HINTS) else set()
    return not names.isdisjoint(found)


def _functions(file: File) -> Iterator[Scope]:
    """The functions of a file; runners and workers are left out, which call their like by other means."""
    yield from (Scope(file, function.node) for function in file.functions.values())
    for cls in file.classes.values():
        if not any(owner.name.endswith(("ModelRunner", "WorkerBase")) for owner in cls.mro):
            yield from (Scope(file, method.node, cls) for method in cls.methods.values())


def _targets(call: ast.Call, runners: _Table, workers: _Table) -> Iterator[tuple[_Target, ast.Call]]:
    """The overrides a call may reach, each with the call as it arrives there."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return
    if func.attr == _RPC:
        if (sent := _sent(call)) and isinstance(sent.func, ast.Name):
            yield from ((target, sent) for target in workers.get(sent.func.id, []))
        return
    receiver = dotted(func.value).rpartition(".")[2]
    table = runners if receiver in _RUNNERS else workers if receiver in _WORKERS else {}
    yield from ((target, call) for target in table.get(func.attr, []))


def _sent(call: ast.Call) -> ast.Call | None:
    """The call that ``collective_rpc("f", args=(...), kwargs={...})`` makes on each worker."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    name = call.args[0] if call.args else given.get("method")
    args, kwargs = given.get("args", ast.Tuple([])), given.get("kwargs", ast.Dict([], []))
    named = isinstance(name, ast.Constant) and isinstance(name.value, str)
    if not (named and isinstance(args, ast.Tuple)) or len(call.args) > 2:
        return None
    if isinstance(kwargs, ast.Dict):
        names = [str(key.value) if isinstance(key, ast.Constant) else None for key in kwargs.keys]
        keywords = [ast.keyword(key, value) for key, value in zip(names, kwargs.values, strict=True)]
    else:
        keywords = kwargs.keywords if isinstance(kwargs, ast.Call) else [ast.keyword(None, kwargs)]
    return ast.copy_location(ast.Call(ast.Name(str(name.value)), args.elts, keywords), call)


def _judged(call: ast.Call, sent: ast.Call, scope: Scope, target: _Target) -> Iterator[BadCall]:
    method, above = target
    bound = is_bound(method.node)
    reason = misfit(sent, method.node, bound=bound)
    fits_above = any(not misfit(sent, parent.node, bound=is_bound(parent.node)) for parent in above)
    if reason and fits_above and _meets(scope.file.path, method):
        callee = Callee(method.node, method.owner.file, method.owner, bound, "attribute")
        yield BadCall(call, scope, callee, reason)


def _meets(path: str, method: Method) -> bool:
    """Whether code at ``path`` works with runners or workers of the method's generation."""
    second = any(folder in path for folder in _SECOND)
    return not second or any(folder in owner.file.path for owner in method.owner.mro for folder in _SECOND)
