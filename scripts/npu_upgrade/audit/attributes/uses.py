"""How the attributes in a function are used: called, or tested for truth or against a constant."""

from __future__ import annotations

import ast
from typing import Literal

from npu_upgrade.audit.attributes.natures import nature
from npu_upgrade.program.program import ClassSymbol
from npu_upgrade.program.type_terms import Type, classes

Use = Literal["called", "tested"]
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert)
_WRONG = {"called": "value", "tested": "method"}


def note_uses(node: ast.AST, uses: dict[int, Use]) -> None:
    """Note what a node does with the attributes right below it, by their identity."""
    if isinstance(node, ast.Call):
        uses[id(node.func)] = "called"
    elif isinstance(node, _TESTS):
        _tested(node.test, uses)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            _tested(test, uses)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _tested(node.operand, uses)
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values[:-1]:
            _tested(value, uses)
    elif isinstance(node, ast.Compare) and all(_is_plain(value) for value in node.comparators):
        uses[id(node.left)] = "tested"


def misused(known: Type | None, name: str, use: Use) -> ClassSymbol | None:
    """The class on which a value is called, or a method tested as if it were a value; None for a fit use."""
    terms = sorted(classes(known), key=lambda term: term.name)
    return terms[0] if terms and all(nature(term, name) == _WRONG[use] for term in terms) else None


def _tested(test: ast.expr, uses: dict[int, Use]) -> None:
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        if isinstance(part, ast.BoolOp):
            _tested(part, uses)
        else:
            uses[id(part)] = "tested"


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression is a constant that no method equals; ``x is None`` may be meant."""
    return isinstance(value, ast.Constant) and value.value is not None
