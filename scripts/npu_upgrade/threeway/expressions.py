"""Three-way merge inside one statement: by syntax tree, falling back to words.

Two versions of a statement that changed different arguments, operands or items combine;
two that changed the same one do not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.code.sequences import changes, patience
from npu_upgrade.code.statements import nodes_of
from npu_upgrade.threeway.tree_merge import Clash, TreeMerge
from npu_upgrade.threeway.trees import (
    Node,
    dump,
    in_step,
    item_changes,
    other_operator,
    parse_statement,
    same,
    statement_text,
    substituted,
    wraps,
)

_TELLING = 3  # names in a call that says what it is for
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class MergedStatement:
    """The canonical text of a merged statement, and where it follows omni against upstream.

    ``callee_kept`` names omni's own call that kept its arguments; ``dropped`` the arguments
    that omni had dropped and upstream changed; ``near``: the two changes may bear on each
    other (:class:`TreeMerge`).
    """

    text: str
    callee_kept: str = ""
    dropped: str = ""
    near: bool = False


def merge_statement(
    base: str, ours: str, theirs: str, omni_names: frozenset[str] = frozenset()
) -> MergedStatement | None:
    """Merge three versions of a statement; None when both sides changed the same piece.

    ``omni_names`` are names that stand for omni's own functions and classes: another way
    to write the callee (``f(...)`` for ``module.f(...)``) is a spelling unless it is one.
    """
    if ours == theirs or theirs == base:
        return MergedStatement(ours)
    if ours == base:
        return MergedStatement(theirs)
    trees = _trees(base, ours, theirs)
    if trees and all(isinstance(tree, ast.Expr) and _is_text(tree.value) for tree in trees):
        return MergedStatement(ours)  # nothing runs a docstring
    if trees is None:
        words = _merge_words(base, ours, theirs)
        return MergedStatement(words, near=True) if words is not None else None
    merge = TreeMerge(omni_names)
    try:
        merged = merge.merge(*trees)
    except Clash:
        return None
    in_base, in_ours, in_theirs = (tree.chained for tree in trees)
    merged.chained = in_ours if in_theirs == in_base else in_theirs
    kept, dropped = ", ".join(merge.kept_callees), ", ".join(merge.dropped)
    return MergedStatement(statement_text(merged), kept, dropped, merge.near)


def with_our_calls(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """``theirs`` with the calls that ours makes in the place of base's, where that is all that ours changed.

    None where ours changed more, or theirs does not have each of base's calls exactly once.
    """
    if len(base) != len(ours) or base == ours:
        return None
    merged = list(theirs)
    for before, own in zip(base, ours, strict=True):
        swap = _other_call(before, own) if before != own else None
        if before != own and swap is None:
            return None
        if swap is not None:
            places = [n for n, key in enumerate(merged) for one in nodes_of(key) if same(one, swap[0])]
            tree = parse_statement(merged[places[0]]) if len(places) == 1 else None
            if tree is None:
                return None
            changed = substituted(tree, *swap)
            changed.chained = tree.chained
            merged[places[0]] = statement_text(changed)
    return merged


def _other_call(before: str, own: str) -> tuple[Node, Node] | None:
    """The one call of a statement that is another function's in ``own``, and that one."""
    trees = _trees(before, own)
    if trees is None:
        return None
    old, new = trees
    for one, two in in_step(old, new):
        calls = isinstance(one, ast.Call) and isinstance(two, ast.Call)
        if calls and not same(one.func, two.func) and wraps(old, one):
            alone = same(substituted(old, one, two), new)
            telling = len(re.findall(r"\w+", ast.unparse(one))) >= _TELLING
            return (one, two) if alone and telling else None
    return None


def agreed_version(base: str, version: str, ours: str) -> str:
    """``base`` with the pieces of another upstream ``version`` that ``ours`` has instead.

    Works on arguments, operands and items; ``base`` itself where the three do not compare.
    """
    trees = _trees(base, version, ours)
    if trees is None:
        return base
    agreed = _agreed(*trees)
    agreed.chained = trees[0].chained
    return statement_text(agreed)


def _trees(*texts: str) -> list[Node] | None:
    """The trees of some versions of a statement; None when one of them is not a statement."""
    trees = [parse_statement(text) for text in texts]
    return None if any(tree is None for tree in trees) else trees


def _is_text(node: Node) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _agreed(base: Node, version: Node, ours: Node) -> Node:
    if same(base, version) or same(base, ours):
        return base
    if same(version, ours):
        return version
    alike = type(base) is type(version) is type(ours) and not isinstance(base, ast.arguments)
    if not alike or other_operator(base, version, ours):
        return base
    merged = type(base)()
    for name in base._fields:
        values = [getattr(node, name, None) for node in (base, version, ours)]
        if all(isinstance(value, ast.AST) for value in values):
            value = _agreed(*values)
        elif all(isinstance(value, list) for value in values):
            value = _agreed_items(*values)
        else:
            value = values[0]
        setattr(merged, name, value)
    return merged


def _agreed_items(base: Node, version: Node, ours: Node) -> list[Node]:
    has = {dump(node) for node in ours}
    items: list[Node] = []
    place = 0
    for a0, a1, b0, b1 in item_changes(base, version):
        items += base[place:a0]
        new, old = version[b0:b1], base[a0:a1]
        if all(dump(node) in has for node in new) and not any(dump(node) in has for node in old):
            items += new
        elif len(new) == len(old) == 1 and len(base) == len(ours):
            items.append(_agreed(old[0], new[0], ours[a0]))
        else:
            items += old
        place = a1
    return items + base[place:]


def _merge_words(base: str, ours: str, theirs: str) -> str | None:
    words = [_TOKEN.findall(text) for text in (base, ours, theirs)]
    left = changes(patience(words[0], words[1]), len(words[0]), len(words[1]))
    right = changes(patience(words[0], words[2]), len(words[0]), len(words[2]))
    if any(a.a0 <= b.a1 and b.a0 <= a.a1 for a in left for b in right):
        return None
    merged: list[str] = []
    place = 0
    for change, side in sorted([(c, words[1]) for c in left] + [(c, words[2]) for c in right]):
        merged += words[0][place : change.a0] + side[change.b0 : change.b1]
        place = change.a1
    return "".join(merged + words[0][place:])
