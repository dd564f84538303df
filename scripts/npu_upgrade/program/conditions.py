"""The conditions of a function, taken apart, and what stands under them."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk

_NONE_TESTS = (" is not None", " is None")


@dataclass(frozen=True)
class Condition:
    """One condition: its parts less ``not`` and ``is None``, whether they are joined, and where it stands."""

    parts: tuple[str, ...]
    node: ast.expr
    branch: ast.If | None = None

    @property
    def ends_in_error(self) -> bool:
        """Whether its branch only raises."""
        return bool(self.branch) and isinstance(self.branch.body[-1], ast.Raise)


@functools.lru_cache(maxsize=4096)  # nodes are their own keys
def conditions_of(node: Function) -> tuple[Condition, ...]:
    """The tests of ``if`` and the expressions joined by ``and`` and ``or``, outermost first."""
    found: list[Condition] = []
    tests = {id(n.test): n for n in walk(node) if isinstance(n, ast.If)}
    for inner in walk(node):
        if isinstance(inner, ast.BoolOp) or (isinstance(inner, ast.expr) and id(inner) in tests):
            found.append(Condition(tuple(_parts(inner)), inner, tests.get(id(inner))))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def text_of(node: Function) -> str:
    """The function as one text in one spelling, without comments."""
    return unparse(node)


def guards(function: Function, node: ast.AST, *, operands: bool = False) -> list[str]:
    """The parts of the conditions that a node of a function stands under, their ``else`` included.

    ``operands``: also those before it of an ``and`` or ``or``.
    """
    parents = _parents(function)
    found: list[str] = []
    below = node
    while below is not function and id(below) in parents:
        above = parents[id(below)]
        if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
            found += _parts(above.test)
        elif operands and isinstance(above, ast.BoolOp):
            place = next(number for number, value in enumerate(above.values) if value is below)
            found += [part for value in above.values[:place] for part in _parts(value)]
        below = above
    return found


@functools.lru_cache(maxsize=4096)
def names_in(node: Function) -> Counter[str]:
    """How often each name, attribute and string stands in a function."""
    found: Counter[str] = Counter()
    for inner in walk(node):
        if isinstance(inner, ast.Attribute):
            found[inner.attr] += 1
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            found[inner.id] += 1
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            found[inner.value] += 1
    return found


@functools.lru_cache(maxsize=1024)
def _parents(function: Function) -> dict[int, ast.AST]:
    return {id(child): node for node in walk(function) for child in ast.iter_child_nodes(node)}


def is_telling(part: str) -> bool:
    """Whether a part speaks of more than local names, which may be called anything."""
    return "." in part or "(" in part


def _parts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _parts(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _parts(node.operand)
    elif isinstance(node, ast.Call) and unparse(node.func) == "bool" and node.args:
        yield from _parts(node.args[0])
    else:
        text = unparse(node)
        for ending in _NONE_TESTS:
            text = text.removesuffix(ending)
        yield text
