"""A second copy of a statement goes only where it is sure to say nothing new."""

from __future__ import annotations

import textwrap

import pytest

from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.threeway.duplicates import drop_asserts, drop_duplicates
from npu_upgrade.threeway.pieces import Conflict


def lines(text: str) -> list[Statement]:
    return split_statements(textwrap.dedent(text).strip("\n"))


ONE = lines("a = f(x)\nb = 2")


def dropped(text: str) -> tuple[list[str], int]:
    pieces, flags = drop_duplicates(lines(text), ONE, ONE, ONE)
    return [piece.key for piece in pieces], len(flags)


def test_the_second_copy_in_one_block_goes():
    pieces, flags = drop_duplicates(lines("a = f(x)\nb = 2\na = f(x)"), ONE, ONE, ONE)
    assert [piece.key for piece in pieces] == ["a = f(x)", "b = 2"]
    assert flags == []


def test_not_when_something_in_between_changes_what_it_reads():
    assert dropped("a = f(x)\nx = 2\na = f(x)") == (["a = f(x)", "x = 2", "a = f(x)"], 0)


def test_not_in_another_block():
    assert dropped("a = f(x)\nif b:\n    a = f(x)")[1] == 0


def test_not_where_one_version_has_it_twice():
    twice = lines("a = f(x)\nb = 2\na = f(x)")
    assert drop_duplicates(twice, ONE, ONE, twice) == (twice, [])


def test_not_across_a_conflict():
    conflict = Conflict((), tuple(lines("x = 1")), tuple(lines("x = 2")), "")
    pieces = [ONE[0], conflict, ONE[0]]
    assert drop_duplicates(pieces, ONE, ONE, ONE) == (pieces, [])


def test_its_comment_stays():
    marked = "# -------- omni: keep"
    for tail in ("\nc = 3", ""):
        pieces, _ = drop_duplicates(lines(f"a = f(x)\nb = 2\n{marked}\na = f(x){tail}"), ONE, ONE, ONE)
        assert [c.text for piece in pieces for c in piece.comments] == [marked]


@pytest.mark.parametrize(
    ("upstream", "kept"),
    [
        pytest.param("if seat:\n    seat.left -= 1", False, id="alone under its condition"),
        pytest.param("if seat:\n    seat.left -= 1\n    more(seat)", True, id="with something else"),
        pytest.param("if seat:\n    seat.left -= 1\nelse:\n    more()", True, id="an else behind it"),
    ],
)
def test_what_both_sides_brought_under_conditions_of_their_own(upstream: str, kept: bool) -> None:
    ours, theirs = lines("go()\nif seat and tall:\n    seat.left -= 1"), lines(f"go()\n{upstream}")
    pieces, flags = drop_duplicates([*ours, *theirs[1:]], lines("go()"), ours, theirs)
    assert pieces == ([*ours, *theirs[1:]] if kept else ours)
    assert [flag.kind for flag in flags] == ["twice"]


def test_a_block_that_both_sides_have_elsewhere_is_named_where_it_stands_twice() -> None:
    block = "a = f(x)\nx = g(a)"
    pieces, flags = drop_duplicates(lines(f"{block}\nb = 2\n{block}"), ONE, lines(block), lines(block))
    assert len(pieces) == 5
    assert [(flag.kind, flag.theirs) for flag in flags] == [("twice", block)]


GUARDED = "if seat is not None:\n    f(seat)"


@pytest.mark.parametrize(
    ("theirs", "text", "left"),
    [
        ("assert seat is not None\nf(seat)", f"assert seat is not None\n{GUARDED}", GUARDED),
        ("assert seat is not None\nf(seat)", f"assert seat is not None\ng()\n{GUARDED}", None),
        ("assert seat\nf(seat)", f"assert seat\n{GUARDED}", None),
        (f"assert seat is not None\n{GUARDED}", f"assert seat is not None\n{GUARDED}", None),
    ],
)
def test_an_assert_right_before_omni_tests_the_same_goes(theirs, text, left):
    pieces = drop_asserts(lines(text), lines(GUARDED), lines(theirs))
    assert [piece.key for piece in pieces] == [piece.key for piece in lines(left or text)]
