"""Lacking facts by the condition they stand under, so that one missing branch is one finding."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.code.walk import walk
from npu_upgrade.program.facts import MEMBER, Fact


@dataclass(frozen=True)
class Group:
    """Facts that are lacking together; ``is_branch`` when a branch of a chain of conditions is what lacks."""

    facts: list[Fact]
    is_branch: bool


def grouped(method: ast.stmt, lacking: Sequence[Fact]) -> Iterator[Group]:
    """The facts of each condition that tests one of them, then the others one by one."""
    left = list(lacking)
    branches = [node for node in walk(method) if isinstance(node, ast.If)] if left else []
    names = {id(fact): _bound_to(method, fact.node) for fact in left}
    for branch in branches:
        tested = _ids(branch.test)
        used = {node.id for node in walk(branch.test) if isinstance(node, ast.Name)}
        asks = [fact for fact in left if id(fact.node) in tested or used & names[id(fact)]]
        if asks:
            body = {inner for part in branch.body for inner in _ids(part)}
            inside = [fact for fact in left if fact in asks or id(fact.node) in body]
            left = [fact for fact in left if fact not in inside]
            yield Group(inside, _is_one_of_several(method, branch))
    # One statement is one step, and so is all that is done with one member.
    places = {id(fact): _statement(method, fact.node) for fact in left}
    members = {places[id(f)]: f.name.partition(".")[0] for f in left if f.kind == MEMBER}
    together: dict[object, list[Fact]] = {}
    for fact in left:
        place = places[id(fact)]
        together.setdefault(members.get(place, place), []).append(fact)
    yield from (Group(facts, False) for facts in together.values())


def _statement(method: ast.stmt, node: ast.expr) -> int:
    """The line where the simple statement around a node begins."""
    simple = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
    around = (n for n in walk(method) if isinstance(n, simple))
    lines = [n.lineno for n in around if n.lineno <= node.lineno <= (n.end_lineno or n.lineno)]
    return max(lines, default=node.lineno)


def _ids(node: ast.AST) -> set[int]:
    return {id(inner) for inner in walk(node)}


def _bound_to(method: ast.AST, value: ast.expr) -> set[str]:
    """The names that a statement of the method gives to what holds ``value``."""
    return {
        name.id
        for node in walk(method)
        if isinstance(node, ast.Assign) and node.lineno <= value.lineno <= (node.end_lineno or node.lineno)
        if id(value) in _ids(node.value)
        for target in node.targets
        for name in walk(target)
        if isinstance(name, ast.Name)
    }


def _is_one_of_several(method: ast.AST, branch: ast.If) -> bool:
    if branch.orelse:
        return True
    return any(isinstance(node, ast.If) and node.orelse == [branch] for node in walk(method))
