"""Where a function stands, and what its calls may reach."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from npu_upgrade.code.signatures import Function, every_parameter, is_bound, named_of, places_of
from npu_upgrade.code.walk import dotted, last_name, string, walk
from npu_upgrade.program.program import ClassSymbol, File, Method

BoundBy = Literal["value", "annotation", "element", "key", "global", "unknown"]


@dataclass(frozen=True)
class Binding:
    """One way a name gets its value: that of ``node``, as annotated, an item or key of it, or as a global."""

    how: BoundBy
    node: ast.expr | None = None


@dataclass
class Locals:
    """The names of one function with their bindings; nested functions and comprehensions count too.

    ``asked`` are attribute names it looks for by ``hasattr`` and the like, ``narrowed`` dotted
    texts of values it tests with ``isinstance``.
    """

    names: dict[str, list[Binding]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    narrowed: set[str] = field(default_factory=set)

    def bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)


_BINDING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.Global),
    *(ast.With, ast.AsyncWith, ast.ExceptHandler, ast.Import, ast.ImportFrom),
)


@functools.lru_cache(maxsize=65536)  # a node is its own key
def locals_of(function: Function | ast.Module) -> Locals:
    """The local names of a function, parameters included; of a module, those of all its functions."""
    found = Locals()
    for node in walk(function):
        if isinstance(node, (Function, ast.Lambda)):
            _parameters(node, found, annotated=node is function)
            if node is not function and not isinstance(node, ast.Lambda):
                found.bind(node.name, Binding("unknown"))
        elif isinstance(node, ast.Call):
            _tests(node, found)
        elif isinstance(node, _BINDING):
            for name, binding in _bindings(node):
                found.bind(name, binding)
    return found


def _parameters(node: Function | ast.Lambda, found: Locals, annotated: bool) -> None:
    named = named_of(node.args) if annotated else []
    for arg in every_parameter(node.args):
        known = arg in named and arg.annotation is not None
        found.bind(arg.arg, Binding("annotation", arg.annotation) if known else Binding("unknown"))


def _tests(node: ast.Call, found: Locals) -> None:
    name = last_name(node.func)
    if name in ("hasattr", "getattr", "setattr", "delattr") and len(node.args) > 1:
        found.asked |= {name for name in [string(node.args[1])] if name}
    elif name in ("isinstance", "issubclass", "type") and node.args:
        found.narrowed.add(dotted(node.args[0]))


def _bindings(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _assigned(target, node.value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, Binding("annotation", node.annotation)
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, Binding("value", node.value)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield from _looped(node.target, node.iter)
    elif isinstance(node, ast.Global):
        yield from ((name, Binding("global", ast.Name(name))) for name in node.names)
    elif isinstance(node, ast.AugAssign):
        yield from _unknown(node.target)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            yield from _unknown(item.optional_vars)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, Binding("unknown")
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (
            (alias.asname or alias.name.partition(".")[0], Binding("unknown")) for alias in node.names
        )


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, Binding("value", value)
    elif (
        isinstance(target, (ast.Tuple, ast.List))
        and isinstance(value, (ast.Tuple, ast.List))
        and len(target.elts) == len(value.elts)
    ):
        for part, item in zip(target.elts, value.elts, strict=True):
            yield from _assigned(part, item)
    else:
        yield from _unknown(target)


def _looped(target: ast.expr, over: ast.expr) -> Iterator[tuple[str, Binding]]:
    """A loop over a container, over ``d.items()``, ``d.values()``, ``enumerate(c)`` or ``zip(c, ...)``."""
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    bindings: list[Binding] = [Binding("key", over)] if len(parts) == 1 else []
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
        owner = over.func.value
        both = [Binding("key", owner), Binding("element", owner)]
        bindings = {"items": both, "values": both[1:], "keys": both[:1]}.get(over.func.attr, bindings)
    elif isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.args:
        if over.func.id == "enumerate":
            bindings = [Binding("unknown"), Binding("key", over.args[0])]
        elif over.func.id == "zip":
            bindings = [Binding("key", arg) for arg in over.args]
    if len(bindings) != len(parts):
        yield from _unknown(target)
        return
    for part, binding in zip(parts, bindings, strict=True):
        if isinstance(part, ast.Name):
            yield part.id, binding
        else:
            yield from _unknown(part)


def _unknown(target: ast.expr | None) -> Iterator[tuple[str, Binding]]:
    for node in walk(target) if target else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, Binding("unknown")


How = Literal["self", "super", "name", "attribute"]


@dataclass(frozen=True)
class Scope:
    """A function with where it stands; ``cls`` is the class of ``self``, ``owner`` the one that has it."""

    file: File
    node: Function | ast.Module
    owner: ClassSymbol | None = None
    cls: ClassSymbol | None = None

    @property
    def name(self) -> str:
        if isinstance(self.node, ast.Module):
            return ""
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name

    @property
    def self_name(self) -> str | None:
        """The name of the object a method works on."""
        if self.owner is None or isinstance(self.node, ast.Module) or not is_bound(self.node):
            return None
        return next((arg.arg for arg in places_of(self.node.args)), None)

    @property
    def first(self) -> str | None:
        """The name of the object, None in a class method."""
        on_class = isinstance(self.node, ast.Module) or "classmethod" in decorators(self.node)
        return None if on_class else self.self_name

    @property
    def locals(self) -> Locals:
        return locals_of(self.node)


def scope_of(cls: ClassSymbol, method: Method) -> Scope:
    """Where a method's names and its ``self`` are looked up when it runs on an object of ``cls``."""
    return Scope(method.owner.file, method.node, method.owner, cls)


TRANSPARENT = {
    *("staticmethod", "classmethod", "abstractmethod", "override", "final", "cache", "lru_cache"),
}
"""Decorators that leave a function's signature and its value as they are."""

PROPERTIES = {"property", "cached_property", "abstractproperty"}


def decorators(node: Function) -> set[str]:
    """The last names of a function's decorators."""
    return set(map(last_name, node.decorator_list))


@dataclass(frozen=True)
class Callee:
    """A function a call may reach; ``owner`` is the class of a method or constructor.

    ``bound``: its first parameter comes from the object it is called on. ``by`` tells how it was
    found: ``self``, ``super``, ``name`` (an imported function or class), ``attribute`` (typed by
    what ``self.x`` or a local name is set to).
    """

    node: Function
    file: File
    owner: ClassSymbol | None
    bound: bool
    by: How
    makes: ClassSymbol | None = None

    @property
    def name(self) -> str:
        if self.makes:
            return self.makes.name
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name
