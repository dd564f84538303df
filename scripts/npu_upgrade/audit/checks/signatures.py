"""Overrides whose signature no longer fits their parents', or the calls that upstream makes."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.override_calls import BadCall, bad_calls, outside_calls
from npu_upgrade.audit.overrides import audited_classes, is_stub, overriding
from npu_upgrade.audit.type_hints import lost_parameters, lost_returns
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, last_name, not_taken, signature
from npu_upgrade.program.callees import Resolver, is_context_manager, resolver_of
from npu_upgrade.program.program import Method

ABOUT = "overrides that do not fit their parents' signatures, hints, or upstream's calls of them"


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    passed: set[tuple[int, str]] = set()
    for bad in itertools.chain(bad_calls(world, resolver), outside_calls(world, resolver)):
        passed |= {(id(bad.callee.node), name) for name in bad.names}
        yield _called(bad)
    for cls in audited_classes(world) if world.of_omni else world.classes:
        for method, parents in overriding(cls):
            if _says_so(method):
                continue
            yield from _parameters(method, parents, passed)
            yield from _kinds(method, parents, resolver)
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


def _misfits(own: Function, parent: Function) -> list[str]:
    """What of the parent's parameters the override does not take, less what cannot matter to callers.

    A private method, and a module's ``forward``, is called by those who know what it asks for.
    """
    takes = {arg.arg for arg in [*own.args.args, *own.args.kwonlyargs]}
    names = [name for name in not_taken(own, parent) if name not in takes]
    if own.args.kwarg:
        names = [name for name in names if " " in name]
    if own.args.vararg:
        places = {arg.arg for arg in [*parent.args.posonlyargs, *parent.args.args]}
        names = [name for name in names if name not in places]
    if own.name.startswith(("_", "forward")) or parent.args.vararg or parent.args.kwarg:
        names = [name for name in names if " " not in name]
    return names


def _kinds(method: Method, parents: list[Method], resolver: Resolver) -> Iterator[Finding]:
    """Property against method, static against bound, coroutine or generator against function."""
    own = _nature(method, resolver)
    for parent in parents:
        theirs = _nature(parent, resolver)
        if is_stub(parent.node) or is_stub(method.node):
            own, theirs = own - {"generator"}, theirs - {"generator"}
        if own != theirs:
            words = [", ".join(sorted(kinds)) or "a plain method" for kinds in (own, theirs)]
            what = f"{method.qualname} is {words[0]}, {parent.qualname} is {words[1]}"
            yield _finding("method-kind", method, parent, " [kind]", what)
            return


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


def _nature(method: Method, resolver: Resolver) -> frozenset[str]:
    node = method.node
    names = {"property" if "property" in last_name(item) else last_name(item) for item in node.decorator_list}
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
    args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return {arg.arg: arg.annotation for arg in args if arg.annotation}
