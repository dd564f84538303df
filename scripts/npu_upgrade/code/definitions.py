"""Finds where a tree defines what an import names, through re-exports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.code.exports import absolute
from npu_upgrade.code.module import Module, parse_module
from npu_upgrade.code.names import Import, all_imports, imports_in
from npu_upgrade.code.signatures import Function
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.tree import SourceTree

_HOPS = 4


@dataclass(frozen=True)
class Definition:
    """A class or function at the top level of a file of a tree."""

    path: str
    node: ast.ClassDef | Function


def find_definition(tree: SourceTree, module: str, name: str, hops: int = _HOPS) -> Definition | None:
    """The class or function that ``from module import name`` gives; None when the tree does not tell."""
    folder = module.replace(".", "/")
    path = next((p for p in (f"{folder}.py", f"{folder}/__init__.py") if tree.exists(p)), None)
    parsed = read_module(tree, path) if path else None
    if parsed is None or path is None:
        return None
    for node in top_level(parsed.tree.body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return Definition(path, node)
    for item in all_imports(parsed.source):
        if hops and item.bound == name and item.name:
            source = absolute(item, path)
            return find_definition(tree, source.module, item.name, hops - 1)
    return None


def read_module(tree: SourceTree, path: str) -> Module | None:
    """The parsed file; None when it is not there or not Python."""
    try:
        return parse_module(tree.read(path))
    except (BadInput, SyntaxError):
        return None


def functions(node: ast.ClassDef) -> dict[str, Function]:
    """The methods of a class by name; the later of two definitions wins."""
    return {
        item.name: item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def every_import(tree: ast.Module) -> Iterator[tuple[Import, bool]]:
    """All imports of a file, inside functions too, and whether its failing is provided for."""
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.Try) and any(catches_import_error(h) for h in block.handlers)
        for part in block.body
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((item, id(node) in guarded) for item in imports_in(node))


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those in ``if`` and ``try`` blocks included."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from top_level(
                [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            )


def catches_import_error(handler: ast.ExceptHandler) -> bool:
    caught = ast.unparse(handler.type) if handler.type else ""
    names = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
    return not caught or any(name in caught for name in names)
