"""What a function's body does, read once: its calls, unpackings, returns and the names it binds."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.code.names import Import, imports_in
from npu_upgrade.code.signatures import Function, every_parameter
from npu_upgrade.code.walk import last_name

# What Python raises for a call, an unpacking or an index that does not fit.
_MISFITS = frozenset({TypeError, ValueError, IndexError})


@dataclass
class Body:
    """The parts of one function; nested functions are included, nested classes are not.

    ``bound`` are the names it binds other than by import; ``values`` those bound by plain
    assignment alone, each with all it is set to. ``unpacked`` are pairs of a target with a fixed
    number of names and the expression unpacked. ``returns`` are of the function itself.
    A misfit that the code itself expects is none: calls where a TypeError is caught are
    ``excused_calls``, and such unpackings and indices are left out.
    """

    calls: list[ast.Call] = field(default_factory=list)
    excused_calls: list[ast.Call] = field(default_factory=list)
    unpacked: list[tuple[ast.Tuple | ast.List, ast.expr]] = field(default_factory=list)
    indexed: list[ast.Subscript] = field(default_factory=list)
    returns: list[ast.Return] = field(default_factory=list)
    yields: bool = False
    bound: set[str] = field(default_factory=set)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    imports: dict[str, list[Import]] = field(default_factory=dict)

    def value(self, name: str) -> ast.expr | None:
        """What a local name is set to, where that is one expression only."""
        found = self.values.get(name, [])
        return found[0] if len(found) == 1 else None


def read_body(node: Function | ast.Module) -> Body:
    """The parts of a function; of a module, its top level without the functions and classes in it."""
    reader = _Reader(whole=not isinstance(node, ast.Module))
    if not isinstance(node, ast.Module):
        reader.parameters(node.args)
    for child in node.body:
        reader.visit(child, nested=False)
    body = reader.body
    other = reader.bound_otherwise
    body.bound = other | set(body.values)
    body.values = {name: values for name, values in body.values.items() if name not in other}
    return body


class _Reader:
    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.excused: frozenset[type[Exception]] = frozenset()
        self.body = Body()
        self.bound_otherwise: set[str] = set()
        self.special: dict[type[ast.AST], Callable[[Any, bool], bool]] = {
            ast.Name: self.name,
            ast.Attribute: self.attribute,
            ast.Constant: lambda node, nested: True,
            ast.Call: self.call,
            ast.Subscript: self.subscript,
            ast.Assign: self.assign,
            ast.AnnAssign: self.annotated,
            ast.Return: self.returned,
            ast.Yield: self.yielded,
            ast.YieldFrom: self.yielded,
            ast.Try: self.tried,
            ast.TryStar: self.tried,
            ast.With: self.suppressed,
            ast.Import: self.imported,
            ast.ImportFrom: self.imported,
            ast.ExceptHandler: self.caught,
            ast.ClassDef: self.defined,
            ast.FunctionDef: self.defined,
            ast.AsyncFunctionDef: self.defined,
            ast.Lambda: self.anonymous,
        }

    def visit(self, node: ast.AST, nested: bool) -> None:
        """Note what a node is, then look at all below it unless its kind has done so."""
        special = self.special.get(type(node))
        if special is None or not special(node, nested):
            self.below(node, nested)

    def below(self, node: ast.AST, nested: bool) -> None:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                self.all(value, nested)
            elif isinstance(value, ast.AST):
                self.visit(value, nested)

    def all(self, nodes: Iterable[Any], nested: bool) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self.visit(node, nested)

    def name(self, node: ast.Name, nested: bool) -> bool:
        if not isinstance(node.ctx, ast.Load):
            self.bound_otherwise.add(node.id)
        return True

    def attribute(self, node: ast.Attribute, nested: bool) -> bool:
        self.visit(node.value, nested)
        return True

    def call(self, node: ast.Call, nested: bool) -> bool:
        body = self.body
        (body.excused_calls if TypeError in self.excused else body.calls).append(node)
        return False

    def subscript(self, node: ast.Subscript, nested: bool) -> bool:
        if not self.excused & {TypeError, IndexError}:
            self.body.indexed.append(node)
        return False

    def assign(self, node: ast.Assign, nested: bool) -> bool:
        names = [target for target in node.targets if isinstance(target, ast.Name)]
        if len(names) == len(node.targets):
            for target in names:
                self.body.values.setdefault(target.id, []).append(node.value)
            self.visit(node.value, nested)
            return True
        for target in () if self.excused & {TypeError, ValueError} else node.targets:
            fixed = isinstance(target, (ast.Tuple, ast.List))
            if fixed and not any(isinstance(item, ast.Starred) for item in target.elts):
                self.body.unpacked.append((target, node.value))
        return False

    def annotated(self, node: ast.AnnAssign, nested: bool) -> bool:
        if isinstance(node.target, ast.Name) and node.value:
            self.body.values.setdefault(node.target.id, []).append(node.value)
            self.visit(node.value, nested)
            return True
        return False

    def returned(self, node: ast.Return, nested: bool) -> bool:
        self.body.returns += [] if nested else [node]
        return False

    def yielded(self, node: ast.expr, nested: bool) -> bool:
        self.body.yields = self.body.yields or not nested
        return False

    def tried(self, node: ast.Try | ast.TryStar, nested: bool) -> bool:
        """What a handler is written for may happen in the body; the handler then tries another way."""
        excused = [_expected(handler.type) for handler in node.handlers]
        self.excusing(frozenset().union(*excused), node.body, nested)
        for handler, expected in zip(node.handlers, excused, strict=True):
            self.excusing(expected, [handler], nested)
        self.all([*node.orelse, *node.finalbody], nested)
        return True

    def suppressed(self, node: ast.With, nested: bool) -> bool:
        """``with suppress(TypeError):`` is a handler, too."""
        self.all(node.items, nested)
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        named = [arg for call in calls if last_name(call.func) == "suppress" for arg in call.args]
        self.excusing(frozenset().union(*map(_expected, named)), node.body, nested)
        return True

    def excusing(self, errors: frozenset[type[Exception]], nodes: Iterable[ast.AST], nested: bool) -> None:
        before, self.excused = self.excused, self.excused | errors
        self.all(nodes, nested)
        self.excused = before

    def imported(self, node: ast.Import | ast.ImportFrom, nested: bool) -> bool:
        for item in imports_in(node):
            self.body.imports.setdefault(item.bound, []).append(item)
        return True

    def caught(self, node: ast.ExceptHandler, nested: bool) -> bool:
        self.bound_otherwise |= {node.name} if node.name else set()
        return False

    def defined(self, node: Function | ast.ClassDef, nested: bool) -> bool:
        self.bound_otherwise.add(node.name)
        if isinstance(node, ast.ClassDef) or not self.whole:
            return True
        return self.anonymous(node, nested)

    def anonymous(self, node: Function | ast.Lambda, nested: bool) -> bool:
        self.parameters(node.args)
        self.below(node, True)
        return True

    def parameters(self, args: ast.arguments) -> None:
        self.bound_otherwise |= {arg.arg for arg in every_parameter(args)}


def _expected(caught: ast.expr | None) -> frozenset[type[Exception]]:
    """The misfits that a handler is for: a variable may name all; ``Exception`` is any trouble, so none."""
    if isinstance(caught, ast.Tuple):
        return frozenset().union(*map(_expected, caught.elts))
    name = last_name(caught)
    if isinstance(caught, ast.Starred) or (
        isinstance(caught, ast.Name) and name in (name.upper(), name.lower())
    ):
        return _MISFITS
    known = getattr(builtins, name, None)
    return frozenset(error for error in _MISFITS if known in error.__mro__[: -len(Exception.__mro__)])
