"""A plain count of copies, to hold lineage against: it shares no code with it but the reading of sources.

A function is a copy when it has :data:`FEWEST` statements or more, of which :data:`SHARE` stand in one
function of upstream's tree, whatever either is called. A statement is what :func:`ast.unparse` writes of it,
without its body.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.shared import Tally
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.tree import SourceTree, open_source

FEWEST = 10
SHARE = 0.7
_COMMON = 200  # a statement of more functions than this tells nothing
_RELEASES = 8
"""So many releases before the downstream's date are asked for a better base."""


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
    """``copies`` of the plain count, those ``found`` by lineage, those with the ``right`` base."""

    copies: int = 0
    found: int = 0
    right: int = 0
    cases: list[str] = field(default_factory=list)


def score_copies(downstream: str, upstream: str, units: Sequence[Mapping[str, Any]]) -> CopiesScore:
    """Hold the units that lineage told (as its JSON has them) against the plain count.

    A base is right when no release of the last before the downstream's date has more statements in common
    with the copy.
    """
    tree, above = open_source(downstream), open_source(upstream)
    package, project = (str(one.project).replace("-", "_") for one in (tree, above))
    told = {
        f"{unit['path']}:{unit['name']}": unit for unit in units if unit["relation"] in ("copy", "vendored")
    }
    dated = [one for one in releases_of(project) if one.date and tree.date and one.date <= tree.date]
    releases = [one.version for one in dated if not one.prerelease and not one.yanked][-_RELEASES:]
    score = CopiesScore()
    for own, best in copies(tree, package, above, project).items():
        unit = told.get(own.place)
        score.copies += 1
        score.found += unit is not None
        if unit is None:
            score.cases.append(f"not found: {own.place}, as {best[0].place}")
            continue
        base = unit.get("base", "")
        common = {
            release: _common(own, unit["upstream"], project, release) for release in {*releases, base} - {""}
        }
        better = [release for release, count in common.items() if count > common.get(base, 0)]
        score.right += not better
        if better:
            score.cases.append(f"base {base or 'unknown'}, better {min(better)}: {own.place}")
    return score


def copies(
    tree: SourceTree, package: str, upstream: SourceTree, above: str
) -> dict[Function, list[Function]]:
    """The copies in a package of a tree, each with the functions of upstream's that have most of it."""
    theirs = list(_functions(upstream, above))
    holding: dict[str, list[int]] = defaultdict(list)
    for number, function in enumerate(theirs):
        for statement in function.statements:
            holding[statement].append(number)
    found: dict[Function, list[Function]] = {}
    for own in _functions(tree, package):
        size = own.statements.total()
        if size < FEWEST:
            continue
        votes: Counter[int] = Counter()
        for statement in own.statements:
            if len(holding.get(statement, ())) <= _COMMON:
                votes.update(holding.get(statement, ()))
        likely = [number for number, _ in votes.most_common(20)]
        common = {number: (own.statements & theirs[number].statements).total() for number in likely}
        best = max(common.values(), default=0)
        if best >= SHARE * size:
            found[own] = [theirs[number] for number, count in common.items() if count == best]
    return found


def _common(own: Function, place: str, project: str, release: str) -> int:
    """How many statements a function has in common with what stands at a place in a release."""
    path, _, name = place.partition(":")
    same = (one for one in _released(project, release, path) if one.name == name.partition("@")[0])
    return max(((own.statements & one.statements).total() for one in same), default=0)


@functools.lru_cache(maxsize=4096)
def _released(project: str, release: str, path: str) -> list[Function]:
    return list(_read(path, peek_file(project, release, path) or ""))


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
