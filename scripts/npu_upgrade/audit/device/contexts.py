"""Forward contexts and what runs in them: ``with set_forward_context(...):`` of any backend."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk

_SETS = re.compile(r"set_(\w+_)?forward_context")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Forward:
    """A call of ``self.NAME(...)``, and whether a forward context is set around it."""

    name: str
    node: ast.Call
    inside: bool


def context_calls(method: Function) -> list[ast.Call]:
    """The calls in a method that set a forward context."""
    return [node for node in walk(method) if isinstance(node, ast.Call) and sets_context(node)]


def sets_context(node: ast.Call) -> bool:
    return _SETS.fullmatch(last_name(node.func)) is not None


def calls_on_self(method: Function) -> Iterator[Forward]:
    """The calls of ``self.NAME(...)`` in the order of the text."""
    yield from _calls(method.body, False)


def _calls(nodes: list[ast.stmt] | list[ast.AST], inside: bool) -> Iterator[Forward]:
    for node in nodes:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            items = [item.context_expr for item in node.items]
            sets = any(isinstance(n, ast.Call) and sets_context(n) for item in items for n in walk(item))
            yield from _calls([*items], inside)
            yield from _calls(node.body, inside or sets)
        else:
            if isinstance(node, ast.Call) and (name := _on_self(node)):
                yield Forward(name, node, inside)
            yield from _calls(list(ast.iter_child_nodes(node)), inside)


def _on_self(node: ast.Call) -> str:
    func = node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        return func.attr
    return ""


def last_name(func: ast.expr) -> str:
    """``c`` of ``a.b.c``, empty for anything else than names."""
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
