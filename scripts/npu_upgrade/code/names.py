"""Names a module uses without defining, and names it imports without using."""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from npu_upgrade.code.module import parse_module
from npu_upgrade.code.signatures import Function, every_parameter
from npu_upgrade.code.uses import ALWAYS_DEFINED
from npu_upgrade.code.walk import last_name, string


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: ``from module import name as asname`` or ``import module``.

    ``name`` is None for a plain ``import``; ``typing_only`` marks an import under
    ``if TYPE_CHECKING:``.
    """

    module: str
    name: str | None
    asname: str | None = None
    typing_only: bool = False

    @property
    def bound(self) -> str:
        """The name it binds in the module."""
        return self.asname or self.name or self.module.partition(".")[0]

    def statement(self) -> str:
        """The import as a line of source."""
        alias = f" as {self.asname}" if self.asname else ""
        if self.name is None:
            return f"import {self.module}{alias}"
        return f"from {self.module} import {self.name}{alias}"


@dataclass(frozen=True)
class Names:
    """The global names of a module.

    ``read`` holds those that are read anywhere, annotations (quoted ones too) included;
    ``run_time`` those that are looked up when the code runs; ``bound`` those that the
    module defines or imports; ``local`` the names that some function in it assigns or takes.
    """

    read: frozenset[str]
    run_time: frozenset[str]
    bound: frozenset[str]
    local: frozenset[str]


@functools.lru_cache(maxsize=256)
def names_of(source: str) -> Names:
    """The global names of a module; raises :class:`SyntaxError`."""
    everything = _table(source, keep_annotations=True)
    at_run_time = _table(source, keep_annotations=False)
    bound = {
        symbol.get_name()
        for symbol in everything.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    below = [scope for scope in _scopes(everything) if scope is not everything]
    inner = [symbol for scope in below for symbol in scope.get_symbols()]
    bound |= {symbol.get_name() for symbol in inner if symbol.is_declared_global() and symbol.is_assigned()}
    return Names(
        read=frozenset(_read(everything)),
        run_time=frozenset(_read(at_run_time)),
        bound=frozenset(bound),
        local=frozenset(
            symbol.get_name()
            for symbol in inner
            if symbol.is_parameter() or (symbol.is_local() and symbol.is_assigned())
        ),
    )


def undefined_names(source: str) -> set[str]:
    """Global names that ``source`` reads and nothing in it (or the builtins) defines."""
    names = names_of(source)
    return set(names.read - names.bound - ALWAYS_DEFINED)


def imports_of(source: str) -> dict[str, Import]:
    """The imports of a module by the name they bind, top level and TYPE_CHECKING blocks.

    ``import a`` comes before ``import a.b``, which binds the same name.
    """
    found: dict[str, Import] = {}
    for item in all_imports(source):
        if item.bound not in found or (item.name is None and item.module == item.bound):
            found[item.bound] = item
    return found


def all_imports(source: str) -> list[Import]:
    """The imports of a module in source order; those inside functions are left out."""
    nodes = _import_nodes(parse_module(source).tree.body, False)
    return [item for node, typing_only in nodes for item in imports_in(node, typing_only)]


def imports_in(node: ast.Import | ast.ImportFrom, typing_only: bool = False) -> list[Import]:
    """The imports of one statement."""
    if isinstance(node, ast.Import):
        return [Import(alias.name, None, alias.asname, typing_only) for alias in node.names]
    module = "." * node.level + (node.module or "")
    return [Import(module, alias.name, alias.asname, typing_only) for alias in node.names]


def is_typing_guard(node: ast.stmt) -> TypeGuard[ast.If]:
    """Whether a statement is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING"


def exported(source: str) -> set[str]:
    """The strings in the module's ``__all__``."""
    found: set[str] = set()
    for node in parse_module(source).tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            found |= {text for item in ast.walk(node) if (text := string(item))}
    return found


def _table(source: str, keep_annotations: bool) -> symtable.SymbolTable:
    future = any((item.module, item.name) == ("__future__", "annotations") for item in all_imports(source))
    return symtable.symtable(
        ast.unparse(_Rewrite(keep_annotations, future).visit(ast.parse(source))), "<source>", "exec"
    )


def _read(table: symtable.SymbolTable) -> set[str]:
    return {
        symbol.get_name()
        for scope in _scopes(table)
        for symbol in scope.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or scope is table)
    }


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _import_nodes(
    body: list[ast.stmt], typing_only: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, typing_only
        elif isinstance(node, ast.If):
            yield from _import_nodes(node.body, typing_only or is_typing_guard(node))
            yield from _import_nodes(node.orelse, typing_only)
        elif isinstance(node, ast.Try):
            for part in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                yield from _import_nodes(part, typing_only)


class _Rewrite(ast.NodeTransformer):
    """Changes a tree in place, for reading names only; f-strings become tuples of their expressions.

    ``keep``: quoted types are unquoted and annotations count as code; else what of them Python does not
    evaluate is gone. ``future`` tells of ``from __future__ import annotations``.
    """

    def __init__(self, keep: bool, future: bool) -> None:
        self.keep, self.future, self.in_function = keep, future, False

    def visit_FunctionDef(self, node: Function) -> ast.AST:
        for item in every_parameter(node.args):
            item.annotation = item.annotation and self._annotation(item.annotation, self.future)
        node.returns = node.returns and self._annotation(node.returns, self.future)
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        node.args = self.visit(node.args)
        outer, self.in_function = self.in_function, True
        node.body = [self.visit(item) for item in node.body]
        self.in_function = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.in_function = self.in_function, False
        self.generic_visit(node)
        self.in_function = outer
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = self._annotation(node.annotation, self.future or self.in_function)
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass() if node.module == "__future__" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.keep and node.args and last_name(node) == "cast":
            node.args[0] = _unquoted(node.args[0])
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # Only the names in an f-string count, and not every f-string can be unparsed.
        parts = [item for item in node.values if isinstance(item, ast.FormattedValue)]
        specs = [item.format_spec for item in parts if item.format_spec]
        return self.visit(ast.Tuple([item.value for item in parts] + specs, ast.Load()))

    def _annotation(self, node: ast.expr, idle: bool) -> ast.expr:
        if self.keep:
            return self.visit(_unquoted(node))
        return ast.Constant(None) if idle else self.visit(node)


def _unquoted(node: ast.expr) -> ast.expr:
    """A type expression with the quoted parts of it as expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _unquoted(ast.parse(node.value.strip(), mode="eval").body)
        except SyntaxError:
            return node
    if isinstance(node, ast.Subscript):
        generic = last_name(node)
        if generic == "Annotated" and isinstance(node.slice, ast.Tuple) and node.slice.elts:
            node.slice.elts[0] = _unquoted(node.slice.elts[0])
        elif generic != "Literal":
            node.slice = _unquoted(node.slice)
    elif isinstance(node, (ast.Tuple, ast.List)):
        node.elts = [_unquoted(item) for item in node.elts]
    elif isinstance(node, ast.BinOp):
        node.left, node.right = _unquoted(node.left), _unquoted(node.right)
    return node
