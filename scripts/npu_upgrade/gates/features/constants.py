"""Strings that stand in the source of a package: metric names, lists of methods, parts of process names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from npu_upgrade.code.walk import walk
from npu_upgrade.gates.features.package import Package, Place


def strings(package: Package, word: str, pattern: str, below: str = "") -> Iterator[tuple[str, Place]]:
    """Constants that match ``pattern`` as a whole, in files that hold ``word``."""
    matches = re.compile(pattern).fullmatch
    for path, _text in package.holding(word, below=below):
        tree = package.parsed(path)
        for node in walk(tree) if tree else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and matches(node.value):
                yield node.value, Place(path, node.lineno)


def string_list(package: Package, name: str, below: str = "") -> tuple[tuple[str, ...], Place | None]:
    """The strings of a list or Literal called ``name``; names in it are looked up in the whole package."""
    for path, _text in package.holding(name, below=below):
        tree = package.parsed(path)
        for node in walk(tree) if tree else ():
            value = _assigned(node, name)
            if value is not None:
                inner = value.slice if isinstance(value, ast.Subscript) else value
                items = inner.elts if isinstance(inner, (ast.List, ast.Tuple, ast.Set)) else [inner]
                texts = tuple(text for item in items if (text := _text_of(package, item)))
                if texts:
                    return texts, Place(path, value.lineno)
    return (), None


def constant(package: Package, name: str) -> str | None:
    """The value of a module's constant that is a string."""
    for path, _text in package.holding(f"{name} ="):
        tree = package.parsed(path)
        for node in tree.body if tree else ():
            value = _assigned(node, name)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return None


def _text_of(package: Package, item: ast.expr) -> str | None:
    if isinstance(item, ast.Constant):
        return item.value if isinstance(item.value, str) else None
    return constant(package, item.id) if isinstance(item, ast.Name) else None


def _assigned(node: ast.AST, name: str) -> ast.expr | None:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
        isinstance(target, ast.Name) and target.id == name for target in targets
    ):
        return node.value
    return None
