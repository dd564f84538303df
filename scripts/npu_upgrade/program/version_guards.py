"""Conditions on vLLM's version in the code, and what they come to for a given vLLM.

vllm-ascend asks ``vllm_version_is("0.30.0")``; comparisons of ``Version(...)`` with the installed
version and ``hasattr`` tests are the other dialects. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from packaging.version import InvalidVersion, Version

from npu_upgrade.code.walk import bound_once, last_name, string, walk

_OPERATORS: dict[type[ast.cmpop], Callable[[Version, Version], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NOTHING: Mapping[str, bool] = {}
_VERSIONS = ("{}.__version__", "{}_version", "__{}_version__", "{}_ver", "version('{}')")
"""How the installed version of a package is written."""


@dataclass(frozen=True)
class Guard:
    """One condition on vLLM's version: the node, the version it names, how it compares."""

    node: ast.expr
    version: Version
    compares: Callable[[Version, Version], bool]

    @property
    def names_one_version(self) -> bool:
        """Whether it asks for exactly this version, rather than for a range."""
        return self.compares is operator.eq

    def holds(self, vllm: Version) -> bool:
        return self.compares(Version(vllm.public), self.version)


def guards_in(tree: ast.AST) -> Iterator[Guard]:
    """All conditions on vLLM's version below a node."""
    for node in walk(tree):
        if isinstance(node, ast.expr) and (guard := guard_of(node)):
            yield guard


def guard_of(node: ast.expr, package: str = "vllm") -> Guard | None:
    """The condition that one expression is, None for any other expression."""
    asks = f"{package}_version_is"
    if isinstance(node, ast.Call) and last_name(node.func) == asks and len(node.args) == 1:
        named = _version(node.args[0])
        return Guard(node, named, operator.eq) if named else None
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1):
        return None
    compares = _OPERATORS.get(type(node.ops[0]))
    named = _parsed(node.comparators[0])
    if compares is None or named is None or not _is_installed(node.left, package):
        return None
    return Guard(node, named, compares)


def evaluate(test: ast.expr, vllm: Version, known: Mapping[str, bool] = _NOTHING) -> bool | None:
    """What a condition comes to with this vLLM; None where it asks for anything else too.

    ``known`` are names that stand for conditions that were evaluated.
    """
    return composed(test, lambda node: _holds(node, vllm, known))


def composed(test: ast.expr, holds: Callable[[ast.expr], bool | None]) -> bool | None:
    """What a condition of ``not``, ``and`` and ``or`` comes to, by what its parts do."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = composed(test.operand, holds)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [composed(value, holds) for value in test.values]
        decides = isinstance(test.op, ast.Or)
        if decides in parts:
            return decides
        return None if None in parts else not decides
    return holds(test)


def _holds(node: ast.expr, vllm: Version, known: Mapping[str, bool]) -> bool | None:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    guard = guard_of(node)
    return guard.holds(vllm) if guard else None


def settled(node: ast.expr, oldest: Version, package: str = "vllm") -> bool | None:
    """What a condition on the version of ``package`` comes to with ``oldest`` and all that is newer.

    None where that differs between them, and for any other expression.
    """
    guard = guard_of(node, package)
    if guard is None or guard.version > oldest:
        return None
    if guard.version == oldest and guard.compares not in (operator.ge, operator.lt):
        return None
    return guard.holds(oldest)


def version_of(text: str | None) -> Version | None:
    """A version, None when the text is none."""
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def _is_installed(node: ast.expr, package: str) -> bool:
    """Whether an expression is the installed version of a package, parsed."""
    if not (
        isinstance(node, ast.Call) and last_name(node.func) in ("Version", "parse") and len(node.args) == 1
    ):
        return False
    written = ast.unparse(node.args[0]).removeprefix("importlib.metadata.")
    known = {form.format(package) for form in _VERSIONS}
    return written in known or written == f"{package.upper()}_VERSION"


def _parsed(node: ast.expr) -> Version | None:
    if isinstance(node, ast.Call) and last_name(node.func) in ("Version", "parse") and len(node.args) == 1:
        return _version(node.args[0])
    return None


def _version(node: ast.expr) -> Version | None:
    return version_of(string(node))


_GUARD = re.compile(r"vllm_version_is\(|\bVersion\(|\bparse\(")


def may_guard(text: str) -> bool:
    """Whether a text may ask for the version of vLLM."""
    # the expression alone is slow, and most files have none of it
    return ("version_is(" in text or "Version(" in text or "parse(" in text) and bool(_GUARD.search(text))


Node = TypeVar("Node", bound=ast.AST)


def without_dead(tree: Node, vllm: Version) -> Node:
    """A tree without what is for another vLLM: branches, and the operands after one that decides.

    What stays is shared with the tree given.
    """
    known = _constants(tree, vllm)
    return _pruned(tree, vllm, known) if any(_is_decided(node, vllm, known) for node in walk(tree)) else tree


def _constants(tree: ast.AST, vllm: Version) -> dict[str, bool]:
    """The names that a module binds once, to a condition on vLLM's version, and what that comes to."""
    assigned = [node for node in getattr(tree, "body", ()) if isinstance(node, ast.Assign)]
    found: dict[str, bool] = {}
    for node in assigned:
        target, outcome = node.targets[0], evaluate(node.value, vllm)
        if outcome is not None and isinstance(target, ast.Name) and len(node.targets) == 1:
            found[target.id] = outcome
    once = bound_once(walk(tree)) if found else ()
    return {name: outcome for name, outcome in found.items() if name in once}


def _is_decided(node: ast.AST, vllm: Version, known: Mapping[str, bool]) -> bool:
    if isinstance(node, (ast.If, ast.IfExp)):
        return evaluate(node.test, vllm, known) is not None
    return isinstance(node, ast.BoolOp) and any(evaluate(one, vllm, known) is not None for one in node.values)


def _pruned(tree: Node, vllm: Version, known: Mapping[str, bool]) -> Node:
    changed: dict[str, Any] = {}
    for name, value in ast.iter_fields(tree):
        block = value if isinstance(value, list) else [value]
        alive = [one for node in block for one in _alive(node, vllm, known)]
        if list(map(id, alive)) != list(map(id, block)):
            empty = [ast.copy_location(ast.Pass(), block[0])] if name == "body" else []
            changed[name] = alive or empty if isinstance(value, list) else alive[0]
    if not changed:
        return tree
    pruned = copy.copy(tree)
    for name, value in changed.items():
        setattr(pruned, name, value)
    return pruned


def _alive(node: Any, vllm: Version, known: Mapping[str, bool]) -> list[Any]:
    """What of one node may run: of a branch on vLLM's version, what it comes to."""
    if isinstance(node, (ast.If, ast.IfExp)) and (outcome := evaluate(node.test, vllm, known)) is not None:
        taken = node.body if outcome else node.orelse
        inner = taken if isinstance(taken, list) else [taken]
        return [one for part in inner for one in _alive(part, vllm, known)]
    if isinstance(node, ast.BoolOp):
        decides = isinstance(node.op, ast.Or)
        places = (place for place, one in enumerate(node.values, 1) if evaluate(one, vllm, known) is decides)
        if (end := next(places, len(node.values))) < len(node.values):
            node = ast.copy_location(ast.BoolOp(node.op, node.values[:end]), node)
    return [_pruned(node, vllm, known) if isinstance(node, ast.AST) else node]
