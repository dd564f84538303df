"""The statements of a file that have to work, whatever vLLM and platform it runs on.

Left out are those whose failure is provided for: in ``try: ... except ImportError:`` (or
``AttributeError``), in ``contextlib.suppress``, or behind a test with ``hasattr`` or ``find_spec``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from npu_upgrade.code.definitions import catches_import
from npu_upgrade.code.names import is_typing_guard
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name, walk

_SCOPES = (Function, ast.ClassDef)
_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_TESTS = {"hasattr", "find_spec"}


@dataclass(frozen=True)
class Live:
    """One statement; ``scope`` is the function or class around it (``Class.method``), or empty.

    ``typing_only`` marks what stands under ``if TYPE_CHECKING:``, ``conditional`` what stands in a branch of
    the function around it.
    """

    node: ast.AST
    scope: str = ""
    typing_only: bool = False
    conditional: bool = False

    def expressions(self) -> Iterator[ast.AST]:
        """All nodes of the statement's own expressions, without the statements inside it."""
        for child in ast.iter_child_nodes(self.node):
            if not isinstance(child, _STATEMENTS):
                yield from walk(child)


def live_statements(tree: ast.Module, works: Callable[[ast.AST], bool]) -> Iterator[Live]:
    """The statements of a module; ``works`` tells whether a statement's imports work.

    What an ``except ImportError:`` does counts only where its ``try`` does not work.
    """
    yield from _Walk(works).visit(tree.body, Live(tree))


class _Walk:
    def __init__(self, works: Callable[[ast.AST], bool]) -> None:
        self.works = works

    def visit(self, nodes: Iterable[ast.AST], place: Live) -> Iterator[Live]:
        for node in nodes:
            yield from self._one(node, replace(place, node=node))

    def _one(self, node: ast.AST, place: Live) -> Iterator[Live]:
        yield place
        if isinstance(node, _SCOPES):
            scope = f"{place.scope}.{node.name}" if place.scope else node.name
            yield from self.visit(node.body, replace(place, scope=scope, conditional=False))
        elif isinstance(node, ast.If):
            yield from self._branches(node, place)
        elif isinstance(node, ast.Try):
            yield from self._try(node, place)
        elif not (isinstance(node, (ast.With, ast.AsyncWith)) and _suppresses(node)):
            inner = (child for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS))
            yield from self.visit(inner, place)

    def _branches(self, node: ast.If, place: Live) -> Iterator[Live]:
        place = replace(place, conditional=True)
        if is_typing_guard(node):
            yield from self.visit(node.body, replace(place, typing_only=True))
        elif not _asks_first(node.test):
            yield from self.visit(node.body, place)
        yield from self.visit(node.orelse, place)

    def _try(self, node: ast.Try, place: Live) -> Iterator[Live]:
        tried = list(self.visit(node.body, place))
        caught = [handler for handler in node.handlers if catches_import(handler.type)]
        if not caught:
            yield from tried
        failed = any(not self.works(live.node) for live in tried)
        for handler in node.handlers:
            if failed or handler not in caught:
                yield from self.visit(handler.body, place)
        yield from self.visit([*node.orelse, *node.finalbody], place)


def _suppresses(node: ast.With | ast.AsyncWith) -> bool:
    return any(
        isinstance(item.context_expr, ast.Call)
        and last_name(item.context_expr) == "suppress"
        and any(catches_import(arg) for arg in item.context_expr.args)
        for item in node.items
    )


def _asks_first(test: ast.expr) -> bool:
    """Whether a condition finds out what there is."""
    calls = (node.func for node in walk(test) if isinstance(node, ast.Call))
    return any(last_name(func) in _TESTS for func in calls)
