"""Going through a tree gives what ``ast.walk`` gives, in its order."""

from __future__ import annotations

import ast

from code_gen import methods
from hypothesis import given

from npu_upgrade.code.walk import walk


@given(methods())
def test_as_ast_walk(source: str) -> None:
    tree = ast.parse(f"class Runner:\n{source}")
    assert walk(tree) == list(ast.walk(tree))


def test_lists_of_several_kinds() -> None:
    tree = ast.parse("match x:\n    case {'a': [1, *_], **rest} if y:\n        del a, b[1:2]\n")
    assert walk(tree) == list(ast.walk(tree))
