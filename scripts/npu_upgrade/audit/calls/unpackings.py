"""Places that take a result apart, with the number of elements it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.calls.arities import Arities, ArityReader
from npu_upgrade.audit.calls.scopes import audited_scopes, inherited_scopes
from npu_upgrade.audit.world import World
from npu_upgrade.program.scope import Callee, Scope


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
