"""NamedTuple states kept on ``self`` between two methods: where they are made and taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.calls.arities import ArityReader
from npu_upgrade.audit.finding import Side
from npu_upgrade.audit.world import World
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.constructors import is_named_tuple, record_fields
from npu_upgrade.program.program import ClassSymbol
from npu_upgrade.program.running import running_methods, scope_of
from npu_upgrade.program.scope import Scope


@dataclass(frozen=True)
class StateProblem:
    """One disagreement about a state; the fields are a finding's."""

    kind: str
    owner: str
    subject: str
    what: str
    here: Side
    there: Side


@dataclass(frozen=True)
class _Maker:
    state: ClassSymbol
    scope: Scope
    line: int


def state_problems(world: World, reader: ArityReader) -> Iterator[StateProblem]:
    """States taken apart into another number or order of fields than they were made with."""
    resolver = reader.resolver
    audited = {id(file) for file in world.files}
    for cls in world.classes:
        scopes = [scope_of(cls, method) for method in running_methods(cls, resolver)]
        makers = _makers(scopes, resolver)
        if not makers:
            continue
        for scope in scopes:
            for target, attribute in _taken(scope, resolver):
                for maker in makers.get(attribute, []):
                    if id(scope.file) in audited or id(maker.scope.file) in audited:
                        yield from _compared(target, attribute, scope, maker)
    yield from _fields_behind(world)


def _makers(scopes: list[Scope], resolver: Resolver) -> dict[str, list[_Maker]]:
    """The NamedTuples that are put on ``self``, by attribute."""
    found: dict[str, list[_Maker]] = {}
    for scope in scopes:
        if scope.owner is None:
            continue
        for name, places in scope.owner.assigned.items():
            for method, stmt in places:
                value = stmt.value if method.node is scope.node and isinstance(stmt, ast.Assign) else None
                state = resolver.symbol(value.func, scope) if isinstance(value, ast.Call) else None
                if isinstance(state, ClassSymbol) and is_named_tuple(state):
                    found.setdefault(name, []).append(_Maker(state, scope, stmt.lineno))
    return found


def _taken(scope: Scope, resolver: Resolver) -> Iterator[tuple[ast.Tuple | ast.List, str]]:
    """The unpackings of attributes of ``self``, straight or by way of a local name."""
    body = resolver.body(scope.node)
    for target, value in body.unpacked:
        if isinstance(value, ast.Name):
            value = body.value(value.id) or value
        if isinstance(value, ast.Attribute) and _is_self(value.value, scope):
            yield target, value.attr


def _compared(
    target: ast.Tuple | ast.List, attribute: str, scope: Scope, maker: _Maker
) -> Iterator[StateProblem]:
    fields = [item.name for item in record_fields(maker.state)]
    names = [_plain(item) for item in target.elts]
    here = Side(scope.file.project, scope.file.path, target.lineno, f"{len(names)} from self.{attribute}")
    there = Side(
        *(maker.scope.file.project, maker.scope.file.path, maker.line),
        f"{maker.scope.name} makes a {maker.state.name} of {len(fields)}",
    )
    owner, subject = scope.name, f"{attribute}: {maker.scope.name}"
    if len(fields) != len(names):
        what = (
            f"{scope.name} takes {len(names)} elements from self.{attribute}, "
            f"which {maker.scope.name} makes with {len(fields)}: {_difference(names, fields)}"
        )
        yield StateProblem("state", owner, subject, what, here, there)
        return
    swapped = [name for name, own in zip(names, fields, strict=True) if name != own and name in fields]
    if swapped:
        what = (
            f"{scope.name} takes {', '.join(swapped)} from another place of self.{attribute} than its field"
        )
        yield StateProblem("state-order", owner, subject, what, here, there)


def _fields_behind(world: World) -> Iterator[StateProblem]:
    """States of the audited files that lack a field of the upstream state of the same name."""
    for file in world.worker_files:
        parents = [owner.file for cls in file.classes.values() for owner in cls.mro[1:]]
        for state in filter(is_named_tuple, file.classes.values()):
            others = [parent.classes.get(state.name) for parent in parents if parent is not file]
            upstream = next((other for other in others if other and is_named_tuple(other)), None)
            if upstream and (lacking := _lacking(state, upstream)):
                what = f"{state.name} has no {lacking}, which it has in {upstream.file.path}"
                yield StateProblem("state-fields", state.name, lacking, what, _size(state), _size(upstream))


def _lacking(state: ClassSymbol, upstream: ClassSymbol) -> str:
    own = {item.name for item in record_fields(state)}
    return ", ".join(item.name for item in record_fields(upstream) if item.name not in own)


def _size(state: ClassSymbol) -> Side:
    text = f"{len(record_fields(state))} fields"
    return Side(state.project, state.file.path, state.node.lineno, text)


def _is_self(expr: ast.expr, scope: Scope) -> bool:
    return isinstance(expr, ast.Name) and expr.id == scope.self_name


def _difference(names: list[str], fields: list[str]) -> str:
    extra = [name for name in names if name not in fields]
    lacking = [name for name in fields if name not in names]
    parts = [("not made", extra), ("not taken", lacking)]
    return "; ".join(f"{word}: {', '.join(items)}" for word, items in parts if items)


def _plain(item: ast.expr) -> str:
    return item.id if isinstance(item, ast.Name) else item.attr if isinstance(item, ast.Attribute) else ""
