"""What methods do with the attributes of ``self``: reads, writes, guards and calls of ``super()``."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from npu_upgrade.code.signatures import Function, is_bound, places_of
from npu_upgrade.code.walk import branches, children, is_super, last_name, reached
from npu_upgrade.ground.held import held
from npu_upgrade.program.program import ClassSymbol, Method

_CATCHES = {"AttributeError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Write:
    """One assignment to an attribute; ``value`` and ``annotation`` are None where there is none to tell."""

    node: ast.expr
    value: ast.expr | None = None
    annotation: ast.expr | None = None


@dataclass
class SelfUse:
    """The attributes that one method touches; lines are 1-based.

    ``reads`` holds unguarded reads, ``guards`` the names it asks ``hasattr`` or ``getattr``
    with a default for, ``supers`` the names it calls on to by ``super()``, ``explicit`` those
    by the name of a class, as pairs of that name and the method's. ``open`` tells that it
    sets attributes by names that the source does not tell. ``declared`` are annotations
    without a value.
    """

    reads: dict[str, list[ast.expr]] = field(default_factory=dict)
    writes: dict[str, list[Write]] = field(default_factory=dict)
    declared: dict[str, ast.expr] = field(default_factory=dict)
    guards: set[str] = field(default_factory=set)
    supers: dict[str, ast.expr] = field(default_factory=dict)
    explicit: list[tuple[str, str]] = field(default_factory=list)
    open: bool = False


@functools.lru_cache(maxsize=65536)  # a node is its own key
def self_use(method: Function) -> SelfUse:
    """How a method uses its first parameter; nothing of a static method."""
    places = places_of(method.args)
    found = SelfUse()
    if places and is_bound(method):
        walker = _Walker(places[0].arg, found)
        for node in reached(method.body):
            walker.visit(node)
        for name in found.guards:
            found.reads.pop(name, None)
    return found


@held
def methods_on(cls: ClassSymbol) -> tuple[Method, ...]:
    """The methods that calls on an object of the class reach, by name or on from there by ``super()``."""
    queue = [found for name in _names(cls) if (found := cls.lookup(name))]
    reached: dict[int, Method] = {}
    while queue:
        method = queue.pop()
        if id(method.node) not in reached:
            reached[id(method.node)] = method
            queue += onward(cls, method)
    return tuple(reached.values())


def _names(cls: ClassSymbol) -> dict[str, None]:
    return {name: None for owner in cls.mro for name in owner.methods}


def onward(cls: ClassSymbol, method: Method) -> Iterator[Method]:
    use = self_use(method.node)
    for name in use.supers:
        if found := cls.after(method.owner, name):
            yield found
    for owner, name in use.explicit:
        known = next((base for base in cls.mro if base.name == owner), None)
        if known and (found := known.lookup(name)):
            yield found


class _Walker(ast.NodeVisitor):
    """Collects into ``found`` what the statements of one method do with ``first``."""

    def __init__(self, first: str, found: SelfUse) -> None:
        self.first, self.found, self.caught = first, found, 0
        self.tests: list[ast.expr] = []

    def visit(self, node: ast.AST) -> None:
        visit = _VISITS.get(node.__class__)
        if visit:
            visit(self, node)
        else:
            self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for child in children(node):
            self.visit(child)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._is_self(node.value):
            if isinstance(node.ctx, ast.Store):
                self._written(Write(node))
            elif isinstance(node.ctx, ast.Load) and not self.caught:
                self.found.reads.setdefault(node.attr, []).append(node)
        elif is_super(node.value):
            self.found.supers.setdefault(node.attr, node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        func = node.func
        name = last_name(func)
        if name in ("hasattr", "getattr", "setattr", "__setattr__", "delattr") and len(node.args) > 1:
            self._by_name(name, node)
        elif isinstance(func, ast.Attribute) and node.args and self._is_self(node.args[0]):
            self.found.explicit.append((last_name(func.value), func.attr))
        elif name == "vars" and node.args and self._is_self(node.args[0]):
            self.found.open = True
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not self._is_attribute(node.target):
            self.generic_visit(node)
        elif node.value is None:
            self.found.declared[node.target.attr] = node.annotation
        else:
            self._written(Write(node.target, node.value, node.annotation))
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            for part, value in _parts(target, node.value):
                if self._is_attribute(part):
                    self._written(Write(part, value))
                else:
                    self.visit(part)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if self._is_attribute(node.target):
            if not self.caught:
                self.found.reads.setdefault(node.target.attr, []).append(node.target)
            self.visit(node.value)
        else:
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._branches(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branches(node)

    def visit_Try(self, node: ast.Try) -> None:
        caught = any(handler.type is None or _caught(handler.type) & _CATCHES for handler in node.handlers)
        self.caught += caught
        for inner in node.body:
            self.visit(inner)
        self.caught -= caught
        for inner in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(inner)

    def visit_FunctionDef(self, node: Function | ast.Lambda) -> None:
        if self.first not in {arg.arg for arg in places_of(node.args)}:
            self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Methods of a class inside a method have a ``self`` of their own."""

    def _branches(self, node: ast.If | ast.IfExp) -> None:
        """A condition with what depends on it, less what it or a condition around it rules out."""
        test = node.test
        body, orelse = branches(node)
        self.visit(test)
        if not (isinstance(node, ast.IfExp) and self._holds(test)):
            for inner in orelse:
                self.visit(inner)
        self.tests.append(test)
        for inner in body:
            self.visit(inner)
        self.tests.pop()

    def _holds(self, test: ast.expr) -> bool:
        """Whether a condition around it says the same."""
        around = [part for outer in self.tests for part in _conjuncts(outer)]
        return ast.dump(test) in {ast.dump(part) for part in around}

    def _by_name(self, function: str, node: ast.Call) -> None:
        """``hasattr``, ``getattr`` and ``setattr``."""
        name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if is_super(node.args[0]) and isinstance(name, str):
            self.found.guards.add(name)
        if not self._is_self(node.args[0]):
            return
        if not isinstance(name, str):
            self.found.open |= function in ("setattr", "__setattr__")
        elif function in ("setattr", "__setattr__"):
            self.found.writes.setdefault(name, []).append(Write(node, node.args[-1]))
        elif function == "getattr" and len(node.args) == 2 and not self.caught:
            self.found.reads.setdefault(name, []).append(node)
        elif function != "delattr":
            self.found.guards.add(name)

    def _written(self, write: Write) -> None:
        name = write.node.attr if isinstance(write.node, ast.Attribute) else ""
        self.found.writes.setdefault(name, []).append(write)

    def _is_attribute(self, node: ast.expr) -> TypeGuard[ast.Attribute]:
        return isinstance(node, ast.Attribute) and self._is_self(node.value)

    def _is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.first


# NodeVisitor looks a method up by its name for each node.
_VISITS: dict[type, Callable[[_Walker, Any], None]] = {
    getattr(ast, name.removeprefix("visit_")): visit
    for name, visit in vars(_Walker).items()
    if name.startswith("visit_")
}


def _parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The targets of an assignment, each with its part of the value where that can be told."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
    for place, part in enumerate(target.elts):
        yield part, value.elts[place] if same and isinstance(value, (ast.Tuple, ast.List)) else None


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _caught(node: ast.expr) -> set[str]:
    return {last_name(item) for item in (node.elts if isinstance(node, ast.Tuple) else [node])}
