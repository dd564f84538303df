"""Logical statements: what counts as one, as equal, and that nothing of the source is lost."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from code_gen import methods, versions
from drawn import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npu_upgrade.code.statements import END, Comment, render, split_statements, statements_of
from npu_upgrade.threeway.pieces import as_module

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for folder in ("scripts/npu_upgrade", "tests/unit") for path in (ROOT / folder).rglob("*.py")
)


def keys(source: str) -> list[str]:
    return [s.key for s in split_statements(source)]


def code(source: str) -> list[tuple[int, str]]:
    return [(s.indent, s.key) for s in split_statements(source) if s.key != END]


def stripped(source: str) -> list[str]:
    return [line.rstrip() for line in source.rstrip().split("\n")]


@settings(max_examples=examples(100))
@given(methods())
def test_a_method_survives_the_round_trip(source):
    assert render(split_statements(source)) == source


def test_the_files_of_this_repository_survive_the_round_trip():
    for path in SOURCES[:: len(SOURCES) // examples(len(SOURCES))]:
        source = path.read_text(encoding="utf-8")
        assert stripped(render(split_statements(source))) == stripped(source), path


@settings(max_examples=examples(100))
@given(methods())
def test_layout_and_comments_do_not_change_the_keys(source):
    plain = ast.unparse(ast.parse(as_module(source)).body[0].body[0])
    assume(len(code(plain)) == len(code(source)))  # an ``if`` alone under ``else`` is now an ``elif``
    assert code(plain) == [(indent - 4, key) for indent, key in code(source)]


@settings(max_examples=examples(200))
@given(versions())
def test_keys_differ_exactly_where_the_code_does(sides):
    trees = [ast.dump(ast.parse(as_module(side))) for side in sides]
    assert (code(sides[0]) == code(sides[1])) == (trees[0] == trees[1])
    assert (code(sides[0]) == code(sides[2])) == (trees[0] == trees[2])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f(a, b)", "f(\n    a,\n    b,\n)"),
        ("x = 'a'", 'x = "a"'),
        ("x = (1)", "x = 1  # why"),
        ("x = a + \\\n    b", "x = a + b"),
        ("elif  a :", "elif a:"),
        ("except  (A, B) as e :", "except (A, B) as e:"),
        ("else :", "else:  # why"),
        ("@cached( 1 )", "@cached(1)"),
        ('"""One.\n\n    Two.\n    """', '"""One.\n\n        Two.\n        """'),
    ],
)
def test_equal_code_has_one_key(one, other):
    assert keys(one) == keys(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f(a, b)", "f(b, a)"),
        ("x = 1", "x = 1.0"),
        ("if a:", "elif a:"),
        ("x = '''a\n b'''", "x = '''a\nb'''"),
    ],
)
def test_different_code_has_two_keys(one, other):
    assert keys(one) != keys(other)


def test_comments_travel_with_the_statement_that_follows():
    first, second = split_statements("    a = 1\n\n    # why\n    b = 2")
    assert first.comments == ()
    assert second.comments == (Comment(4, "# why", blanks=1),)


def test_comments_behind_the_last_statement_are_kept():
    source = "    a = 1\n    # -------- omni: end"
    assert [s.key for s in split_statements(source)] == ["a = 1", END]
    assert render(split_statements(source)) == source


def test_a_comment_inside_a_call_stays_in_its_lines():
    source = "    f(\n        a,  # first\n        # second\n        b,\n    )"
    (statement,) = split_statements(source)
    assert statement.comments == ()
    assert render([statement]) == source


def test_a_shift_moves_code_and_comments_but_not_the_inside_of_a_string():
    (statement,) = split_statements("    # why\n    x = f(\n        '''one\n    two''',\n    )")
    shifted = statement.shifted(4)
    assert render([shifted]) == "        # why\n        x = f(\n            '''one\n    two''',\n        )"


def test_only_a_header_without_its_block_on_the_line_is_a_header():
    assert [s.is_header for s in split_statements("if a:\n    b\nif c: d\nx = {1: 2}")] == [
        True,
        False,
        False,
        False,
    ]


def test_what_is_not_python_is_refused():
    with pytest.raises(SyntaxError):
        split_statements("x = (1,")


@given(methods(), st.lists(st.integers(0, 6), max_size=30))
def test_statements_of_any_depth_are_read_back(source: str, depths: list[int]):
    found = [s.shifted(4 * depth) for s, depth in zip(split_statements(source), depths, strict=False)]
    assert statements_of(render(found)) == found
