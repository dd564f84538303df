"""What a condition says, in one spelling, and the places where two functions decide the same thing."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import walk

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
_OPPOSITE |= {there: here for here, there in _OPPOSITE.items()}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_SIGN: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
# What says of a count that it is not zero, by sign and number, with whether the count stands on the left.
_SOME = {("!=", 0, True), ("!=", 0, False), ("<", 0, False), ("<=", 1, False)}
_NONE = {("==", 0, True), ("==", 0, False), ("<=", 0, True), ("<", 1, True)}


@dataclass(frozen=True)
class Decision:
    """A condition: ``sense`` in one spelling, ``operands`` it is about (no constants), its ``node``, and
    ``branch``, the first thing that depends on it, as text.
    """

    sense: str
    operands: frozenset[str]
    node: ast.expr
    branch: str


@functools.lru_cache(maxsize=4096)  # nodes are their own keys
def decisions_of(function: Function) -> tuple[Decision, ...]:
    """The conditions of ``if``, ``while`` and ``x if c else y`` in a function."""
    found = []
    for node in walk(function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            branch = unparse(node.body if isinstance(node, ast.IfExp) else node.body[0])
            operands = frozenset(_operands(node.test))
            found.append(Decision(sense_of(node.test), operands, node.test, branch))
    return tuple(found)


def sense_of(node: ast.expr, negated: bool = False) -> str:
    """The text of a condition, the same for what means the same: negations moved inwards, sides and
    operands in order, counts compared with 0 or 1 as one. ``x is None`` is not ``not x``.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return sense_of(node.operand, not negated)
    if isinstance(node, ast.BoolOp):
        joined = isinstance(node.op, ast.And) is not negated
        senses = {sense_of(value, negated) for value in _flat(node)}
        return f"({(' and ' if joined else ' or ').join(sorted(senses))})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node.left, type(node.ops[0]), node.comparators[0], negated)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id == "bool":
            return sense_of(node.args[0], negated)
        if node.func.id == "len":
            return _sense("not " if negated else "", node.args[0])
    return _sense("not " if negated else "", node)


def _compared(left: ast.expr, op: type[ast.cmpop], right: ast.expr, negated: bool) -> str:
    op = _OPPOSITE[op] if negated else op
    if op in _TURNED:
        left, op, right = right, _TURNED[op], left
    for count, limit, first in ((left, right, True), (right, left, False)):
        if _is_count(count) and isinstance(limit, ast.Constant) and isinstance(limit.value, int):
            said = (_SIGN[op], limit.value, first)
            if said in _SOME | _NONE:
                return sense_of(count, said in _NONE)
    if op in (ast.Eq, ast.NotEq):
        for value, number in ((left, right), (right, left)):
            if isinstance(number, ast.Constant) and number.value == 0 and number.value is not False:
                return sense_of(value, op is ast.Eq)
        return f" {_SIGN[op]} ".join(sorted((unparse(left), unparse(right))))
    return f"{unparse(left)} {_SIGN[op]} {unparse(right)}"


def _sense(sign: str, node: ast.expr) -> str:
    return sign + unparse(node)


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _flat(node: ast.BoolOp) -> list[ast.expr]:
    """The operands of one joining, those of the same joining inside it included."""
    found: list[ast.expr] = []
    for value in node.values:
        same = isinstance(value, ast.BoolOp) and type(value.op) is type(node.op)
        found += _flat(value) if isinstance(value, ast.BoolOp) and same else [value]
    return found


def _operands(node: ast.expr) -> list[str]:
    """What a condition is about: the expressions it joins and compares, less constants and ``len``."""
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _operands(value)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _operands(node.operand)
    if isinstance(node, ast.Compare):
        return [text for value in (node.left, *node.comparators) for text in _operands(value)]
    if isinstance(node, ast.Call) and unparse(node.func) in ("bool", "len"):
        return [text for value in node.args for text in _operands(value)]
    return [] if isinstance(node, ast.Constant) else [unparse(node)]
