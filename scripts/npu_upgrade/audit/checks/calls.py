"""Calls in NPU code that do not fit the function or constructor they reach, or now mean other parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npu_upgrade.audit.calls.handed_over import BadConstructor, bad_constructors
from npu_upgrade.audit.calls.scopes import audited_scopes
from npu_upgrade.audit.calls.shifted import Shift, Shifts
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import misfit, signature, signature_change
from npu_upgrade.program.callees import Resolver, resolver_of
from npu_upgrade.program.program import File
from npu_upgrade.program.scope import Callee, Scope

NAME = "calls"
ABOUT = "calls that do not fit the signature of what they reach"
_LONG = 120


@dataclass(frozen=True)
class _Judged:
    """A call with what it reaches on one class; the reason is empty where it fits."""

    call: ast.Call
    scope: Scope
    callee: Callee
    reason: str


def check(world: World) -> Iterator[Finding]:
    resolver = resolver_of(world.program)
    audited = {id(file) for file in world.files}
    calls = _judged(world, resolver)
    for judged in calls.values():
        wrong = {id(item.callee.node): item for item in judged if item.reason}
        everywhere = all(item.reason for item in judged)
        for item in wrong.values():
            # What a class does not have to override is upstream's on those for which it is not meant.
            if everywhere or id(item.callee.file) in audited:
                yield _finding(item)
    yield from _shifted(world, calls.values())
    for bad in bad_constructors(world, resolver):
        yield _handed_over(bad)


def _shifted(world: World, calls: Iterable[list[_Judged]]) -> Iterator[Finding]:
    """The calls that fit and whose arguments land elsewhere than in the old pair."""
    if world.old is None:
        return
    shifts = Shifts(world.old)
    for judged in calls:
        found = ((item, shifts.of(item.call, item.callee, item.scope)) for item in judged if not item.reason)
        if first := next(((item, shift) for item, shift in found if shift), None):
            yield _moved(*first)


def _judged(world: World, resolver: Resolver) -> dict[int, list[_Judged]]:
    """The calls of the audited files by identity, each on all classes on whose objects it runs."""
    found: dict[int, list[_Judged]] = {}
    for scope in audited_scopes(world, resolver):
        for call in resolver.body(scope.node).calls:
            if callees := resolver.callees(call, scope):
                reasons = [misfit(call, callee.node, bound=callee.bound) for callee in callees]
                reason = reasons[0] if all(reasons) else ""
                found.setdefault(id(call), []).append(_Judged(call, scope, callees[0], reason))
    return found


def _finding(judged: _Judged) -> Finding:
    call, scope, callee, reason = judged.call, judged.scope, judged.callee, judged.reason
    text = unparse(call.func)
    return Finding(
        check=NAME,
        kind="constructor" if callee.makes else "call",
        owner=scope.name,
        subject=f"{text}: {reason}",
        what=f"{scope.name or 'the module'} calls {text}(), which {reason}",
        here=_side(scope.file, call.lineno, unparse(call)),
        there=_side(callee.file, callee.node.lineno, signature(callee.node)),
        incident="S",
        why="The call raises TypeError as soon as it runs.",
        todo=f"Give {callee.name} what its signature takes now, and see what the change upstream was for.",
        like="vllm-ascend #17140",
    )


def _moved(judged: _Judged, shift: Shift) -> Finding:
    call, scope, callee = judged.call, judged.scope, judged.callee
    func, argument = unparse(call.func), unparse(shift.argument)
    change = f"{shift.had.arg} -> {shift.has.arg}"
    return Finding(
        check=NAME,
        kind="shifted",
        owner=scope.name,
        subject=f"{func}: {change}",
        what=f"{scope.name or 'a module'} gives {func}() {argument} as {shift.has.arg}, once {shift.had.arg}",
        here=_side(scope.file, call.lineno, unparse(call)),
        there=_side(callee.file, callee.node.lineno, signature_change(shift.before, callee.node)),
        incident="S",
        why="The count still fits, so that the call runs with its arguments in the wrong places.",
        todo=f"Give {callee.name} its arguments in their new order, or by name.",
        like="vllm-ascend #17140",
    )


def _handed_over(bad: BadConstructor) -> Finding:
    cls, file = bad.cls, bad.file
    text = signature(bad.text) if isinstance(bad.text, ast.FunctionDef) else unparse(bad.text)
    return Finding(
        check=NAME,
        kind="handed-over",
        owner=cls.name,
        subject=f"__init__: {bad.reason}",
        what=f"{file.path} makes objects of {cls.name}, whose constructor {bad.reason}",
        here=_side(cls.file, bad.own.lineno, signature(bad.own)),
        there=_side(file, bad.line, text),
        incident="S",
        why="Upstream makes the object as it would its own class's, and the call raises TypeError.",
        todo=f"Let the constructor of {cls.name} take what upstream gives.",
        like="vllm-omni #6204",
    )


def _side(file: File, line: int, text: str) -> Side:
    return Side(file.project, file.path, line, text if len(text) <= _LONG else text[: _LONG - 3] + "...")
