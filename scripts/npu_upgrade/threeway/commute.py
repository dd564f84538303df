"""Whether two runs of statements that both sides added at one place may stand in either order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from npu_upgrade.code.statements import Statement, nodes_of

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
_Path = tuple[str, ...]


@dataclass
class _Effects:
    """Dotted names that statements read and write, and names that their calls may do anything with."""

    reads: set[_Path] = field(default_factory=set)
    writes: set[_Path] = field(default_factory=set)
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
    return any(_within(written, path) for written in a.writes for path in used) or any(
        path[0] in a.called for path in used
    )


def _within(one: _Path, other: _Path) -> bool:
    short = min(len(one), len(other))
    return one[:short] == other[:short]


def _effects(statements: Iterable[Statement]) -> _Effects | None:
    found = _Effects()
    for statement in statements:
        nodes = nodes_of(statement.key)
        if not nodes or any(
            isinstance(node, _ORDERED) or (isinstance(node, ast.AnnAssign) and node.value is None)
            for node in nodes
        ):
            return None
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Call) and not _is_pure(node):
                found.called |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                if not (path := _path(node.value)):
                    return None
                found.writes.add(path)
            elif isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in inner:
                path = _path(node)
                if path is None and not isinstance(node.ctx, ast.Load):
                    return None
                if path:
                    (found.reads if isinstance(node.ctx, ast.Load) else found.writes).add(path)
            elif isinstance(node, ast.AugAssign) and (path := _path(node.target)):
                found.reads.add(path)
    return found


def _is_pure(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in _PURE


def _path(node: ast.expr) -> _Path | None:
    """The parts of a dotted name; None where it begins with anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None
