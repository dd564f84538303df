"""What the names in a function stand for, local imports and local values included."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from npu_upgrade.code.exports import absolute
from npu_upgrade.code.names import Import
from npu_upgrade.code.signatures import Function
from npu_upgrade.program.body import Body, read_body
from npu_upgrade.program.program import UNKNOWN, File, ModuleSymbol, Program, Symbol
from npu_upgrade.program.scope import Scope, dotted
from npu_upgrade.program.version_guards import version_of


class Symbols:
    """The functions of some trees, read once each, and the names in them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.vllm = version_of(program.trees["vllm"].version if "vllm" in program.trees else None)
        self._bodies: dict[int, Body] = {}
        self._names: dict[tuple[int, str], Symbol | None] = {}

    def body(self, node: Function | ast.Module) -> Body:
        """The parts of a function."""
        if id(node) not in self._bodies:
            self._bodies[id(node)] = read_body(node, self.vllm)
        return self._bodies[id(node)]

    def symbol(self, expr: ast.expr, scope: Scope) -> Symbol | None:
        """What a name or dotted name stands for in a function; UNKNOWN for local values."""
        text = dotted(expr)
        if text is None:
            return UNKNOWN
        first = text.partition(".")[0]
        body = self.body(scope.node)
        if first in body.bound:
            return UNKNOWN
        if items := body.imports.get(first):
            return self._local_import([absolute(item, scope.file.path) for item in items], text)
        key = (id(scope.file), text)
        if key not in self._names:
            several = len(scope.file.imports.get(first, [])) > 1
            self._names[key] = UNKNOWN if several else self._in_file(scope.file, text)
        return self._names[key]

    def _local_import(self, items: Iterable[Import], text: str) -> Symbol | None:
        found = [self.program.imported(item) for item in items]
        symbol: Symbol | None = found[0] if len(set(map(id, found))) == 1 else UNKNOWN
        for part in text.split(".")[1:]:
            if not isinstance(symbol, ModuleSymbol):
                return UNKNOWN
            symbol = self.program.lookup(symbol.name, part)
        return symbol

    def _in_file(self, file: File, text: str) -> Symbol | None:
        first = text.partition(".")[0]
        known = first in file.imports or first in file.classes or first in file.functions
        return file.resolve(text) if known and first not in file.values else UNKNOWN
