"""Small tools on syntax trees of single statements, for merging them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from npu_upgrade.code.portable import unparse
from npu_upgrade.code.sequences import Change, changes, patience
from npu_upgrade.code.statements import Statement
from npu_upgrade.threeway.align import align_similar

Node = Any  # trees are walked by the fields their class names, which no type can follow


def parse_statement(text: str) -> Node | None:
    """The tree of one statement (a header gets an empty body); None when it is not one.

    An ``elif`` is read as an ``if`` and marked ``chained``.
    """
    source, chained = (text[2:], True) if text.startswith("elif ") else (text, False)
    try:
        body: list[Node] = ast.parse(source + " pass" if text.endswith(":") else source).body
    except SyntaxError:
        return None
    if len(body) != 1:
        return None
    body[0].chained = chained
    return body[0]


def statement_text(node: Node) -> str:
    """The canonical text of a statement's tree, a header without its body."""
    text = unparse(ast.fix_missing_locations(node))
    if isinstance(getattr(node, "body", None), list):
        text = text.rsplit("\n", 1)[0].rstrip()
    return "el" + text if getattr(node, "chained", False) else text


def dump(value: Node) -> str:
    """Equal for equal trees, whatever their positions."""
    if isinstance(value, list):
        return repr([dump(item) for item in value])
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def same(a: Node, b: Node) -> bool:
    return dump(a) == dump(b)


def other_operator(*nodes: Node) -> bool:
    """Whether expressions of one kind combine their operands in different ways."""
    return len({dump(getattr(node, "op", None)) for node in nodes}) > 1


def wraps(outer: Node, inner: Node) -> bool:
    """Whether ``outer`` holds the expression ``inner`` exactly once, inside something else."""
    if not isinstance(inner, ast.expr) or isinstance(inner, (ast.Name, ast.Constant)):
        return False
    wanted = dump(inner)
    return sum(dump(node) == wanted for node in ast.walk(outer) if type(node) is type(inner)) == 1


def substituted(outer: Node, old: Node, new: Node) -> Node:
    """``outer`` with the expression ``old`` replaced by ``new``."""
    return _Substitute(dump(old), new).visit(copy.deepcopy(outer))


class _Substitute(ast.NodeTransformer):
    def __init__(self, old: str, new: Node) -> None:
        self.old, self.new = old, new

    def visit(self, node: Node) -> Node:
        return self.new if dump(node) == self.old else self.generic_visit(node)


def counterpart(outer: Node, part: Node, other: Node) -> Node | None:
    """What stands in ``other`` where ``part`` stands in ``outer``; None when they are built otherwise."""
    wanted = dump(part)
    for one, two in in_step(outer, other):
        if dump(one) == wanted and one is not outer:
            return two
    return None


def in_step(one: Node, two: Node) -> Iterator[tuple[Node, Node]]:
    """Pairs of nodes at the same place of two trees, as deep as they are built alike."""
    yield one, two
    if type(one) is not type(two) or other_operator(one, two):
        return
    for name in one._fields:
        left, right = getattr(one, name, None), getattr(two, name, None)
        if isinstance(left, ast.AST) and isinstance(right, ast.AST):
            yield from in_step(left, right)
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            for pair in zip(left, right, strict=True):
                yield from in_step(*pair)


def item_changes(old: Sequence[Node], new: Sequence[Node]) -> list[Change]:
    """Changed runs of items; items that are versions of one another change one by one."""
    keys = [dump(node) for node in old], [dump(node) for node in new]
    found: list[Change] = []
    for run in changes(patience(*keys), len(old), len(new)):
        pairs = _versions(old, new, run)
        found += changes(pairs, run.a1 - run.a0, run.b1 - run.b0, run.a0, run.b0)
        found += [Change(run.a0 + i, run.a0 + i + 1, run.b0 + j, run.b0 + j + 1) for i, j in pairs]
    return sorted(found)


def _versions(old: Sequence[Node], new: Sequence[Node], run: Change) -> list[tuple[int, int]]:
    """Which items of a changed run are versions of one another: in order, or by similarity."""
    length = run.a1 - run.a0
    if length == run.b1 - run.b0:
        return [(n, n) for n in range(length)]
    sides = (_as_statements(old[run.a0 : run.a1]), _as_statements(new[run.b0 : run.b1]))
    return align_similar(*sides)


def is_version(old: Sequence[Node], new: Sequence[Node], change: Change) -> bool:
    """Whether a change is of one item into another version of it, so that its place is known."""
    items = old[change.a0 : change.a1], new[change.b0 : change.b1]
    return len(items[0]) == len(items[1]) == 1 and bool(align_similar(*map(_as_statements, items)))


def _as_statements(nodes: Sequence[Node]) -> list[Statement]:
    return [Statement(unparse(n) if isinstance(n, ast.AST) else repr(n), 0, ()) for n in nodes]
