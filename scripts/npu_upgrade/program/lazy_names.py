"""The names a module's ``__getattr__`` can make, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import string, walk


def lazy_names(getter: Function, values: Mapping[str, ast.stmt]) -> frozenset[str] | None:
    """The names that a ``__getattr__`` knows; None when its source does not tell.

    It knows the keys and items of the module's tables it reads (``values`` holds the
    module's assignments), and the strings in its own body.
    """
    read = {node.id for node in walk(getter) if isinstance(node, ast.Name)}
    found = set(_strings([node for stmt in getter.body for node in walk(stmt)]))
    tables = [_table(values[name]) for name in sorted(read & values.keys())]
    for table in tables:
        if table is None:
            return None
        found |= table
    return frozenset(found) or None


def _table(statement: ast.stmt) -> set[str] | None:
    """The strings of a dict (its keys), list, tuple or set; None for anything made another way."""
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    if isinstance(value, ast.Dict):
        items: list[ast.expr | None] = list(value.keys)
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        items = list(value.elts)
    else:
        return None
    strings = _strings([item for item in items if item])
    return set(strings) if len(strings) == len(items) else None


def _strings(nodes: list[ast.expr] | list[ast.AST]) -> list[str]:
    return [text for node in nodes if (text := string(node))]
