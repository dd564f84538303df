"""Merging inside one statement: different pieces combine, the same piece does not."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter

import pytest
from code_gen import Node, call, reword
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.code.statements import canonical
from npu_upgrade.threeway.expressions import agreed_version, merge_statement


def merged(base: str, ours: str, theirs: str, **options) -> str | None:
    outcome = merge_statement(canonical(base), canonical(ours), canonical(theirs), **options)
    return outcome and outcome.text


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "want"),
    [
        pytest.param("f(a)", "f(b)", "f(a)", "f(b)", id="only ours changed"),
        pytest.param("f(a)", "f(a)", "f(b)", "f(b)", id="only theirs changed"),
        pytest.param("f(a, b)", "f(x, b)", "f(a, y)", "f(x, y)", id="different arguments"),
        pytest.param("f(a=1)", "f(a=1, x=2)", "f(a=1, y=3)", "f(a=1, x=2, y=3)", id="ours' keyword first"),
        pytest.param("f(b=2, c=1)", "f(c=1, b=2, x=3)", "f(b=2, c=4)", "f(c=4, b=2, x=3)", id="ours' order"),
        pytest.param("f(a=1, b=2)", "f(a=1)", "f(a=1, b=2, c=3)", "f(a=1, c=3)", id="dropped stays dropped"),
        pytest.param("t = (a, b)", "t = (a, b, x)", "t = (a, b, y)", "t = (a, b, y, x)", id="both append"),
        pytest.param("t = a, b", "t = a, b, x", "t = a, b, x, y", "t = (a, b, x, y)", id="common item once"),
        pytest.param("def f(a):", "def f(a, x=1):", "def f(a, y=2):", "def f(a, x=1, y=2):", id="parameters"),
        pytest.param("if a and b:", "if x and b:", "if a and c:", "if x and c:", id="operands"),
        pytest.param("elif a or b:", "elif x or b:", "elif a or c:", "elif x or c:", id="elif stays elif"),
        pytest.param("if a:", "elif a:", "if b:", "elif b:", id="if became elif"),
        pytest.param(
            "a and f(b)", "a and c and f(b)", "a and f(b or d)", "a and c and f(b or d)",
            id="beside a new version",
        ),
        pytest.param(
            "f(a) and b", "(f(a, c) or d) and b", "f(a, c) and b", "(f(a, c) or d) and b",
            id="and inside something",
        ),
        pytest.param("def f(k: A):", "def f(k):", "def f(k: A | B):", "def f(k):", id="no hint here"),
        pytest.param("x: A = f()", "x: A = g()", "x = f()", "x = g()", id="the hint went"),
        pytest.param("'one'", "'two'", "'three'", '"""two"""', id="a docstring"),
        pytest.param("x: Optional[A]", "x: A | None", "x: Optional[A] = 3", "x: A | None = 3", id="spelling"),
        pytest.param(
            "def f(a: Optional[A]):", "def f(a: A | C | None):", "def f(a: Optional[A | B]):",
            "def f(a: A | C | None | B):", id="alternatives of a hint",
        ),
        pytest.param("f(a)", "f(a, **{'k': v})", "f(a, k=v)", "f(a, k=v)", id="dict display is a keyword"),
        pytest.param("f(a)", "m.n.f(a, x=1)", "f(a)", "m.n.f(a, x=1)", id="one side only"),
    ],
)  # fmt: skip
def test_different_pieces_combine(base, ours, theirs, want):
    assert merged(base, ours, theirs) == want


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param("f(a)", "f(b)", "f(c)", id="one argument, two values"),
        pytest.param("f(a=1)", "f(a=2)", "f(a=3)", id="one keyword, two values"),
        pytest.param("f(a=1)", "f(a=2)", "f()", id="changed here, dropped there"),
        pytest.param("f()", "f(k=1)", "f(k=2)", id="added with two values"),
        pytest.param("x = f(a)", "return g(a)", "x = f(b)", id="another kind of statement"),
        pytest.param("def f(a):", "def f(a, c=1):", "def f(a, b):", id="no default behind a default"),
    ],
)
def test_the_same_piece_does_not(base, ours, theirs):
    assert merged(base, ours, theirs) is None


def test_an_own_callee_keeps_its_own_arguments_and_says_so():
    outcome = merge_statement("x = pad(a)", "x = omni_pad(a, b)", "x = pad(a, new=1)")
    assert outcome is not None
    assert (outcome.text, outcome.callee_kept) == ("x = omni_pad(a, b)", "omni_pad")


def test_another_path_to_the_same_callee_is_a_spelling():
    assert merged("mod.f(a)", "f(a, x=1)", "mod.f(a, y=2)") == "mod.f(a, x=1, y=2)"


def test_but_not_when_the_name_is_omnis_own():
    outcome = merge_statement("mod.f(a)", "f(a, x=1)", "mod.f(a, y=2)", frozenset({"f"}))
    assert outcome is not None
    assert (outcome.text, outcome.callee_kept) == ("f(a, x=1)", "f")


def test_an_argument_dropped_here_and_changed_there_stays_dropped_and_is_named():
    outcome = merge_statement("f(a=1, b=2)", "f(a=1)", "f(a=1, b=3)")
    assert outcome is not None
    assert (outcome.text, outcome.dropped) == ("f(a=1)", "b")


def test_the_agreed_version_takes_only_what_ours_has():
    assert agreed_version("f(a, b, c=1)", "f(a, x, c=2)", "f(a, x, c=1, own=3)") == "f(a, x, c=1)"


def test_a_base_that_ours_agrees_with_is_left_alone():
    assert agreed_version("f(a, b)", "f(a, c)", "f(a, b, own=1)") == "f(a, b)"


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


@st.composite
def statements(draw: st.DrawFn) -> list[str]:
    rng: random.Random = draw(st.randoms(use_true_random=False))
    base = f"{rng.choice(['x = ', 'return ', ''])}{call(rng)}"
    sides = [Node(base), Node(base)]
    for side in sides:
        for _ in range(rng.randint(1, 2)):
            reword(rng, side)
    return [canonical(code) for code in (base, sides[0].code, sides[1].code)]


@settings(max_examples=examples(300))
@given(statements())
def test_no_word_of_a_side_gets_lost(three):
    base, ours, theirs = three
    outcome = merge_statement(*three)
    if outcome is None or outcome.callee_kept:
        return
    ast.parse(outcome.text)
    assert words(ours) - words(base) <= words(outcome.text)
    assert words(theirs) - words(base) <= words(outcome.text)
    assert set(words(outcome.text)) <= {*words(base), *words(ours), *words(theirs)}, "nothing is invented"


@settings(max_examples=examples(200))
@given(statements())
def test_one_sided_changes_are_taken_whole(three):
    base, side, _ = three
    assert merge_statement(base, side, base).text == side
    assert merge_statement(base, base, side).text == side
    assert merge_statement(base, side, side).text == side
