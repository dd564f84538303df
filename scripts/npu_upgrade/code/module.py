"""The parts of a module that an upgrade works on: methods, functions, plain classes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Unit:
    """A top-level function, a method, or a top-level class without methods.

    ``qualname`` is ``Class.method`` or ``name``; ``start`` and ``end`` are 0-based line
    numbers of the half-open span, decorators included.
    """

    qualname: str
    start: int
    end: int
    source: str

    @property
    def name(self) -> str:
        return self.qualname.rpartition(".")[2]

    @property
    def owner(self) -> str:
        return self.qualname.rpartition(".")[0]


@dataclass(frozen=True)
class Module:
    """A parsed module: its text, its units by qualified name, and its tree."""

    source: str
    tree: ast.Module
    units: Mapping[str, Unit]

    def class_def(self, name: str) -> ast.ClassDef | None:
        """The top-level class ``name``."""
        nodes = (node for node in self.tree.body if isinstance(node, ast.ClassDef))
        return next((node for node in nodes if node.name == name), None)

    def methods(self, owner: str) -> dict[str, Unit]:
        """The methods of the top-level class ``owner`` by name."""
        return {unit.name: unit for unit in self.units.values() if unit.owner == owner}

    def top_level_names(self) -> set[str]:
        """Names that the module itself defines at the top level (imports excluded)."""
        return {name for node in self.tree.body for name in _bound_names(node)}


@functools.lru_cache(maxsize=512)
def parse_module(source: str) -> Module:
    """Parse ``source``; raises :class:`SyntaxError`. Cached by content."""
    return module_of(source, ast.parse(source))


def module_of(source: str, tree: ast.Module) -> Module:
    """The module of a source that is parsed already."""
    lines = source.split("\n")
    units: dict[str, Unit] = {}
    for node in tree.body:
        if isinstance(node, _FUNCTIONS):
            _add(units, node.name, node, lines)
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, _FUNCTIONS)]
            if not methods:
                _add(units, node.name, node, lines)
            for method in methods:
                _add(units, f"{node.name}.{method.name}", method, lines)
    return Module(source, tree, units)


def replace_units(module: Module, texts: Mapping[str, str]) -> str:
    """The module's source with the named units replaced; everything else byte for byte."""
    lines = module.source.split("\n")
    for unit in sorted(module.units.values(), key=lambda unit: -unit.start):
        if unit.qualname in texts:
            lines[unit.start : unit.end] = texts[unit.qualname].split("\n")
    return "\n".join(lines)


def _add(units: dict[str, Unit], qualname: str, node: _Definition, lines: list[str]) -> None:
    # The later of two definitions of one name wins, as it does when Python runs.
    start = min([node.lineno, *(item.lineno for item in node.decorator_list)]) - 1
    end = node.end_lineno or node.lineno
    units[qualname] = Unit(qualname, start, end, "\n".join(lines[start:end]))


def _bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, (ast.If, ast.Try, ast.With)):
        return [
            name
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt)
            for name in _bound_names(child)
        ]
    return [item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name)]
