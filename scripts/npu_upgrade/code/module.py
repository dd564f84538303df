"""The parts of a module that an upgrade works on: methods, functions, plain classes."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.uses import defined_in
from npu_upgrade.code.walk import walk

_Definition = Function | ast.ClassDef
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ACCESSOR = re.compile(r"[ \t]*@[\w.]+\.(setter|getter|deleter)[ \t]*(?:#[^\r\n]*)?\r?$", re.MULTILINE)
_SMALL = 256  # Python has one object for each number up to this one anyway
_DEFINES = re.compile(r"^[ \t]*(?:async|def|class)\b", re.MULTILINE)
_KEPT = 32_000_000
"""How many characters of modules are kept: all that an audit reads, and a tree takes far more memory."""
_modules: dict[str, Module] = {}


@dataclass(frozen=True, slots=True)
class Unit:
    """A top-level function, a method, or a top-level class without methods.

    ``qualname`` is ``Class.method`` or ``name``; where one name is defined several times, each
    definition has its own (see :func:`unit_names`). ``start`` and ``end`` are 0-based line
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
    """A parsed module: its text and its tree."""

    source: str
    tree: ast.Module

    @functools.cached_property
    def units(self) -> dict[str, Unit]:
        """Its units by their qualified names."""
        lines = split_lines(self.source)
        found: list[Unit] = []
        for node in self.tree.body:
            if isinstance(node, Function):
                found.append(_unit(node.name, node, lines))
            elif isinstance(node, ast.ClassDef):
                methods = [item for item in node.body if isinstance(item, Function)]
                if not methods:
                    found.append(_unit(node.name, node, lines))
                found += [_unit(f"{node.name}.{method.name}", method, lines) for method in methods]
        names = unit_names([(unit.qualname, unit.source) for unit in found])
        return {name: replace(unit, qualname=name) for name, unit in zip(names, found, strict=True)}

    def class_def(self, name: str) -> ast.ClassDef | None:
        """The top-level class ``name``."""
        nodes = (node for node in self.tree.body if isinstance(node, ast.ClassDef))
        return next((node for node in nodes if node.name == name), None)

    def methods(self, owner: str) -> dict[str, Unit]:
        """The methods of the top-level class ``owner`` by name."""
        return {unit.name: unit for unit in self.units.values() if unit.owner == owner}

    def top_level_names(self) -> set[str]:
        """Names that the module itself defines at the top level (imports excluded)."""
        return defined_in(self.tree)


def parse_module(source: str) -> Module:
    """Parse ``source``; raises :class:`SyntaxError`. Cached by content, up to :data:`_KEPT` characters."""
    module = _modules.pop(source, None) or _parsed(source)
    _modules[source] = module  # the last that is forgotten
    return module


def _parsed(source: str) -> Module:
    """Parse a source that is not at hand, in place of those that were not asked for the longest."""
    tree = ast.parse(source)
    if source.count("\n") > _SMALL:
        _share_numbers(tree)
    kept = sum(map(len, _modules)) + len(source)
    while _modules and kept > _KEPT:
        kept -= len(oldest := next(iter(_modules)))
        del _modules[oldest]
    return Module(source, tree)


def _share_numbers(tree: ast.AST) -> None:
    """Give equal line numbers one object: Python makes two for each node, an eighth of a tree's memory."""
    numbers: dict[int, int] = {}
    for node in walk(tree):
        fields = node.__dict__
        for name in ("lineno", "end_lineno"):
            if (line := fields.get(name) or 0) > _SMALL:
                fields[name] = numbers.setdefault(line, line)


def unit_names(definitions: Sequence[tuple[str, str]]) -> list[str]:
    """One name for each definition, given by its name and source in the order of a module.

    The setter of a property ``x`` is ``x@setter``. Of several definitions that are left (overloads,
    a name defined again) the last one, which counts when Python runs, has the name itself; those
    before it are ``x@1``, ``x@2`` and so on.
    """
    names = [name + _accessor(source) for name, source in definitions]
    last, seen = Counter(names), Counter[str]()
    out = []
    for name in names:
        seen[name] += 1
        out.append(name if seen[name] == last[name] else f"{name}@{seen[name]}")
    return out


def split_lines(text: str) -> list[str]:
    """The lines of ``text`` as Python counts them, line ends kept."""
    return _LINE.findall(text)


def insert_lines(source: str, at: int, block: Sequence[str]) -> str:
    """``source`` with lines put before the line ``at`` (0-based), under the line ends it has."""
    lines, end = split_lines(source), line_end(source)
    if lines and at == len(lines) and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += end
    return "".join([*lines[:at], *(line.rstrip("\r") + end for line in block), *lines[at:]])


def add_base(source: str, owner: str, base: str) -> str:
    """``source`` with one more base class of ``owner``, behind those that it has."""
    node = parse_module(source).class_def(owner)
    assert node is not None, f"the file has no class {owner}"
    if not node.bases:
        lines = split_lines(source)
        row = node.lineno - 1
        lines[row] = re.sub(rf"\b{owner}\b(\s*\(\s*\))?", f"{owner}({base})", lines[row], count=1)
        return "".join(lines)
    return insert_behind(source, node.bases[-1], f", {base}")


def insert_behind(source: str, node: ast.expr, text: str) -> str:
    """``source`` with ``text`` right behind an expression of it."""
    lines = split_lines(source)
    row = (node.end_lineno or node.lineno) - 1
    column = len(lines[row].encode()[: node.end_col_offset].decode())
    lines[row] = f"{lines[row][:column]}{text}{lines[row][column:]}"
    return "".join(lines)


def replace_units(module: Module, texts: Mapping[str, str]) -> str:
    """The module's source with the named units replaced; everything else byte for byte."""
    lines, end = split_lines(module.source), line_end(module.source)
    for unit in sorted(module.units.values(), key=lambda unit: -unit.start):
        if unit.qualname in texts:
            last = lines[unit.end - 1]
            text = re.sub(r"\r?\n", end, texts[unit.qualname].removesuffix("\r"))
            lines[unit.start : unit.end] = [text + last[len(last.rstrip("\r\n")) :]]
    return "".join(lines)


def comments_below(lines: Sequence[str], unit: Unit) -> int:
    """The end (0-based, half-open) of the comments that close a unit, at a depth inside it."""
    inside = len(lines[unit.start]) - len(lines[unit.start].lstrip())
    end = unit.end
    for number in range(unit.end, len(lines)):
        text = lines[number].strip()
        if text and not (text.startswith("#") and len(lines[number]) - len(lines[number].lstrip()) > inside):
            break
        end = number + 1 if text else end
    return end


def line_end(source: str) -> str:
    """How the lines of ``source`` end, by its first one."""
    return "\r\n" if next(iter(split_lines(source)), "").endswith("\r\n") else "\n"


def _unit(qualname: str, node: _Definition, lines: Sequence[str]) -> Unit:
    start = min([node.lineno, *(item.lineno for item in node.decorator_list)]) - 1
    end = node.end_lineno or node.lineno
    source = "".join(lines[start:end])
    return Unit(qualname, start, end, source.removesuffix("\n").removesuffix("\r"))


def _accessor(source: str) -> str:
    """What a function is to the property of its name: ``@setter`` and the like, or nothing."""
    head = _DEFINES.search(source)
    found = _ACCESSOR.search(source, 0, head.start() if head else 0)
    return f"@{found[1]}" if found else ""
