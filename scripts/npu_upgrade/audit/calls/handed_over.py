"""NPU classes that upstream makes objects of without knowing them, and what it gives their constructors.

A platform names its classes in strings, a backend returns them from methods, a registry puts them
in place of upstream's. Upstream constructs all of them as it would its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.calls.overrides import audited_classes, is_stub
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, misfit, not_taken
from npu_upgrade.code.walk import walk
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.constructors import constructor
from npu_upgrade.program.program import ClassSymbol, File
from npu_upgrade.program.running import running_methods, scope_of
from npu_upgrade.program.scope import Scope, dotted

_BY_NAME = "resolve_obj_by_qualname"
_REGISTER = "register_oot"


@dataclass(frozen=True)
class BadConstructor:
    """A class whose constructor does not fit; ``text`` is upstream's call, or the constructor it knows."""

    cls: ClassSymbol
    own: Function
    reason: str
    file: File
    line: int
    text: ast.AST


def bad_constructors(world: World, resolver: Resolver) -> Iterator[BadConstructor]:
    """The handed-over classes that cannot be made as upstream makes them."""
    named = _named_by_platforms(world, resolver)
    told: set[int] = set()
    for bad in _constructed_by_name(world, resolver, named):
        told.add(id(bad.cls))
        yield bad
    for cls in [*_returned(world, resolver), *_registered(world, resolver)]:
        if id(cls) not in told:
            told.add(id(cls))
            yield from _against_parent(cls)


def _named_by_platforms(world: World, resolver: Resolver) -> dict[str, list[ClassSymbol]]:
    """The classes whose names a platform's methods return, by method."""
    found: dict[str, list[ClassSymbol]] = {}
    for cls in audited_classes(world):
        if any(owner.name == "Platform" for owner in cls.mro[1:]):
            for method in running_methods(cls, resolver):
                if method.owner.project != "vllm":
                    found.setdefault(method.name, []).extend(_strings(method.node, resolver))
    return {name: classes for name, classes in found.items() if classes}


def _strings(node: Function, resolver: Resolver) -> Iterator[ClassSymbol]:
    for item in resolver.body(node).returns:
        for text in walk(item):
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and "." in text.value:
                module, _, name = text.value.rpartition(".")
                symbol = resolver.program.lookup(module, name)
                if isinstance(symbol, ClassSymbol):
                    yield symbol


def _constructed_by_name(
    world: World, resolver: Resolver, named: dict[str, list[ClassSymbol]]
) -> Iterator[BadConstructor]:
    """Upstream's calls of what a platform's method names."""
    tree = world.program.trees["vllm"]
    for path in tree.list("vllm"):
        text = tree.read(path) if named and path.endswith(".py") else ""
        methods = [name for name in named if f".{name}(" in text] if _BY_NAME in text else []
        file = world.program.file(path) if methods else None
        for scope in _functions(file) if file else []:
            for call in resolver.body(scope.node).calls:
                source = _source(call.func, scope, resolver)
                for cls in named.get(source, []) if source else []:
                    yield from _against_call(cls, call, scope.file)


def _source(func: ast.expr, scope: Scope, resolver: Resolver) -> str | None:
    """The platform's method that names what is called: ``resolve_obj_by_qualname(platform.method())``."""
    value = resolver.body(scope.node).value(func.id) if isinstance(func, ast.Name) else func
    if not (isinstance(value, ast.Call) and (dotted(value.func) or "").endswith(_BY_NAME) and value.args):
        return None
    inner = value.args[0]
    if isinstance(inner, ast.Name):
        inner = resolver.body(scope.node).value(inner.id)
    return inner.func.attr if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) else None


def _against_call(cls: ClassSymbol, call: ast.Call, file: File) -> Iterator[BadConstructor]:
    own = constructor(cls)
    reason = misfit(call, own, bound=True) if own else ""
    if own and reason:
        yield BadConstructor(cls, own, reason, file, call.lineno, call)


def _returned(world: World, resolver: Resolver) -> Iterator[ClassSymbol]:
    """The classes that overrides of upstream's methods return."""
    for cls in audited_classes(world):
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
        for scope in _functions(file):
            body = resolver.body(scope.node)
            if any((dotted(call.func) or "").endswith(_REGISTER) for call in body.calls + body.excused_calls):
                tables = [node for node in walk(scope.node) if isinstance(node, ast.Dict)]
                for value in (value for table in tables for value in table.values):
                    symbol = resolver.symbol(value, scope)
                    if isinstance(symbol, ClassSymbol):
                        yield symbol


def _against_parent(cls: ClassSymbol) -> Iterator[BadConstructor]:
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
        reason = f"does not take {', '.join(names)}"
        yield BadConstructor(cls, own, reason, parent.file, upper.lineno, upper)


def _functions(file: File) -> Iterator[Scope]:
    yield from (Scope(file, function.node) for function in file.functions.values())
    for cls in file.classes.values():
        yield from (Scope(file, method.node, cls) for method in cls.methods.values())
