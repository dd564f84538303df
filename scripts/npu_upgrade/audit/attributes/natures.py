"""Whether an attribute of a class is a method or a plain value that cannot be called."""

from __future__ import annotations

import ast
import functools
from typing import Literal

from npu_upgrade.code.signatures import Function, last_name
from npu_upgrade.program.program import ClassSymbol
from npu_upgrade.threeway.signature_merge import alternatives

Nature = Literal["method", "value", ""]
_PROPERTIES = {"property", "cached_property", "abstractproperty"}
_METHODS = {"staticmethod", "classmethod", "abstractmethod", "override", "final", "cache", "lru_cache"}
# What has no ``__call__``, by the names that hints use.
_UNCALLABLE = {
    *("bool", "int", "float", "str", "bytes", "None", "list", "dict", "tuple", "set", "frozenset"),
    *("List", "Dict", "Tuple", "Set", "Sequence", "Mapping", "Tensor", "Literal"),
}
_PLAIN_VALUES = (ast.Compare, ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set)


@functools.lru_cache(maxsize=16384)
def nature(cls: ClassSymbol, name: str) -> Nature:
    """What ``name`` is on objects of the class; empty where the trees do not tell for sure."""
    if any(name in owner.assigned for owner in cls.mro):
        return ""
    for owner in cls.mro:
        if name in owner.methods and name in owner.fields:
            return ""
        if name in owner.methods:
            return _of_function(owner.methods[name].node)
        if name in owner.fields:
            node = owner.fields[name]
            return "value" if isinstance(node, ast.AnnAssign) and _uncallable(node.annotation) else ""
    return ""


def _of_function(node: Function) -> Nature:
    kinds = {last_name(item) for item in node.decorator_list}
    if kinds & _PROPERTIES:
        return "value" if _gives_value(node) else ""
    return "" if kinds - _METHODS else "method"


def _gives_value(node: Function) -> bool:
    """Whether a property's value certainly cannot be called, by its hint or by what it returns."""
    if node.returns:
        return _uncallable(node.returns)
    returns = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
    return bool(returns) and all(_plain(value) for value in returns)


def _plain(value: ast.expr | None) -> bool:
    return isinstance(value, _PLAIN_VALUES) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    )


def _uncallable(hint: ast.expr) -> bool:
    return all(isinstance(part, ast.expr) and _head(part) in _UNCALLABLE for part in alternatives(hint))


def _head(part: ast.expr) -> str:
    plain = part.value if isinstance(part, ast.Subscript) else part
    return last_name(plain)
