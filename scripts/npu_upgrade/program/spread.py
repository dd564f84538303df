"""What a local dictionary gives a call that takes it apart: ``f(**options)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from npu_upgrade.code.signatures import Function, given_names
from npu_upgrade.code.walk import children, dotted, last_name, string, walk

# What may not be evaluated where the statement around it is.
_APART = (Function, ast.Lambda, ast.IfExp, ast.BoolOp, ast.comprehension, ast.ClassDef)
_COPIES = {"dict", "len", "list", "sorted"}
_ANY = "*"


def with_keys(call: ast.Call, function: Function | ast.Module) -> ast.Call:
    """The call, with the keys written out that a local dictionary which it takes apart has for sure."""
    spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
    names = [value.id for value in spread if isinstance(value, ast.Name)]
    shown = [ast.keyword(None, _display(_Keys(name, call).in_block(function.body))) for name in names]
    if not shown:
        return call
    return ast.copy_location(ast.Call(call.func, call.args, [*call.keywords, *shown]), call)


def _display(keys: set[str]) -> ast.Dict:
    return ast.Dict([ast.Constant(key) for key in sorted(keys)], [ast.Constant(...) for _ in keys])


class _Keys:
    """The keys of the dictionary ``name`` when ``call`` is made."""

    def __init__(self, name: str, call: ast.Call) -> None:
        self.name, self.call = name, call
        self.keys: set[str] = set()

    def in_block(self, block: Sequence[ast.stmt]) -> set[str]:
        """Those that the statements before the call find or put in it, and leave there."""
        for stmt in block:
            inner = [getattr(stmt, name, []) for name in ("body", "orelse", "finalbody")]
            inner += [handler.body for handler in getattr(stmt, "handlers", [])]
            if self._is_in([stmt]):
                self.keys = set() if isinstance(stmt, Function) else self.keys
                return self.in_block(next(filter(self._is_in, inner), []))
            if isinstance(stmt, (ast.With, ast.AsyncWith)):
                self.in_block(stmt.body)
                continue
            if not any(inner):
                self.keys |= {string(node.slice) for node in _evaluated(stmt) if self._has(node)} - {""}
            lost = {key for node in walk(stmt) for key in self._lost(node)}
            self.keys = set() if _ANY in lost else self.keys - lost
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value and _ANY in lost:
                made = ast.Call(ast.Name(""), [], [ast.keyword(None, stmt.value)])
                self.keys = set(given_names(made).sure)
        return self.keys

    def _is_in(self, block: Sequence[ast.stmt]) -> bool:
        return any(node is self.call for stmt in block for node in walk(stmt))

    def _has(self, node: ast.AST) -> TypeGuard[ast.Subscript]:
        return isinstance(node, ast.Subscript) and dotted(node.value) == self.name

    def _lost(self, node: ast.AST) -> Iterator[str]:
        """The keys that are taken out: all where it is set anew, or given to who may change it."""
        if isinstance(node, ast.Name) and node.id == self.name and not isinstance(node.ctx, ast.Load):
            yield _ANY
        elif self._has(node) and isinstance(node.ctx, ast.Del):
            yield string(node.slice) or _ANY
        elif isinstance(node, ast.Call):
            if any(dotted(arg) == self.name for arg in node.args) and last_name(node.func) not in _COPIES:
                yield _ANY
            if dotted(node.func) in (f"{self.name}.pop", f"{self.name}.popitem", f"{self.name}.clear"):
                yield string(node.args[0]) or _ANY if node.args else _ANY


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that are evaluated whenever it runs."""
    if not isinstance(node, _APART):
        yield node
        for child in children(node):
            yield from _evaluated(child)
