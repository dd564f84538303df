"""Calls in NPU code that do not fit the function or constructor they reach, or now mean other parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.overrides import audited_scopes, functions_of, is_stub, users_of
from npu_upgrade.audit.type_hints import lost_parameters
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import (
    Function,
    misfit,
    named_of,
    not_taken,
    places_of,
    signature,
    signature_change,
)
from npu_upgrade.code.walk import dotted, last_name, string, walk
from npu_upgrade.program.callees import Resolver, resolver_of
from npu_upgrade.program.constructors import constructor
from npu_upgrade.program.program import ClassSymbol, File
from npu_upgrade.program.scope import Callee, Scope, decorators, scope_of
from npu_upgrade.program.self_use import methods_on
from npu_upgrade.program.spread import with_keys

ABOUT = "calls that do not fit the signature of what they reach"


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
    yield from _handed_over(world, resolver)


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
    """The calls of the audited files by identity, each on all classes on whose objects it runs; with those
    of the project's other files that come to functions of the audited ones."""
    found: dict[int, list[_Judged]] = {}
    audited = {id(file) for file in world.files}
    own = tuple(audited_scopes(world, resolver))
    mine = {id(scope.node) for scope in own}
    for scope in (*own, *users_of(world)):
        for call in resolver.body(scope.node).calls:
            callees = resolver.callees(call, scope)
            if id(scope.node) not in mine:
                # What others call may be of any of several classes, and has to fit the one that is ours.
                callees = [callee for callee in callees if id(callee.file) in audited]
            if callees:
                given = with_keys(call, scope.node)
                reasons = [misfit(given, callee.node, bound=callee.bound) for callee in callees]
                reason = reasons[0] if all(reasons) else ""
                found.setdefault(id(call), []).append(_Judged(call, scope, callees[0], reason))
    return found


def _finding(judged: _Judged) -> Finding:
    call, scope, callee, reason = judged.call, judged.scope, judged.callee, judged.reason
    text = unparse(call.func)
    return Finding(
        kind="constructor" if callee.makes else "call",
        owner=scope.name,
        subject=f"{text}: {reason}",
        what=f"{scope.name or 'the module'} calls {text}(), which {reason}",
        here=side(scope.file, call.lineno, unparse(call)),
        there=side(callee.file, callee.node.lineno, signature(callee.node)),
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
        kind="shifted",
        owner=scope.name,
        subject=f"{func}: {change}",
        what=f"{scope.name or 'a module'} gives {func}() {argument} as {shift.has.arg}, once {shift.had.arg}",
        here=side(scope.file, call.lineno, unparse(call)),
        there=side(callee.file, callee.node.lineno, signature_change(shift.before, callee.node)),
        incident="S",
        why="The count still fits, so that the call runs with its arguments in the wrong places.",
        todo=f"Give {callee.name} its arguments in their new order, or by name.",
        like="vllm-ascend #17140",
    )


_BY_NAME = "resolve_obj_by_qualname"
_REGISTER = "register_oot"


def _handed_over(world: World, resolver: Resolver) -> Iterator[Finding]:
    """The classes that are given to upstream and cannot be made as it makes them."""
    named = _named_by_platforms(world, resolver)
    told: set[int] = set()
    for cls, call, file in _constructed_by_name(world, resolver, named):
        own = constructor(cls)
        if own and (reason := misfit(call, own, bound=True)):
            told.add(id(cls))
            yield _bad(cls, own, reason, side(file, call, unparse(call)))
    for cls in [*_returned(world, resolver), *_registered(world, resolver)]:
        if id(cls) not in told:
            told.add(id(cls))
            yield from _against_parent(cls)


def _bad(cls: ClassSymbol, own: Function, reason: str, there: Side) -> Finding:
    """A class whose constructor does not fit; ``there`` is upstream's call, or the constructor it knows."""
    return Finding(
        kind="handed-over",
        owner=cls.name,
        subject=f"__init__: {reason}",
        what=f"{there.path} makes objects of {cls.name}, whose constructor {reason}",
        here=side(cls.file, own, signature(own)),
        there=there,
        incident="S",
        why="Upstream makes the object as it would its own class's, and the call raises TypeError.",
        todo=f"Let the constructor of {cls.name} take what upstream gives.",
        like="vllm-omni #6204",
    )


def _named_by_platforms(world: World, resolver: Resolver) -> dict[str, list[ClassSymbol]]:
    """The classes whose names a platform's methods return, by method."""
    found: dict[str, list[ClassSymbol]] = {}
    for cls in world.side.classes:
        if any(owner.name == "Platform" for owner in cls.mro[1:]):
            for method in methods_on(cls):
                if method.owner.project != "vllm":
                    found.setdefault(method.name, []).extend(_strings(method.node, resolver))
    return {name: classes for name, classes in found.items() if classes}


def _strings(node: Function, resolver: Resolver) -> Iterator[ClassSymbol]:
    for item in resolver.body(node).returns:
        for text in walk(item):
            module, _, name = string(text).rpartition(".")
            symbol = resolver.program.lookup(module, name) if module else None
            if isinstance(symbol, ClassSymbol):
                yield symbol


def _constructed_by_name(
    world: World, resolver: Resolver, named: dict[str, list[ClassSymbol]]
) -> Iterator[tuple[ClassSymbol, ast.Call, File]]:
    """Upstream's calls of what a platform's method names."""
    tree = world.triple.vllm
    for path in tree.list("vllm"):
        text = world.program.text(path) if named and path.endswith(".py") else ""
        methods = [name for name in named if f".{name}(" in text] if _BY_NAME in text else []
        file = world.program.file(path) if methods else None
        for scope in functions_of(file) if file else []:
            for call in resolver.body(scope.node).calls:
                source = _source(call.func, scope, resolver)
                yield from ((cls, call, scope.file) for cls in (named.get(source, []) if source else []))


def _source(func: ast.expr, scope: Scope, resolver: Resolver) -> str | None:
    """The platform's method that names what is called: ``resolve_obj_by_qualname(platform.method())``."""
    value = resolver.body(scope.node).value(func.id) if isinstance(func, ast.Name) else func
    if not (isinstance(value, ast.Call) and dotted(value.func).endswith(_BY_NAME) and value.args):
        return None
    inner = value.args[0]
    if isinstance(inner, ast.Name):
        inner = resolver.body(scope.node).value(inner.id)
    return inner.func.attr if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) else None


def _returned(world: World, resolver: Resolver) -> Iterator[ClassSymbol]:
    """The classes that overrides of upstream's methods return."""
    for cls in world.side.classes:
        for name, method in cls.methods.items():
            if any(owner.project == "vllm" and name in owner.methods for owner in cls.mro[1:]):
                scope = scope_of(cls, method)
                for item in resolver.body(method.node).returns:
                    symbol = resolver.symbol(item.value, scope) if item.value else None
                    if isinstance(symbol, ClassSymbol):
                        yield symbol


def _registered(world: World, resolver: Resolver) -> Iterator[ClassSymbol]:
    """The classes in the tables of a function that registers them in place of upstream's."""
    for file in world.files:
        if _REGISTER not in file.source:
            continue
        for scope in functions_of(file):
            body = resolver.body(scope.node)
            if any(dotted(call.func).endswith(_REGISTER) for call in body.calls + body.excused_calls):
                tables = [node for node in walk(scope.node) if isinstance(node, ast.Dict)]
                for value in (value for table in tables for value in table.values):
                    symbol = resolver.symbol(value, scope)
                    if isinstance(symbol, ClassSymbol):
                        yield symbol


def _against_parent(cls: ClassSymbol) -> Iterator[Finding]:
    """A constructor that does not take what upstream's nearest one takes."""
    parent = next((owner for owner in cls.mro[1:] if owner.project == "vllm"), None)
    own, upper = constructor(cls), constructor(parent) if parent else None
    if parent is None or own is None or upper is None or own is upper or upper.args.vararg:
        return
    takes = {arg.arg for arg in [*own.args.args, *own.args.kwonlyargs]}
    names = [name for name in not_taken(own, upper) if name not in takes]
    if own.args.vararg or own.args.kwarg:
        names = [name for name in names if " " in name]
    if is_stub(upper):  # what a subclass asks for beyond it is between the two who know the subclass
        names = [name for name in names if " " not in name]
    if names:
        there = side(parent.file, upper, signature(upper))
        yield _bad(cls, own, f"does not take {', '.join(names)}", there)


_KINDS = {"staticmethod", "classmethod"}


@dataclass(frozen=True)
class Shift:
    """The first argument of a call that lands elsewhere: ``had`` was its parameter, ``has`` is."""

    argument: ast.expr
    had: ast.arg
    has: ast.arg
    before: Function


class Shifts:
    """Compares callees with those of the old world; what they were is kept."""

    def __init__(self, old: World) -> None:
        self.old = old
        self._before: dict[int, Function | None] = {}

    def of(self, call: ast.Call, callee: Callee, scope: Scope) -> Shift | None:
        """What shifted in a call that fits; None where nothing did, or the old pair does not tell."""
        before = self.before(callee) if call.args else None
        if before is None or (decorators(before) ^ decorators(callee.node)) & _KINDS:
            return None
        now, then = (places_of(node.args)[int(callee.bound) :] for node in (callee.node, before))
        named = {arg.arg for arg in named_of(callee.node.args)}
        for place, (argument, has, had) in enumerate(zip(call.args, now, then, strict=False)):
            if isinstance(argument, ast.Starred):
                return None
            moved = has.arg != had.arg and (had.arg in named or _contradict(had, has, callee))
            moved = moved and not (_is_meant(argument, has) or _still_given(argument, had, call, now))
            if moved and self._stood(call, place, scope):
                if _is_upstreams(call, callee, scope):
                    return None
                return Shift(argument, had, has, before)
        return None

    def before(self, callee: Callee) -> Function | None:
        """The old pair's function; None when it is not there or has the same text up to its body."""
        key = id(callee.node)
        if key not in self._before:
            self._before[key] = self._find(callee)
        return self._before[key]

    def _find(self, callee: Callee) -> Function | None:
        path = callee.file.path
        tree = self.old.program.trees.get(path.partition("/")[0])
        if tree is None or not tree.exists(path):
            return None
        text = tree.read(path)
        if text == callee.file.source or (not callee.makes and _head(callee) in text):
            return None
        file = self.old.program.file(path)
        if file is None:
            return None
        if callee.owner is None:
            found = file.functions.get(callee.node.name)
            return found.node if found else None
        cls = file.classes.get(callee.owner.name)
        if cls is None or callee.makes:
            return constructor(cls) if cls else None
        method = cls.lookup(callee.node.name)
        return method.node if method else None

    def _stood(self, call: ast.Call, place: int, scope: Scope) -> bool:
        """Whether the old pair's function gives the same argument to the same callee at this place."""
        text = (ast.unparse(call.func), ast.unparse(call.args[place]))
        node = self._same_scope(scope)
        calls = (inner for inner in walk(node) if isinstance(inner, ast.Call)) if node else ()
        given = (inner for inner in calls if len(inner.args) > place)
        return any(text == (ast.unparse(inner.func), ast.unparse(inner.args[place])) for inner in given)

    def _same_scope(self, scope: Scope) -> Function | ast.Module | None:
        file = self.old.program.file(scope.file.path)
        if file is None or isinstance(scope.node, ast.Module):
            return file.tree if file else None
        if scope.owner is None:
            found = file.functions.get(scope.node.name)
            return found.node if found else None
        cls = file.classes.get(scope.owner.name)
        method = cls.methods.get(scope.node.name) if cls else None
        return method.node if method else None


def _is_upstreams(call: ast.Call, callee: Callee, scope: Scope) -> bool:
    """Whether the files of the callee, or of the classes that are built upon, hold the same call."""
    files = [callee.file, *(cls.file for cls in (scope.cls.mro if scope.cls else ()))]
    text, name = ast.unparse(call), last_name(call.func)
    return any(
        text == ast.unparse(node)
        for file in dict.fromkeys(files)
        if file.project != scope.file.project
        for node in file.nodes
        if isinstance(node, ast.Call) and last_name(node.func) == name
    )


def _head(callee: Callee) -> str:
    """The source of a function up to its body."""
    first, last = callee.node.lineno - 1, callee.node.body[0].lineno - 1
    return "\n".join(callee.file.source.split("\n")[first : max(last, first + 1)])


def _contradict(had: ast.arg, has: ast.arg, callee: Callee) -> bool:
    return bool(lost_parameters(had.annotation, has.annotation, (callee.file, callee.file)))


def _still_given(argument: ast.expr, had: ast.arg, call: ast.Call, now: Sequence[ast.arg]) -> bool:
    """Whether the parameter that an argument was for is given the same again, as one None of several."""
    given = (one for one, parameter in zip(call.args, now, strict=False) if parameter.arg == had.arg)
    return any(ast.unparse(one) == ast.unparse(argument) for one in given)


def _is_meant(argument: ast.expr, has: ast.arg) -> bool:
    """Whether an argument bears the name of the parameter it lands on."""
    name = dotted(argument).rpartition(".")[2].lstrip("_")
    return bool(name) and name == has.arg.lstrip("_")
