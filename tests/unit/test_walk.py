"""Going through a tree gives what ``ast.walk`` gives, in its order, but for contexts and operators."""

from __future__ import annotations

import ast

from code_gen import methods
from hypothesis import given

from npu_upgrade.code.walk import walk

_LEFT_OUT = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


def plain(tree: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if not isinstance(node, _LEFT_OUT)]


@given(methods())
def test_as_ast_walk(source: str) -> None:
    tree = ast.parse(f"class Runner:\n{source}")
    assert walk(tree) == plain(tree)


def test_lists_of_several_kinds() -> None:
    tree = ast.parse("match x:\n    case {'a': [1, *_], **rest} if y:\n        del a, b[1:2]\n")
    assert walk(tree) == plain(tree)
