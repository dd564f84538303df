"""Results and states with another number of elements than the code that takes them apart expects."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, Side, side
from npu_upgrade.audit.overrides import audited_scopes, inherited_scopes, is_stub, overriding
from npu_upgrade.audit.type_hints import tuple_arities
from npu_upgrade.audit.world import World
from npu_upgrade.code.walk import last_name
from npu_upgrade.program.callees import Resolver, is_context_manager, is_self, resolver_of
from npu_upgrade.program.constructors import is_named_tuple, record_fields
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.scope import Callee, Scope, scope_of
from npu_upgrade.program.self_use import methods_on

ABOUT = "tuples and states with another number of elements than where they are unpacked"


def check(world: World) -> Iterator[Finding]:
    reader = ArityReader(resolver_of(world.program))
    told: set[int] = set()  # what a place that takes it apart has judged already
    for wrong in wrong_unpackings(world, reader, told):
        told.add(id(wrong.source.node) if wrong.source else 0)
        yield _unpacked(wrong)
    for cls in world.own_classes:
        for method, parents in overriding(cls):
            if id(method.node) not in told:
                yield from _overridden(method, parents, reader)
    yield from _states(world, reader)


def _unpacked(wrong: Unpacking) -> Finding:
    scope, source = wrong.scope, wrong.source
    text = ast.unparse(wrong.value)
    gives = f"{source.name if source else text} gives {_numbers(wrong.arities)}"
    here = side(scope.file, wrong.line, f"takes {wrong.count} from {text}")
    there = side(source.file, source.node, gives) if source else None
    if wrong.inherited and there:
        here, there = there, here
    return Finding(
        kind="index" if wrong.index else "unpack",
        owner=scope.name,
        subject=f"{wrong.count} of {_numbers(wrong.arities)}: {text.partition('(')[0]}",
        what=f"{scope.name or scope.file.path} takes {wrong.count} elements from {text}, and {gives}",
        here=here,
        there=there,
        incident="S",
        why="The statement raises ValueError or IndexError as soon as it runs.",
        todo="Take apart what is returned now; see what the element that came or went is for.",
        like="vllm-omni #2157",
    )


def _overridden(method: Method, parents: list[Method], reader: ArityReader) -> Iterator[Finding]:
    """An override whose tuples have another length than those of every parent, or that may give a tensor
    where every parent gives tuples."""
    own = method_arities(reader, method, method.owner)
    theirs = [method_arities(reader, parent, method.owner) for parent in parents]
    if not own or not all(theirs) or not differ(own, [arities or _NONE for arities in theirs]):
        return
    expects: Arities = frozenset().union(*filter(None, theirs))
    given, expected = elements(own), elements(expects)
    parent = parents[0]
    yield Finding(
        kind="override",
        owner=method.owner.name,
        subject=f"{method.name}: {elements(own, '')} for {elements(expects, '')}",
        what=f"{method.qualname} returns {given}, {parent.qualname} returns {expected}",
        here=side(method, text=f"returns {given}"),
        there=side(parent, text=f"returns {expected}"),
        incident="S",
        why="A caller that takes the parent's result apart fails on the override's.",
        todo="Return what the parent returns now, in its order.",
        like="vllm-ascend #10188",
    )


def differ(own: Arities, theirs: Sequence[Arities]) -> bool:
    """Whether what one function returns is taken apart otherwise than what each of the others returns."""
    if any(_TENSOR in arities for arities in theirs):
        return False
    return _TENSOR in own or not any(own & arities for arities in theirs)


def _state(kind: str, owner: str, subject: str, what: str, here: Side, there: Side) -> Finding:
    return Finding(
        kind=kind,
        owner=owner,
        subject=subject,
        what=what,
        here=here,
        there=there,
        incident="S",
        why="A state is made by one method and taken apart by another; both have to mean the same fields.",
        todo="Bring the state's fields, where it is made and where it is taken apart into line.",
        like="vllm-ascend #6331",
    )


def _numbers(arities: Arities) -> str:
    return " or ".join(map(str, sorted(arities)))


def elements(arities: Arities, unit: str = " elements") -> str:
    """The lengths in words: ``a tensor or 2 elements``."""
    parts = ["a tensor"] if _TENSOR in arities else []
    if lengths := arities - {_TENSOR}:
        parts.append(f"{_numbers(lengths)}{unit}")
    return " or ".join(parts)


@dataclass(frozen=True)
class _Maker:
    state: ClassSymbol
    scope: Scope
    line: int


def _states(world: World, reader: ArityReader) -> Iterator[Finding]:
    """States taken apart into another number or order of fields than they were made with."""
    resolver = reader.resolver
    audited = {id(file) for file in world.files}
    for cls in world.classes:
        scopes = [scope_of(cls, method) for method in methods_on(cls)]
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
        if isinstance(value, ast.Attribute) and is_self(value.value, scope):
            yield target, value.attr


def _compared(target: ast.Tuple | ast.List, attribute: str, scope: Scope, maker: _Maker) -> Iterator[Finding]:
    fields = [item.name for item in record_fields(maker.state)]
    names = [last_name(item) for item in target.elts]
    here = side(scope.file, target, f"{len(names)} from self.{attribute}")
    makes = f"{maker.scope.name} makes a {maker.state.name} of {len(fields)}"
    there = side(maker.scope.file, maker.line, makes)
    owner, subject = scope.name, f"{attribute}: {maker.scope.name}"
    if len(fields) != len(names):
        what = (
            f"{scope.name} takes {len(names)} elements from self.{attribute}, "
            f"which {maker.scope.name} makes with {len(fields)}: {_difference(names, fields)}"
        )
        yield _state("state", owner, subject, what, here, there)
        return
    swapped = [name for name, own in zip(names, fields, strict=True) if name != own and name in fields]
    if swapped:
        what = (
            f"{scope.name} takes {', '.join(swapped)} from another place of self.{attribute} than its field"
        )
        yield _state("state-order", owner, subject, what, here, there)


def _fields_behind(world: World) -> Iterator[Finding]:
    """States of the audited files that lack a field of the upstream state of the same name."""
    for file in world.worker_files:
        parents = [owner.file for cls in file.classes.values() for owner in cls.mro[1:]]
        for state in filter(is_named_tuple, file.classes.values()):
            others = [parent.classes.get(state.name) for parent in parents if parent is not file]
            upstream = next((other for other in others if other and is_named_tuple(other)), None)
            if upstream and (lacking := _lacking(state, upstream)):
                what = f"{state.name} has no {lacking}, which it has in {upstream.file.path}"
                yield _state("state-fields", state.name, lacking, what, _size(state), _size(upstream))


def _lacking(state: ClassSymbol, upstream: ClassSymbol) -> str:
    own = {item.name for item in record_fields(state)}
    return ", ".join(item.name for item in record_fields(upstream) if item.name not in own)


def _size(state: ClassSymbol) -> Side:
    return side(state, text=f"{len(record_fields(state))} fields")


def _difference(names: list[str], fields: list[str]) -> str:
    extra = [name for name in names if name not in fields]
    lacking = [name for name in fields if name not in names]
    parts = [("not made", extra), ("not taken", lacking)]
    return "; ".join(f"{word}: {', '.join(items)}" for word, items in parts if items)


Arities = frozenset[int]
_DEEPEST = 6
_NONE: Arities = frozenset()
_TENSOR = -1  # in the place of a length: one tensor, which is taken apart by its first dimension
# Methods that tensors have and whose result is a tensor.
_GIVE_TENSORS = {"view", "reshape", "contiguous", "unsqueeze", "squeeze", "flatten", "clone", "detach"}


class ArityReader:
    """Lengths of tuples, ``_TENSOR`` for a tensor. None: source does not tell; empty: only ever None."""

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
        if isinstance(call.func, ast.Attribute) and call.func.attr in _GIVE_TENSORS:
            return frozenset({_TENSOR})
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
    if not arities or _TENSOR in arities:
        return None  # a tensor may have as many rows as are taken
    callees = reader.resolver.callees(call, scope)
    return arities, callees[0] if callees else None


def _call(value: ast.expr, scope: Scope, reader: ArityReader) -> ast.Call | None:
    """The call whose result a value is, through one local name."""
    if isinstance(value, ast.Name):
        value = reader.resolver.body(scope.node).value(value.id) or value
    if isinstance(value, ast.Await):
        value = value.value
    return value if isinstance(value, ast.Call) else None
