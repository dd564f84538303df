"""What a file puts in place of upstream's: assignments onto its modules and classes, ``setattr``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from npu_upgrade.code.module import Unit
from npu_upgrade.code.walk import dotted
from npu_upgrade.program.places import patch_target
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol, ModuleSymbol, Symbol

_KNOWN = (ClassSymbol, ModuleSymbol, FunctionSymbol)


@dataclass(frozen=True, slots=True)
class Patch:
    """One assignment: ``target`` is ``path:Class.name`` or ``path:name`` of what is replaced.

    ``unit`` is the function or method that does it, empty for the file itself; ``by`` is what is
    put there, as ``path:name`` of a function, method or class, empty where that is anything else.
    """

    path: str
    line: int
    unit: str
    target: str
    by: str


def patches_in(file: File, units: Mapping[str, Unit], replaces: Callable[[str], bool]) -> list[Patch]:
    """The patches of a file, in the order of their lines; ``replaces`` tells whether a target counts."""
    aliases = _aliases(file)
    found = []
    for line, owner, name, value in _settings(file.nodes):
        target = _place(file, _resolved(file, owner, aliases), name)
        if target is None or not replaces(target):
            continue
        unit = next((unit.qualname for unit in units.values() if unit.start < line <= unit.end), "")
        by = _value(file, value, aliases) if value is not None else ""
        found.append(Patch(file.path, line, unit, target, by))
    return sorted(found, key=lambda patch: patch.line)


def _settings(nodes: list[ast.AST]) -> Iterator[tuple[int, ast.expr, str, ast.expr | None]]:
    """Every attribute that is set on something: its line, the object, the name and the value."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (what := patch_target(target)) is not None:
                    yield node.lineno, *what, node.value
        elif isinstance(node, ast.Call) and dotted(node.func) == "setattr" and len(node.args) == 3:
            owner, name = patch_target(node) or (node.args[0], "*")
            yield node.lineno, owner, name, node.args[2]


def _aliases(file: File) -> dict[str, Symbol | None]:
    """Names that stand for something: ``runner = module.Runner``, ``module = import_module("a.b")``."""
    found: dict[str, Symbol | None] = {}
    for node in file.nodes:
        if not isinstance(node, ast.Assign):
            continue
        symbol = _named(file, node.value)
        if isinstance(symbol, _KNOWN):
            found |= {name.id: symbol for name in node.targets if isinstance(name, ast.Name)}
    return found


def _named(file: File, value: ast.expr) -> Symbol | None:
    if isinstance(value, ast.Attribute):
        return file.resolve(value)
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] == "import_module":
        name = value.args[0] if value.args else None
        if isinstance(name, ast.Constant) and file.program.has_module(str(name.value)):
            return ModuleSymbol(str(name.value))
    return None


def _resolved(file: File, expr: ast.expr, aliases: dict[str, Symbol | None]) -> Symbol | None:
    symbol = file.resolve(expr)
    if isinstance(symbol, _KNOWN):
        return symbol
    owner, _, name = dotted(expr).rpartition(".")
    above = aliases.get(owner)
    if isinstance(above, ModuleSymbol):
        return file.program.lookup(above.name, name)
    return aliases.get(dotted(expr), symbol)


def _place(file: File, owner: Symbol | None, name: str) -> str | None:
    """Where what is set on a symbol stands, as ``path:Class.name`` or ``path:name``."""
    if isinstance(owner, ClassSymbol):
        return f"{owner.file.path}:{owner.name}.{name}"
    module = file.program.module(owner.name) if isinstance(owner, ModuleSymbol) else None
    return f"{module.path}:{name}" if module else None


def _value(file: File, expr: ast.expr, aliases: dict[str, Symbol | None]) -> str:
    """A function, method or class as ``path:name``; through a call to what it is given, as wrappers do."""
    symbol = _resolved(file, expr, aliases)
    if isinstance(symbol, ClassSymbol):
        return f"{symbol.file.path}:{symbol.name}"
    if isinstance(symbol, FunctionSymbol):
        return f"{symbol.file.path}:{symbol.node.name}"
    if isinstance(expr, ast.Attribute) and isinstance(owner := file.resolve(expr.value), ClassSymbol):
        return f"{owner.file.path}:{owner.name}.{expr.attr}"
    inner = expr.args[0] if isinstance(expr, ast.Call) and expr.args else None
    return _value(file, inner, aliases) if inner is not None else ""
