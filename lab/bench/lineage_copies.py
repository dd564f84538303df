"""A plain count of copies, to hold lineage against: it shares no code with it but the reading of sources.

A function is a copy when it has :data:`FEWEST` statements or more, of which :data:`SHARE` stand in one function of
upstream's tree, whatever either is called. A statement is what :func:`ast.unparse` writes of it without its body.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bench.shared import Tally
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.tree import SourceTree

FEWEST = 10
SHARE = 0.7
_COMMON = 200  # a statement of more functions than this tells nothing
_NEAR = 1
"""A base is right when no release has more statements in common with the copy than this more."""


@dataclass(frozen=True)
class Function:
    """A function: where it is, and how often it has each statement."""

    path: str
    name: str
    statements: Counter[str] = field(compare=False)

    @property
    def place(self) -> str:
        return f"{self.path}:{self.name}"


@dataclass
class CopiesScore(Tally):
    """``copies`` by the plain count, those of them ``found`` by lineage, of these those with the ``right`` base."""

    copies: int = 0
    found: int = 0
    right: int = 0
    cases: list[str] = field(default_factory=list)


def copies(tree: SourceTree, package: str, upstream: SourceTree, above: str) -> dict[str, list[Function]]:
    """The copies in a package of a tree by place, each with the functions of upstream's that fit best."""
    theirs = list(_functions(upstream, above))
    holding: dict[str, list[int]] = defaultdict(list)
    for number, function in enumerate(theirs):
        for statement in function.statements:
            holding[statement].append(number)
    found: dict[str, list[Function]] = {}
    for own in _functions(tree, package):
        size = own.statements.total()
        if size < FEWEST:
            continue
        votes: Counter[int] = Counter()
        for statement in own.statements:
            if len(holding.get(statement, ())) <= _COMMON:
                votes.update(holding.get(statement, ()))
        common = {
            number: (own.statements & theirs[number].statements).total()
            for number, _ in votes.most_common(20)
        }
        best = max(common.values(), default=0)
        if best >= SHARE * size:
            found[own.place] = [theirs[number] for number, count in common.items() if count == best]
    return found


def right_base(
    own: Counter[str], function: Function, project: str, base: str, releases: Iterable[str]
) -> bool:
    """Whether no release has clearly more in common with a copy than the one named as its base."""
    at_base = _common(own, function, project, base)
    return all(_common(own, function, project, release) <= at_base + _NEAR for release in releases)


def statements_of(tree: SourceTree, place: str) -> Counter[str]:
    """The statements of a function of a tree."""
    path, _, name = place.partition(":")
    return next((one.statements for one in _read(path, tree.read(path)) if one.name == name), Counter())


def _common(own: Counter[str], function: Function, project: str, release: str) -> int:
    text = peek_file(project, release, function.path) or ""
    same = (one for one in _read(function.path, text) if one.name == function.name)
    return max(((own & one.statements).total() for one in same), default=0)


def _functions(tree: SourceTree, package: str) -> Iterator[Function]:
    for path in tree.list(package):
        if path.endswith(".py"):
            yield from _read(path, tree.read(path))


def _read(path: str, text: str) -> Iterator[Function]:
    """The functions and methods of a file; those inside others are part of them."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return
    for node in body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in inside:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield Function(path, owner + one.name, Counter(_statements(one.body)))


def _statements(body: list[ast.stmt]) -> Iterator[str]:
    """The statements of a block and of those in it; neither docstrings nor ``pass``."""
    for node in body:
        blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [one.body for one in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
        if any(blocks):
            parts = (getattr(node, name, None) for name in ("test", "target", "iter", "args", "name"))
            items = [one.context_expr for one in getattr(node, "items", ())]
            told = (ast.unparse(one) if isinstance(one, ast.AST) else one for one in (*parts, *items) if one)
            yield f"{type(node).__name__} {' '.join(told)}"
            for block in blocks:
                yield from _statements(block)
        elif not isinstance(node, ast.Pass) and not _is_text(node):
            yield ast.unparse(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
