"""The statements of methods, and how much of one stands in another."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterable, Mapping

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.code.walk import walk
from npu_upgrade.lineage.dialect import translate
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.program.conditions import text_of
from npu_upgrade.program.facts import FUNCTION, Fact, facts_of
from npu_upgrade.program.program import File, Method
from npu_upgrade.threeway.align import weight

_TELLING = 3


@functools.lru_cache(maxsize=4096)  # files and nodes are their own keys
def statements_of(file: File, node: Function) -> tuple[Statement, ...]:
    """The statements of a function's body in the words of the NPU side; empty where that cannot be told."""
    start = node.body[0].lineno - 1
    source = "\n".join(file.source.split("\n")[start : node.end_lineno])
    try:
        wrapped = translate("if 1:\n" + source, Downstream.within(file.program).class_names)
        return tuple(s for s in split_statements(wrapped)[1:] if s.key != END)
    except (SyntaxError, ValueError):
        return ()


def share_within(file: File, node: Function, others: Iterable[tuple[File, Function]]) -> float:
    """The share of a function's telling statements that stand in one of the others too."""
    own = {s.key for s in statements_of(file, node) if weight(s.key) >= _TELLING}
    there = {s.key for other in others for s in statements_of(*other)}
    return len(own & there) / len(own) if own else 0.0


def is_written_out(fact: Fact, gpu: Method, npu: Iterable[Method]) -> bool:
    """Whether a function of one expression stands in the NPU methods as that expression.

    ``fact`` is its call in the method ``gpu``.
    """
    calls = [n for n in walk(gpu.node) if isinstance(n, ast.Call) and n is fact.node]
    symbols = facts_of(gpu.owner.file, gpu.node).symbols
    found = [symbol for symbol in symbols if fact.kind == FUNCTION and symbol.node.name == fact.name]
    if not calls or not found or not isinstance(last := found[0].node.body[-1], ast.Return):
        return False
    statements = [n for n in found[0].node.body if not isinstance(n, ast.Expr)]
    if len(statements) != 1 or last.value is None:
        return False
    names = [arg.arg for arg in found[0].node.args.args]
    given = dict(zip(names, calls[0].args, strict=False)) | {
        k.arg: k.value for k in calls[0].keywords if k.arg
    }
    text = ast.unparse(_Replace(given).visit(copy.deepcopy(last.value)))
    return any(text in text_of(method.node) for method in npu)


class _Replace(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.given.get(node.id, node)
