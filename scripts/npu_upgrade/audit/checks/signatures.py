"""Overrides whose signature no longer fits their parents', or the calls that upstream makes."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.overrides import forgets, functions_of, inherited_scopes, is_stub, overriding
from npu_upgrade.audit.type_hints import lost_parameters, lost_returns
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import (
    Function,
    displaced,
    is_bound,
    misfit,
    named_of,
    not_taken,
    places_of,
    signature,
)
from npu_upgrade.code.walk import dotted, string, walk
from npu_upgrade.program.callees import Resolver, is_context_manager, resolver_of
from npu_upgrade.program.conditions import names_in
from npu_upgrade.program.program import ClassSymbol, File, Method
from npu_upgrade.program.scope import Callee, Scope, decorators
from npu_upgrade.program.self_use import methods_on

ABOUT = "overrides that do not fit their parents' signatures, hints, or upstream's calls of them"


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    passed: set[tuple[int, str]] = set()
    for bad in itertools.chain(bad_calls(world, resolver), outside_calls(world, resolver)):
        passed |= {(id(bad.callee.node), name) for name in bad.names}
        yield _called(bad)
    for cls in world.own_classes:
        for method, parents in overriding(cls):
            if _says_so(method):
                continue
            yield from _parameters(method, parents, passed)
            yield from _kinds(method, parents, resolver)
            yield from _results(method, parents, cls, resolver)
            yield from _hints(method, parents)


def _called(bad: BadCall) -> Finding:
    callee = bad.callee
    what = f"{bad.scope.name or bad.scope.file.path} calls {bad.text}(), and {callee.name} {bad.reason}"
    return Finding(
        kind="call-site",
        owner=callee.owner.name if callee.owner else "",
        subject=f"{callee.node.name}: {bad.reason}",
        what=what,
        here=side(callee.file, callee.node, signature(callee.node)),
        there=side(bad.scope.file, bad.call, ast.unparse(bad.call)),
        incident="S",
        why="The call reaches the override and raises TypeError as soon as it runs.",
        todo="Take the argument in the override and do with it what the method it overrides does.",
        like="vllm-ascend #6560",
    )


def _parameters(method: Method, parents: list[Method], passed: set[tuple[int, str]]) -> Iterator[Finding]:
    """Parameters that a parent takes and the override does not, or that only the override asks for."""
    if (id(method.node), "*") in passed:
        return
    lacks = [(parent, _misfits(method.node, parent.node)) for parent in parents]
    # What fits one of the parents is not of the override's making where they disagree.
    asked = set.intersection(*({name for name in names if " " in name} for _, names in lacks))
    for parent, missing in lacks:
        names = [name for name in missing if " " not in name and (id(method.node), name) not in passed]
        names += sorted(asked)
        if names:
            what = f"{method.qualname} does not fit {parent.qualname}: {', '.join(names)}"
            yield _finding("not-taken", method, parent, f"({', '.join(names)})", what)
            return
    moved = [displaced(method.node, parent.node) for parent in parents]
    if all(moved):
        names = moved[0]
        what = f"{method.qualname} takes {', '.join(names)} in another order than {parents[0].qualname}"
        yield _finding("order", method, parents[0], f"({', '.join(names)})", what)


def _misfits(own: Function, parent: Function) -> list[str]:
    """What of the parent's parameters the override does not take, less what cannot matter to callers.

    A private method, and a module's ``forward``, is called by those who know what it asks for.
    """
    takes = {arg.arg for arg in [*own.args.args, *own.args.kwonlyargs]}
    names = [name for name in not_taken(own, parent) if name not in takes]
    if own.args.kwarg:
        names = [name for name in names if " " in name]
    if own.args.vararg:
        places = {arg.arg for arg in places_of(parent.args)}
        names = [name for name in names if name not in places]
    if own.name.startswith(("_", "forward")) or parent.args.vararg or parent.args.kwarg:
        names = [name for name in names if " " not in name]
    return names


def _kinds(method: Method, parents: list[Method], resolver: Resolver) -> Iterator[Finding]:
    """Property against method, static against bound, coroutine or generator against function."""
    own = nature(method, resolver)
    for parent in parents:
        theirs = nature(parent, resolver)
        if is_stub(parent.node) or is_stub(method.node):
            own, theirs = own - {"generator"}, theirs - {"generator"}
        if own != theirs:
            words = [", ".join(sorted(kinds)) or "a plain method" for kinds in (own, theirs)]
            what = f"{method.qualname} is {words[0]}, {parent.qualname} is {words[1]}"
            yield _finding("method-kind", method, parent, " [kind]", what)
            return


def _results(
    method: Method, parents: list[Method], cls: ClassSymbol, resolver: Resolver
) -> Iterator[Finding]:
    """An override that returns nothing where all its parents return something that is used."""
    if is_stub(method.node):
        return
    if all(forgets(method.node, parent.node, resolver) for parent in parents):
        what = f"{method.qualname} may end without a result, {parents[0].qualname} always has one"
        yield _finding("no-result", method, parents[0], " -> None at its end", what)
    if resolver.gives(method.node):
        return
    if all(resolver.gives(parent.node) for parent in parents) and _is_used(method.name, cls, resolver):
        what = f"{method.qualname} returns nothing, {parents[0].qualname} does, and its result is used"
        yield _finding("no-result", method, parents[0], " -> None", what)


def _is_used(name: str, cls: ClassSymbol, resolver: Resolver) -> bool:
    """Whether a method that runs on objects of the class, or of an heir in its file, uses the result."""
    heirs = cls.file.program.files(cls.file.path.rpartition("/")[0])
    classes = [one for file in heirs for one in file.classes.values() if cls in one.mro]
    nodes = {id(m.node): m.node for one in classes for m in methods_on(one)}
    return any(name in names_in(node) and _uses_result(node, name) for node in nodes.values())


def _uses_result(node: Function, name: str) -> bool:
    dropped = {id(n.value) for n in walk(node) if isinstance(n, ast.Expr)}
    calls = (n for n in walk(node) if isinstance(n, ast.Call) and id(n) not in dropped)
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == name
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
        for call in calls
    )


def _hints(method: Method, parents: list[Method]) -> Iterator[Finding]:
    own_hints = _annotations(method.node)
    for parent in parents:
        files = (parent.owner.file, method.owner.file)
        private = method.name.startswith("_")  # called by those who know what it returns
        lost = lost_returns(parent.node.returns, method.node.returns, files)
        if lost and not (private and any(item.startswith("tuple") for item in lost)):
            what = f"{method.qualname} is not said to return {', '.join(lost)}, {parent.qualname} is"
            yield _finding("return-type", method, parent, f" -> {', '.join(lost)}", what)
        for name, hint in _annotations(parent.node).items():
            if lost := lost_parameters(hint, own_hints.get(name), files):
                what = f"{method.qualname} takes no {', '.join(lost)} for {name}, {parent.qualname} does"
                yield _finding("parameter-type", method, parent, f"({name}: {', '.join(lost)})", what)


def _finding(kind: str, method: Method, parent: Method, subject: str, what: str) -> Finding:
    return Finding(
        kind=kind,
        owner=method.owner.name,
        subject=f"{method.name}{subject}",
        what=what,
        here=_side(method),
        there=_side(parent),
        incident="S",
        why="Code that knows only the parent's signature calls the override wrongly, or misreads its result.",
        todo="Bring the override's signature and hints up to its parent's, or say why it differs.",
        like="vllm-ascend #6560",
    )


def _side(method: Method) -> Side:
    hint = f" -> {ast.unparse(method.node.returns)}" if method.node.returns else ""
    return side(method, text=signature(method.node) + hint)


def nature(method: Method, resolver: Resolver) -> frozenset[str]:
    """What kind of method it is: a property, bound to nothing or the class, a coroutine, a generator."""
    node = method.node
    names = {"property" if "property" in name else name for name in decorators(node)}
    kinds = names & {"property", "staticmethod", "classmethod"}
    if is_context_manager(node):
        kinds.add("a context manager")
    elif resolver.body(node).yields:
        kinds.add("generator")
    return frozenset(kinds | ({"async"} if isinstance(node, ast.AsyncFunctionDef) else set()))


def _says_so(method: Method) -> bool:
    """Whether a comment for type checkers tells that the override differs on purpose."""
    lines = method.owner.file.source.split("\n")
    head = lines[method.node.lineno - 1 : method.node.body[0].lineno - 1]
    return any("type: ignore[override]" in line for line in head)


def _annotations(node: Function) -> dict[str, ast.expr]:
    return {arg.arg: arg.annotation for arg in named_of(node.args) if arg.annotation}


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
    for scope in inherited_scopes(world, resolver):
        for bad in _in_scope(scope, resolver):
            key = (id(bad.call), id(bad.callee.node))
            mine = id(bad.callee.file) in audited or scope.file.project == "vllm-omni"
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
_CALLED = [re.compile(rf"{owner}\.(\w+)\(") for owner in ("runner", "worker")]
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
        for scope in functions_of(file):
            if scope.owner and any(
                base.name.endswith(("ModelRunner", "WorkerBase")) for base in scope.owner.mro
            ):
                continue  # runners and workers call their like by other means
            for call in resolver.body(scope.node).calls:
                for target, sent in _targets(call, runners, workers):
                    yield from _misfit_here(call, sent, scope, target)


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
    patterns = [*_CALLED, _SENT] if any(hint in text for hint in _HINTS) else ()
    return any(not names.isdisjoint(pattern.findall(text)) for pattern in patterns)


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
    if not (string(name) and isinstance(args, ast.Tuple)) or len(call.args) > 2:
        return None
    if isinstance(kwargs, ast.Dict):
        names = [str(key.value) if isinstance(key, ast.Constant) else None for key in kwargs.keys]
        keywords = [ast.keyword(key, value) for key, value in zip(names, kwargs.values, strict=True)]
    else:
        keywords = kwargs.keywords if isinstance(kwargs, ast.Call) else [ast.keyword(None, kwargs)]
    return ast.copy_location(ast.Call(ast.Name(string(name)), args.elts, keywords), call)


def _misfit_here(call: ast.Call, sent: ast.Call, scope: Scope, target: _Target) -> Iterator[BadCall]:
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
