"""Find the place of an edit in a source text, and put other text there.

A place is a definition (``Class.method``, ``function``, nothing for the module) and, within
it, a call, a statement or an expression by what it says. Lines that an edit does not touch
stay byte for byte, so that comments and markers survive.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NoReturn, TypeVar

from npu_upgrade.ground.errors import BadInput

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Scope = ast.Module | Definition
Change = tuple[int, int, str]
Node = TypeVar("Node")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SELECTORS = ("calls", "assigns", "tests", "returns", "imports")


@dataclass(frozen=True)
class Text:
    """One file's text with its tree; offsets are characters from its start."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def lines(self) -> list[str]:
        return [f"{line}\n" for line in self.source.split("\n")]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) for line in self.lines)]

    def offset(self, line: int, column: int) -> int:
        """The offset of a 1-based line and a column in UTF-8 bytes, as ast gives them."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return self._starts[line - 1] + len(text.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where an expression or statement stands."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def whole_lines(self, node: ast.stmt) -> tuple[int, int]:
        """The lines of a statement, decorators and the last line's end included."""
        decorators = node.decorator_list if isinstance(node, _DEFINITIONS) else []
        first = min([node.lineno, *(item.lineno for item in decorators)])
        return self._starts[first - 1], self._starts[node.end_lineno or node.lineno]

    def indent(self, node: ast.stmt) -> str:
        line = self.lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def replaced(self, changes: Sequence[Change]) -> str:
        """The source with the spans replaced; they must not overlap."""
        source = self.source
        for start, end, text in sorted(changes, reverse=True):
            source = source[:start] + text + source[end:]
        return source

    def definition(self, at: str) -> Scope:
        """The definition at a dotted name; the module for an empty one. The last of several wins."""
        scope: Scope = self.tree
        for name in at.split(".") if at else []:
            nodes = [n for n in _inner(scope) if isinstance(n, _DEFINITIONS) and n.name == name]
            if not nodes:
                self.missing(f"no {name} in {at}")
            scope = nodes[-1]
        return scope

    def parameters(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
        """Where the parameters stand, the parentheses excluded."""
        start = self.source.index("(", self.span(node)[0]) + 1
        parts = [n for n in ast.walk(node.args) if isinstance(n, (ast.arg, ast.expr))]
        ends = [self.offset(n.end_lineno or 0, n.end_col_offset or 0) for n in parts]
        return start, self.source.index(")", max(ends, default=start))

    def missing(self, what: str) -> NoReturn:
        raise BadInput(
            f"the edit does not fit {self.path}: {what}",
            expected="exactly the place that the recipe names",
            try_="look at the released file, or name which one with nth",
        )


def chosen(text: Text, found: Sequence[Node], what: str, nth: int | str | None) -> list[Node]:
    """The one that is meant: the only one, the nth (1-based), or all."""
    if not found:
        text.missing(f"no {what}")
    if nth == "all":
        return list(found)
    if nth is None and len(found) > 1:
        text.missing(f"{len(found)} times {what}")
    place = int(nth or 1)
    if not 1 <= place <= len(found):
        text.missing(f"only {len(found)} times {what}, not {place}")
    return [found[place - 1]]


def named(expr: ast.expr, name: str) -> bool:
    """Whether an expression is that dotted name, or ends with it."""
    text = ast.unparse(expr)
    return text == name or text.endswith(f".{name}")


def statements(text: Text, scope: Scope, selector: dict[str, Any]) -> list[ast.stmt]:
    """The innermost statements that a selector such as ``{"calls": NAME}`` tells."""
    for kind in SELECTORS:
        if kind in selector:
            wanted = selector[kind]
            found = [n for n in ordered(scope) if isinstance(n, ast.stmt) and _MATCHES[kind](n, wanted)]
            return chosen(text, found, f"statement that {kind} {wanted}", selector.get("nth"))
    text.missing(f"a statement is selected by one of {', '.join(SELECTORS)}")


def ordered(scope: ast.AST) -> list[ast.AST]:
    """All nodes below ``scope`` in the order of the text."""
    nodes = [node for node in ast.walk(scope) if node is not scope]
    return sorted(nodes, key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))


def block_of(scope: ast.AST, node: ast.stmt) -> list[ast.stmt]:
    """The block that holds a statement."""
    for parent in ast.walk(scope):
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and any(item is node for item in value):
                return value
    raise AssertionError("a statement of the tree is in a block of it")


def _inner(scope: Scope) -> Iterator[ast.AST]:
    """The statements of a definition, those in blocks included, but not those of inner definitions."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS):
            yield from _inner(node)  # ty: ignore[invalid-argument-type]


def _own(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement itself, not those of the statements in its blocks."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from ast.walk(child)


def _calls(node: ast.stmt, name: str) -> bool:
    return any(isinstance(item, ast.Call) and named(item.func, name) for item in _own(node))


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    inner = [item for target in targets if isinstance(target, ast.expr) for item in ast.walk(target)]
    return isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and any(
        isinstance(item, (ast.Name, ast.Attribute, ast.Subscript)) and ast.unparse(item) == name
        for item in inner
    )


def _tests(node: ast.stmt, wanted: str) -> bool:
    return isinstance(node, (ast.If, ast.While)) and ast.unparse(node.test) == plain(wanted)


def _returns(node: ast.stmt, wanted: str) -> bool:
    return isinstance(node, ast.Return) and (
        wanted == "*" or (node.value is not None and ast.unparse(node.value) == plain(wanted))
    )


def _imports(node: ast.stmt, name: str) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom)) and any(item.name == name for item in node.names)


def plain(expression: str) -> str:
    """An expression as ast writes it."""
    return ast.unparse(ast.parse(expression, mode="eval"))


_MATCHES: dict[str, Callable[[ast.stmt, str], bool]] = {
    "calls": _calls, "assigns": _assigns, "tests": _tests, "returns": _returns, "imports": _imports,
}  # fmt: skip
