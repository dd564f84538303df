"""How many elements an expression or a function's result has, as far as source tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.overrides import audited_scopes, inherited_scopes, is_stub
from npu_upgrade.audit.type_hints import tuple_arities
from npu_upgrade.audit.world import World
from npu_upgrade.program.callees import Resolver, is_context_manager
from npu_upgrade.program.constructors import is_named_tuple, record_fields
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.scope import Callee, Scope

Arities = frozenset[int]
_DEEPEST = 6
_NONE: Arities = frozenset()


class ArityReader:
    """Lengths of tuples. None: source does not tell; empty: never a tuple, but None."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self._known: dict[tuple[int, int], Arities | None] = {}

    def of(self, expr: ast.expr, scope: Scope, depth: int = 0) -> Arities | None:
        """The lengths that the value of ``expr`` may have in a function."""
        if depth > _DEEPEST:
            return None
        if isinstance(expr, ast.Tuple):
            starred = any(isinstance(item, ast.Starred) for item in expr.elts)
            return None if starred else frozenset({len(expr.elts)})
        if isinstance(expr, ast.Constant):
            return _NONE if expr.value is None else None
        if isinstance(expr, (ast.Await, ast.NamedExpr)):
            return self.of(expr.value, scope, depth + 1)
        if isinstance(expr, ast.IfExp):
            return _union([self.of(part, scope, depth + 1) for part in (expr.body, expr.orelse)])
        if isinstance(expr, ast.Name):
            values = self.resolver.body(scope.node).values.get(expr.id)
            return _union([self.of(value, scope, depth + 1) for value in values]) if values else None
        if isinstance(expr, ast.Call):
            return self.of_call(expr, scope, depth)
        return None

    def of_call(self, call: ast.Call, scope: Scope, depth: int = 0) -> Arities | None:
        """The lengths of what a call gives."""
        made = self.resolver.symbol(call.func, scope)
        if isinstance(made, ClassSymbol):
            return frozenset({len(record_fields(made))}) if is_named_tuple(made) else None
        found = self.resolver.callees(call, scope)
        return _union([self.of_function(item, _class_at(item, scope), depth + 1) for item in found])

    def of_function(self, callee: Callee, cls: ClassSymbol | None, depth: int = 0) -> Arities | None:
        """The lengths that a function returns; its hint counts where its statements do not tell."""
        key = (id(callee.node), id(cls))
        if key not in self._known:
            self._known[key] = None  # a function that calls itself tells nothing by that
            self._known[key] = self._returned(callee, cls, depth)
        return self._known[key]

    def _returned(self, callee: Callee, cls: ClassSymbol | None, depth: int) -> Arities | None:
        node, hinted = callee.node, tuple_arities(callee.node.returns)
        body = self.resolver.body(node)
        if body.yields or is_context_manager(node):
            return None
        if is_stub(node):
            return frozenset(hinted) or None
        scope = Scope(callee.file, node, callee.owner, cls)
        values = [item.value for item in body.returns if item.value]
        found = _union([self.of(value, scope, depth) for value in values])
        return found if found is not None else frozenset(hinted) or None


def method_arities(reader: ArityReader, method: Method, cls: ClassSymbol) -> Arities | None:
    """The lengths that a method returns on objects of ``cls``."""
    return reader.of_function(Callee(method.node, method.owner.file, method.owner, True, "self"), cls)


def _class_at(callee: Callee, scope: Scope) -> ClassSymbol | None:
    return scope.cls if callee.by in ("self", "super") else callee.owner


def _union(parts: list[Arities | None]) -> Arities | None:
    """All of them, None when one is not known or there is none."""
    known = [part for part in parts if part is not None]
    return frozenset().union(*known) if parts and len(known) == len(parts) else None


@dataclass(frozen=True)
class Unpacking:
    """A place that asks for ``count`` elements of a value that has ``arities``.

    ``source`` is the function that gives the value; ``inherited`` tells that the place is
    upstream's and the function is not.
    """

    scope: Scope
    line: int
    count: int
    value: ast.expr
    arities: Arities
    source: Callee | None
    index: bool = False
    inherited: bool = False


def wrong_unpackings(world: World, reader: ArityReader, fitting: set[int]) -> Iterator[Unpacking]:
    """The places whose number of elements is none of those the value may have.

    Functions whose results are taken apart as they should be are added to ``fitting``, by identity.
    """
    resolver = reader.resolver
    audited = {id(file) for file in world.files}
    seen: set[tuple[int, int]] = set()
    for inherited, scopes in ((False, audited_scopes), (True, inherited_scopes)):
        for scope in scopes(world, resolver):
            for found in _in_scope(scope, reader, inherited, fitting):
                source = found.source
                mine = source is not None and id(source.file) in audited
                key = (id(found.value), id(source.node) if source else 0)
                if key not in seen and (mine or not inherited or scope.file.project == "vllm-omni"):
                    seen.add(key)
                    yield found


def _in_scope(scope: Scope, reader: ArityReader, inherited: bool, fitting: set[int]) -> Iterator[Unpacking]:
    body = reader.resolver.body(scope.node)
    for target, value in body.unpacked:
        if found := _judged(scope, value, reader):
            arities, source = found
            if len(target.elts) not in arities:
                yield Unpacking(
                    scope, target.lineno, len(target.elts), value, arities, source, inherited=inherited
                )
            elif source:
                fitting.add(id(source.node))
    for node in body.indexed:
        place = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(place, int) and isinstance(node.value, (ast.Call, ast.Name)):
            found = _judged(scope, node.value, reader)
            if found and place >= max(found[0]):
                count = place + 1
                yield Unpacking(scope, node.lineno, count, node.value, *found, True, inherited)


def _judged(scope: Scope, value: ast.expr, reader: ArityReader) -> tuple[Arities, Callee | None] | None:
    """The lengths of a called function's result, None when they are not known."""
    call = _call(value, scope, reader)
    if call is None:
        return None
    arities = reader.of(call, scope)
    if not arities:
        return None
    callees = reader.resolver.callees(call, scope)
    return arities, callees[0] if callees else None


def _call(value: ast.expr, scope: Scope, reader: ArityReader) -> ast.Call | None:
    """The call whose result a value is, through one local name."""
    if isinstance(value, ast.Name):
        value = reader.resolver.body(scope.node).value(value.id) or value
    if isinstance(value, ast.Await):
        value = value.value
    return value if isinstance(value, ast.Call) else None
