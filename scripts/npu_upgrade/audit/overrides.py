"""Methods with those they override."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.program import ClassSymbol, File, Method
from npu_upgrade.program.scope import Scope, scope_of
from npu_upgrade.program.self_use import methods_on


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


def audited_scopes(world: World, resolver: Resolver) -> Iterator[Scope]:
    """Every function of the audited files; methods once per class on whose objects they run."""
    for file in world.files:
        yield Scope(file, file.tree)
        yield from (Scope(file, function.node) for function in file.functions.values())
    yield from _methods(world, resolver, True)


def inherited_scopes(world: World, resolver: Resolver) -> Iterator[Scope]:
    """The methods of other files that run on objects of audited classes, once per class."""
    yield from _methods(world, resolver, False)


def _methods(world: World, resolver: Resolver, own: bool) -> Iterator[Scope]:
    audited = {id(file) for file in world.files}
    for cls in world.side.classes:
        for method in methods_on(cls, resolver.program.vllm):
            if (id(method.owner.file) in audited) is own:
                yield scope_of(cls, method)


def functions_of(file: File) -> Iterator[Scope]:
    """The functions of a file and the methods of its classes."""
    yield from (Scope(file, function.node) for function in file.functions.values())
    for cls in file.classes.values():
        yield from (Scope(file, method.node, cls) for method in cls.methods.values())
