"""Which names a statement reads and binds: the one place that says so.

A statement is one logical line by its key (see :mod:`statements`), so a header stands alone: it
binds what it binds itself (``case [x]:``, ``with f() as x:``), and its block stands for itself.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import Statement, parse_line

ALWAYS_DEFINED = frozenset(dir(builtins)) | {
    *("__file__", "__name__", "__path__", "__spec__", "__class__", "__builtins__"),
    *("__doc__", "__package__", "__loader__", "__annotations__", "__qualname__", "__module__"),
}


@dataclass
class Uses:
    """The names of a statement.

    ``reads`` must have a value before it runs (``x += 1`` and ``del x`` read ``x``), ``defines``
    have one after it whatever was before, and ``rebinds`` stand for something else than before.
    ``parameters`` are those of the function that it begins (None when it begins none), which have
    values in its block; ``nonlocals`` belong to the function around it.
    """

    reads: set[str] = field(default_factory=set)
    defines: set[str] = field(default_factory=set)
    rebinds: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    parameters: set[str] | None = None

    def add(self, part: Uses, local: AbstractSet[str] = frozenset()) -> None:
        """Take over the uses of a part of it, in which ``local`` names mean something else."""
        self.reads |= part.reads - local
        self.defines |= part.defines - local
        self.rebinds |= part.rebinds - local
        self.nonlocals |= part.nonlocals


@functools.lru_cache(maxsize=65536)
def uses(key: str) -> Uses:
    """The names of one statement; none for what is no Python."""
    reader = _Reader()
    try:
        reader.visit(parse_line(key))
    except (SyntaxError, ValueError):
        return Uses()
    return reader.uses


def defined_in(tree: ast.Module) -> set[str]:
    """The names that a module defines at its top level, imports excluded."""
    reader = _Reader(imports=False)
    reader.visit(tree)
    return reader.uses.defines


def reads(keys: Iterable[str]) -> set[str]:
    """The names that some of the statements read."""
    return set().union(*(uses(key).reads for key in keys))


def defines(keys: Iterable[str]) -> set[str]:
    """The names that some of the statements give a value, parameters included."""
    return set().union(*(uses(key).defines | (uses(key).parameters or set()) for key in keys))


def rebinds(keys: Iterable[str]) -> set[str]:
    """The names that mean something else after some of the statements, parameters included."""
    return set().union(*(uses(key).rebinds | (uses(key).parameters or set()) for key in keys))


def free_names(statements: Iterable[Statement]) -> set[str]:
    """The names that statements read and none of them (nor the builtins) gives a value.

    Each function among them is a scope of its own.
    """
    scopes = [(-1, Uses())]
    for statement in statements:
        while len(scopes) > 1 and statement.indent <= scopes[-1][0]:
            _leave(scopes)
        found = uses(statement.key)
        scopes[-1][1].add(found)
        if found.parameters is not None and statement.is_header:
            scopes.append((statement.indent, Uses(defines=set(found.parameters))))
    while len(scopes) > 1:
        _leave(scopes)
    return scopes[0][1].reads - scopes[0][1].defines - ALWAYS_DEFINED


def _leave(scopes: list[tuple[int, Uses]]) -> None:
    """End the innermost function: what it reads and does not define is read where it stands."""
    inner, outer = scopes.pop()[1], scopes[-1][1]
    outer.reads |= inner.reads - (inner.defines - inner.nonlocals)


class _Reader(ast.NodeVisitor):
    """Collects the uses of a syntax tree; names that live only inside an expression are left out."""

    def __init__(self, imports: bool = True) -> None:
        self.uses, self.imports = Uses(), imports

    def _of(self, *nodes: ast.AST | None) -> Uses:
        inner = _Reader()
        for node in nodes:
            if node is not None:
                inner.visit(node)
        return inner.uses

    def _bind(self, name: str | None) -> None:
        if name:
            self.uses.defines.add(name)
            self.uses.rebinds.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
            return
        self.uses.reads.add(node.id)
        if isinstance(node.ctx, ast.Del):
            self.uses.rebinds.add(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.uses.reads.add(node.target.id)
            self.uses.rebinds.add(node.target.id)
        else:
            self.visit(node.target)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        targets = self._of(*(part.target for part in node.generators)).defines
        inner = [part.iter for part in node.generators[1:]]
        inner += [test for part in node.generators for test in part.ifs]
        inner += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.uses.add(self._of(*inner), targets)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)
        inner = self._of(node.body)
        self.uses.reads |= inner.reads - inner.defines - _names_of(node.args)

    def _defaults(self, args: ast.arguments) -> None:
        for default in [*args.defaults, *args.kw_defaults]:
            if default is not None:
                self.visit(default)

    def _function(self, node: Function) -> None:
        self._bind(node.name)
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._defaults(node.args)
        local = _names_of(node.args) | _type_parameters(node)
        annotations = [arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
        bounds = getattr(node, "type_params", ())
        self.uses.add(self._of(*bounds, *annotations, node.returns), _type_parameters(node))
        inner = self._of(*node.body)
        self.uses.reads |= inner.reads - inner.defines - local
        self.uses.parameters = local

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        for name in _type_parameters(node):
            self._bind(name)
        bounds = getattr(node, "type_params", ())
        for part in (*bounds, *node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        inner = self._of(*node.body)
        self.uses.reads |= inner.reads - inner.defines

    def visit_TypeAlias(self, node: ast.AST) -> None:
        inner = _Reader()
        inner.generic_visit(node)
        self.uses.add(inner.uses, _type_parameters(node))

    def _named(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
        self._bind(node.name)
        self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _named

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._bind(node.rest)
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        if self.imports:
            self._bind((node.asname or node.name).partition(".")[0])

    def visit_Global(self, node: ast.Global) -> None:
        # From here on it is the module's name, which has its value from there.
        for name in node.names:
            self._bind(name)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.uses.nonlocals.update(node.names)
        self.uses.reads.update(node.names)


def _names_of(args: ast.arguments) -> set[str]:
    return {arg.arg for arg in ast.walk(args) if isinstance(arg, ast.arg)}


def _type_parameters(node: ast.AST) -> set[str]:
    """The names in the brackets of ``def f[T]``, ``class A[T]`` and ``type A[T]`` (Python 3.12)."""
    return {parameter.name for parameter in getattr(node, "type_params", ())}
