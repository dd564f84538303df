"""Conditions on vLLM's version in the code, and what they come to for a given vLLM.

vllm-ascend asks ``vllm_version_is("0.30.0")``; comparisons of ``Version(...)`` with the installed
version and ``hasattr`` tests are the other dialects. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from packaging.version import InvalidVersion, Version

from npu_upgrade.code.walk import last_name, string, walk

_OPERATORS: dict[type[ast.cmpop], Callable[[Version, Version], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_VLLM_VERSION = {"vllm.__version__", "vllm_version", "VLLM_VERSION", "__vllm_version__", "vllm_ver"}


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


def guard_of(node: ast.expr) -> Guard | None:
    """The condition that one expression is, None for any other expression."""
    if isinstance(node, ast.Call) and last_name(node.func) == "vllm_version_is" and len(node.args) == 1:
        named = _version(node.args[0])
        return Guard(node, named, operator.eq) if named else None
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1):
        return None
    compares = _OPERATORS.get(type(node.ops[0]))
    named = _parsed(node.comparators[0])
    if compares is None or named is None or not _is_installed(node.left):
        return None
    return Guard(node, named, compares)


def evaluate(test: ast.expr, vllm: Version | None) -> bool | None:
    """What a condition comes to with this vLLM; None where it asks for anything else too."""
    if vllm is None:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = evaluate(test.operand, vllm)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [evaluate(value, vllm) for value in test.values]
        decides = isinstance(test.op, ast.Or)
        if decides in parts:
            return decides
        return None if None in parts else not decides
    guard = guard_of(test)
    return guard.holds(vllm) if guard else None


def version_of(text: str | None) -> Version | None:
    """A version, None when the text is none."""
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def _is_installed(node: ast.expr) -> bool:
    """Whether an expression is the installed vLLM's version, parsed."""
    if not (
        isinstance(node, ast.Call) and last_name(node.func) in ("Version", "parse") and len(node.args) == 1
    ):
        return False
    return ast.unparse(node.args[0]) in _VLLM_VERSION


def _parsed(node: ast.expr) -> Version | None:
    if isinstance(node, ast.Call) and last_name(node.func) in ("Version", "parse") and len(node.args) == 1:
        return _version(node.args[0])
    return None


def _version(node: ast.expr) -> Version | None:
    return version_of(string(node))


Node = TypeVar("Node", bound=ast.AST)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def reached(body: Sequence[Node], vllm: Version | None) -> list[Node]:
    """The statements of a block up to the first that is sure to leave it."""
    end = next((place for place, node in enumerate(body, 1) if _leaves(node, vllm)), len(body))
    return list(body[:end])


def branches(node: ast.If | ast.IfExp, vllm: Version | None) -> tuple[list[ast.AST], list[ast.AST]]:
    """What of the two branches may run; the statements that cannot be reached are left out."""
    outcome = evaluate(node.test, vllm)
    body, orelse = (
        reached(part, vllm) if isinstance(part, list) else [part] for part in (node.body, node.orelse)
    )
    return (body if outcome is not False else [], orelse if outcome is not True else [])


def operands(node: ast.BoolOp, vllm: Version | None) -> list[ast.expr]:
    """The operands of ``and`` and ``or`` up to the first that decides with this vLLM."""
    decides = isinstance(node.op, ast.Or)
    places = (place for place, value in enumerate(node.values, 1) if evaluate(value, vllm) is decides)
    return node.values[: next(places, len(node.values))]


GUARD = re.compile(r"vllm_version_is\(|Version\(")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def without_dead(tree: Node, vllm: Version) -> Node:
    """A tree without the branches that are for another vLLM; what stays is shared with the one given."""
    changed = {}
    for name in _BLOCKS:
        block = getattr(tree, name, None)
        if isinstance(block, list) and block:
            alive = _alive(block, vllm)
            if list(map(id, alive)) != list(map(id, block)):
                empty = [ast.copy_location(ast.Pass(), block[0])] if name == "body" else []
                changed[name] = alive or empty
    if not changed:
        return tree
    pruned = copy.copy(tree)
    for name, block in changed.items():
        setattr(pruned, name, block)
    return pruned


def _alive(block: Sequence[ast.AST], vllm: Version) -> list[ast.AST]:
    found: list[ast.AST] = []
    for node in block:
        outcome = evaluate(node.test, vllm) if isinstance(node, ast.If) else None
        if isinstance(node, ast.If) and outcome is not None:
            found += _alive(node.body if outcome else node.orelse, vllm)
        else:
            found.append(without_dead(node, vllm))
    return found


def _leaves(node: ast.AST, vllm: Version | None) -> bool:
    if isinstance(node, _LEAVES):
        return True
    if not isinstance(node, ast.If) or vllm is None:
        return False
    outcome = evaluate(node.test, vllm)
    chosen = node.body if outcome else node.orelse
    return outcome is not None and any(_leaves(inner, vllm) for inner in chosen)
