"""Going through a tree gives what ``ast.walk`` gives, in its order, but for contexts and operators."""

from __future__ import annotations

import ast

from code_gen import methods
from hypothesis import given

from npu_upgrade.code.walk import are_equal, walk

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


def test_a_tree_is_equal_to_one_of_the_same_text_elsewhere() -> None:
    text = "def f(self, a=None, *, b=1):\n    return {**a, b: not a, 'c': [b for b in a if b > 0]}\n"
    assert are_equal(ast.parse(text), ast.parse(f"\n\n# moved\n{text}"))
    assert not are_equal(ast.parse(text), ast.parse(text.replace("'c'", "'d'")))


def test_trees_that_differ_in_an_operator_or_a_length() -> None:
    assert not are_equal(ast.parse("a + b"), ast.parse("a - b"))
    assert not are_equal(ast.parse("f(a)"), ast.parse("f(a, b)"))
    assert not are_equal(ast.parse("a = 1"), ast.parse("a = True"))
