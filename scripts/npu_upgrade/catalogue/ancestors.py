"""The classes that a class derives from, through imports and re-exports over several trees."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from npu_upgrade.pycode.definitions import every_import, find_definition, read_module, top_level
from npu_upgrade.pycode.exports import absolute
from npu_upgrade.pycode.module import Module, parse_module
from npu_upgrade.pycode.names import Import
from npu_upgrade.sources.tree import SourceTree

Trees = Mapping[str, SourceTree]
"""Source trees by the package at their top, e.g. ``vllm_ascend``."""


@dataclass(frozen=True)
class Ancestor:
    """A class of one of the trees; ``package`` is the tree it is in."""

    package: str
    path: str
    name: str
    node: ast.ClassDef


def ancestors(trees: Trees, path: str, node: ast.ClassDef) -> list[Ancestor]:
    """All classes that a class of the file at ``path`` derives from, nearest first, each once."""
    found: dict[tuple[str, str], Ancestor] = {}
    level = [(path, node)]
    while level:
        above = [parent for place in level for parent in _parents(trees, *place)]
        fresh = [parent for parent in above if (parent.path, parent.name) not in found]
        found |= {(parent.path, parent.name): parent for parent in fresh}
        level = [(parent.path, parent.node) for parent in fresh]
    return list(found.values())


def _parents(trees: Trees, path: str, node: ast.ClassDef) -> Iterator[Ancestor]:
    module = read_module(trees[path.partition("/")[0]], path)
    for base in node.bases if module else []:
        name = ast.unparse(base).partition("[")[0]
        if own := _own_class(module, name):
            yield Ancestor(path.partition("/")[0], path, own.name, own)
            continue
        for item in _imports_of(module, path, name):
            package = item.module.partition(".")[0]
            definition = (
                find_definition(trees[package], item.module, str(item.name)) if package in trees else None
            )
            if definition and isinstance(definition.node, ast.ClassDef):
                yield Ancestor(package, definition.path, definition.node.name, definition.node)
                break


def _own_class(module: Module | None, name: str) -> ast.ClassDef | None:
    nodes = top_level(module.tree.body) if module else ()
    return next((n for n in nodes if isinstance(n, ast.ClassDef) and n.name == name), None)


def _imports_of(module: Module | None, path: str, name: str) -> list[Import]:
    """How a file imports ``name``, the import that keeps the name first."""
    items = file_imports(module.source, path) if module else ()
    return sorted((i for i in items if i.bound == name and i.name), key=lambda item: item.name != item.bound)


@functools.lru_cache(maxsize=256)
def file_imports(source: str, path: str) -> tuple[Import, ...]:
    """All imports of a file, inside functions too, absolute."""
    return tuple(absolute(item, path) for item, _ in every_import(parse_module(source).tree))
