"""Whether two runs of statements that both sides added at one place may stand in either order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.statements import Statement, nodes_of
from npu_upgrade.code.uses import uses
from npu_upgrade.code.walk import dotted

_PURE = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "dict",
        "enumerate",
        "float",
        "frozenset",
        "getattr",
        "hasattr",
        "int",
        "isinstance",
        "len",
        "list",
        "max",
        "min",
        "range",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
    ]
)
_ORDERED = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)


@dataclass
class _Effects:
    """Dotted names that statements read and write, and names that their calls may do anything with."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)


def commute(one: Sequence[Statement], other: Sequence[Statement]) -> bool:
    """As far as names tell: neither touches what the other writes, and one of them calls nothing at all.

    What leaves the block, and fields of a class, stay in order.
    """
    effects = [_effects(side) for side in (one, other)]
    if None in effects:
        return False
    a, b = (side for side in effects if side is not None)
    return not ((a.called and b.called) or _touch(a, b) or _touch(b, a))


def _touch(a: _Effects, b: _Effects) -> bool:
    """Whether ``b`` reads or writes what ``a`` writes, or what a call of ``a`` may look at or change."""
    used = b.reads | b.writes
    return any(_overlap(written, name) for written in a.writes for name in used) or any(
        name.partition(".")[0] in a.called for name in used
    )


def _overlap(one: str, other: str) -> bool:
    """Whether two dotted names are the same, or one is a part of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _effects(statements: Iterable[Statement]) -> _Effects | None:
    """None where the order matters whatever the names are, or where something without a name is written."""
    found = _Effects()
    for statement in statements:
        nodes = nodes_of(statement.key)
        if not nodes or any(map(_is_ordered, nodes)):
            return None
        found.writes |= uses(statement.key).rebinds
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Call) and not _is_pure(node):
                found.called |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            if isinstance(node, ast.AugAssign):
                found.reads.add(dotted(node.target))
            if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) or id(node) in inner:
                continue
            loads = isinstance(node.ctx, ast.Load)
            name = dotted(node.value if isinstance(node, ast.Subscript) and not loads else node)
            if not (name or loads):
                return None
            (found.reads if loads else found.writes).add(name)
    found.reads.discard("")
    return found


def _is_ordered(node: ast.AST) -> bool:
    return isinstance(node, _ORDERED) or (isinstance(node, ast.AnnAssign) and node.value is None)


def _is_pure(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in _PURE
