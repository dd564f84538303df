"""Methods with those they override."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function, last_name
from npu_upgrade.program.program import ClassSymbol, Method


def audited_classes(world: World) -> list[ClassSymbol]:
    """The classes of all audited files."""
    return [cls for file in world.files for cls in file.classes.values()]


def overriding(cls: ClassSymbol) -> Iterator[tuple[Method, list[Method]]]:
    """The methods of a class's own body with the methods they stand for, nearest first.

    A parent's method that another parent overrides is left out: what that one lacks is its own affair.
    """
    for name, method in cls.methods.items():
        if not name.startswith("__"):
            above = [owner for owner in cls.mro[1:] if name in owner.methods]
            nearest = [owner for owner in above if not any(owner in other.mro[1:] for other in above)]
            if nearest:
                yield method, [owner.methods[name] for owner in nearest]


def is_stub(node: Function) -> bool:
    """Whether a method only says that subclasses have it."""
    done = [stmt for stmt in node.body if not _is_text(stmt)]
    empty = all(isinstance(stmt, (ast.Raise, ast.Pass)) for stmt in done)
    return empty or "abstractmethod" in map(last_name, node.decorator_list)


def _is_text(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
