"""Environment variables and keys of ``additional_config`` that a package really uses.

A name counts only where it is read and something follows from it: not in the text of a message, not in a
list of names that are dropped, and not in a condition under which nothing but a message is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.gates.features.source import Package, Place, log_call

ENVIRONMENT, ADDITIONAL = "environment", "additional_config"
_CONFIG = "additional_config"
_DEPRECATED_LINES = 3  # of comment above a definition


@dataclass
class Setting:
    """``used`` is where something follows from it; None when the source only warns about it.

    ``read``: it is really one of its kind and not only a word of that form.
    """

    kind: str
    name: str
    read: bool = False
    used: Place | None = None
    deprecated: Place | None = None


def settings(package: Package, word: str, pattern: str) -> list[Setting]:
    """The settings whose name matches ``pattern`` as a whole, in files that hold ``word``.

    Those that are used come first, then those of additional_config, then what is not deprecated.
    """
    matches = re.compile(pattern, re.IGNORECASE).fullmatch
    found: dict[str, Setting] = {}
    for path, text in package.holding(word):
        tree = package.parsed(path)
        for name, node, above in _mentions(tree) if tree else ():
            if matches(name):
                kind = ENVIRONMENT if name.isupper() else ADDITIONAL
                _add(found.setdefault(name, Setting(kind, name)), node, above, Place(path, node.lineno), text)
    return sorted(
        (one for one in found.values() if one.read),
        key=lambda one: (not one.used, one.kind != ADDITIONAL, bool(one.deprecated), -len(one.name)),
    )


def _mentions(tree: ast.Module) -> Iterator[tuple[str, ast.expr, list[ast.AST]]]:
    """Names as strings and as attributes, each with the nodes around it, the outermost first."""
    waiting: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while waiting:
        node, above = waiting.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node, above
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, node, above
        inside = [*above, node]
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def _add(seen: Setting, node: ast.expr, above: list[ast.AST], place: Place, text: str) -> None:
    if _is_definition(node, above):
        seen.read = True
        comments = text.split("\n")[max(0, place.line - 1 - _DEPRECATED_LINES) : place.line - 1]
        if any("deprecated" in line.lower() for line in comments if line.lstrip().startswith("#")):
            seen.deprecated = seen.deprecated or place
        return
    if isinstance(node, ast.Attribute):
        if node.attr.isupper() and not _only_logged(node, above):
            seen.used = seen.used or place
        return
    if not _is_read(above):
        return
    seen.read = True
    if not _only_logged(node, above):
        seen.used = seen.used or place
    elif (inner := next((one for one in reversed(above) if isinstance(one, ast.If)), None)) and (
        "deprecated" in ast.unparse(inner).lower()
    ):
        seen.deprecated = seen.deprecated or place


def _is_definition(node: ast.expr, above: list[ast.AST]) -> bool:
    """A variable among those of an ``envs`` module: a key with the function that reads it."""
    outer = above[-1]
    if isinstance(outer, ast.Dict) and node in outer.keys:
        return isinstance(outer.values[outer.keys.index(node)], ast.Lambda)
    return {ast.Lambda, ast.Dict} <= {type(one) for one in above}


def _is_read(above: list[ast.AST]) -> bool:
    """Whether the innermost expression around a string reads the environment or additional_config."""
    for one in reversed(above):
        if isinstance(one, (ast.Call, ast.Subscript, ast.Compare)):
            said = ast.unparse(one)
            return _CONFIG in said or "environ" in said or "getenv" in said
        if isinstance(one, (ast.stmt, ast.Set, ast.List, ast.Tuple)):
            return False
    return False


def _only_logged(node: ast.AST, above: list[ast.AST]) -> bool:
    """Whether it stands in a message, or decides about nothing but messages."""
    inner = node
    for one in reversed(above):
        if isinstance(one, ast.Call) and log_call(one, ""):
            return True
        if isinstance(one, ast.If) and (inner is one.test) and all(map(_only_logs, [*one.body, *one.orelse])):
            return True
        inner = one
    return False


def _only_logs(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass):
        return True
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    return bool(log_call(statement.value, "")) or ast.unparse(statement.value.func) == "warnings.warn"


def refuses_unknown_keys(package: Package) -> Place | None:
    """Where the class of additional_config says that a key it does not know is an error; None otherwise."""
    for path, body in package.nodes("class AscendConfig"):
        for node in body.body if isinstance(body, ast.ClassDef) and body.name == "AscendConfig" else ():
            if isinstance(node, ast.Assign) and "extra='forbid'" in ast.unparse(node.value):
                return Place(path, node.lineno)
    return None
