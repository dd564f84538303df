"""Going through syntax trees: what takes most of the time of an audit, so it is done with care."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeGuard, TypeVar

# Neither what holds no nodes, nor the contexts and operators that a node is asked for by its own fields.
_PLAIN = {
    *("id", "attr", "kind", "module", "level", "is_async", "conversion", "simple", "asname", "type_comment"),
    *("ctx", "op", "ops", "arg"),
}
_MIXED = {"keys", "kw_defaults", "names", "kwd_attrs"}  # lists that may hold None, or text
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
Node = TypeVar("Node", bound=ast.AST)


@functools.cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of nodes that may hold nodes."""
    return () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _PLAIN)


def walk(node: ast.AST) -> list[ast.AST]:
    """All nodes of a tree in the order of :func:`ast.walk`, less contexts and operators: much faster."""
    nodes: list[ast.AST] = [node]
    for one in nodes:  # grows while it is gone through
        for name in _fields(one.__class__):
            value = getattr(one, name, None)
            if value is None:
                continue
            if value.__class__ is not list:
                if isinstance(value, ast.AST):
                    nodes.append(value)
            elif name in _MIXED:
                nodes.extend([item for item in value if isinstance(item, ast.AST)])
            else:
                nodes.extend(value)
    return nodes


def children(node: ast.AST) -> list[ast.AST]:
    """What :func:`ast.iter_child_nodes` gives, less contexts and operators."""
    found: list[ast.AST] = []
    for name in _fields(node.__class__):
        value = getattr(node, name, None)
        if value.__class__ is list:
            found.extend([item for item in value if isinstance(item, ast.AST)] if name in _MIXED else value)
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def are_equal(one: object, other: object) -> bool:
    """Whether two trees, or what a field of a tree holds, are the same but for where they stand."""
    if one.__class__ is not other.__class__:
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_equal, one, other))
    if not isinstance(one, ast.AST):
        return one == other
    return all(are_equal(getattr(one, name, None), getattr(other, name, None)) for name in one._fields)


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a plain chain of names, empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST | None) -> str:
    """``c`` of ``a.b.c``, of a call of it and of it with an index; empty for anything else."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def bound_once(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are bound at exactly one of the nodes."""
    stored = Counter(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name for name, count in stored.items() if count == 1}


def names_read(node: ast.AST) -> set[str]:
    """The plain names that a piece of code reads."""
    return {one.id for one in walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Store)}


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring, or another constant that does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_super(node: ast.AST | None) -> TypeGuard[ast.Call]:
    """Whether a node is a call of ``super``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def string(node: ast.AST | None) -> str:
    """The text of a string literal; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def reached(body: Sequence[Node]) -> list[Node]:
    """The statements of a block up to the first that is sure to leave it."""
    end = next((place for place, node in enumerate(body, 1) if isinstance(node, _LEAVES)), len(body))
    return list(body[:end])


def branches(node: ast.If | ast.IfExp) -> list[list[ast.AST]]:
    """Both branches, without the statements that cannot be reached."""
    return [reached(part) if isinstance(part, list) else [part] for part in (node.body, node.orelse)]
