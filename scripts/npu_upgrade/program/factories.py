"""The classes of what methods give that make objects: ``Table.from_config(...)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.code.signatures import Function, last_name
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.type_terms import annotated, classes

_KINDS = {"classmethod", "staticmethod"}
_HARMLESS = _KINDS | {"cache", "lru_cache", "final", "override", "abstractmethod"}


def made_by(cls: ClassSymbol, name: str) -> list[ClassSymbol]:
    """The classes of what ``cls.name(...)`` gives; empty when the trees do not tell."""
    method = cls.lookup(name)
    if method is None or any(name in owner.fields or name in owner.assigned for owner in cls.mro):
        return []
    kinds = {last_name(node) for node in method.node.decorator_list}
    if not kinds & _KINDS or kinds - _HARMLESS or isinstance(method.node, ast.AsyncFunctionDef):
        return []
    if "classmethod" in kinds and (_names_self(method.node.returns) or _returns_own(method)):
        return [cls]
    return sorted(classes(annotated(method.owner.file, method.node.returns)), key=lambda item: item.name)


def _names_self(hint: ast.expr | None) -> bool:
    if isinstance(hint, ast.Constant):
        return hint.value == "Self"
    return hint is not None and last_name(hint) == "Self"


def _returns_own(method: Method) -> bool:
    """Whether all it returns are objects that it makes of the class it is called on."""
    places = [*method.node.args.posonlyargs, *method.node.args.args]
    first = places[0].arg if places else ""
    statements = list(_own_statements(method.node))
    names = _set_by(statements, first)
    values = [item.value for item in statements if isinstance(item, ast.Return)]
    made = [_calls(value, first) or (isinstance(value, ast.Name) and value.id in names) for value in values]
    return bool(made) and all(made)


def _set_by(statements: list[ast.stmt], first: str) -> set[str]:
    """The local names that are set to a new object of the class, and to nothing else."""
    found: dict[str, bool] = {}
    for item in statements:
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = found.get(target.id, True) and _calls(value, first)
    return {name for name, made in found.items() if made}


def _calls(value: ast.expr | None, first: str) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == first


def _own_statements(node: Function) -> Iterator[ast.stmt]:
    """The statements of a function, without those of functions and classes in it."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        item = stack.pop()
        if isinstance(item, ast.stmt):
            yield item
        if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            stack += ast.iter_child_nodes(item)
