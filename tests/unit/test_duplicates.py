"""A second copy of a statement goes only where it is sure to say nothing new."""

from __future__ import annotations

import textwrap

import pytest

from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.threeway.duplicates import drop_asserts, drop_duplicates
from npu_upgrade.threeway.pieces import Conflict, resolved


def lines(text: str) -> list[Statement]:
    return split_statements(textwrap.dedent(text).strip("\n"))


ONE = lines("a = f(x)\nb = 2")


def dropped(text: str) -> tuple[list[str], list[list[str]]]:
    """What is left outside of conflicts, and what each conflict would add."""
    pieces, flags = drop_duplicates(lines(text), ONE, ONE, ONE)
    assert not flags
    asked = [[s.key for s in piece.theirs] for piece in pieces if isinstance(piece, Conflict)]
    return [piece.key for piece in pieces if isinstance(piece, Statement)], asked


def test_the_second_copy_in_one_block_goes():
    pieces, flags = drop_duplicates(lines("a = f(x)\nb = 2\na = f(x)"), ONE, ONE, ONE)
    assert [piece.key for piece in pieces] == ["a = f(x)", "b = 2"]
    assert flags == []


@pytest.mark.parametrize(
    "text",
    [
        "a = f(x)\nif b:\n    g()\n    a = f(x)",
        "a = f(x)\nfor b in x:\n    g()\n    a = f(x)",
    ],
)
def test_nor_a_copy_in_a_block_below(text: str) -> None:
    kept, asked = dropped(text)
    assert (kept.count("a = f(x)"), kept[-1], asked) == (1, "g()", [])


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        pytest.param("a = f(x)\nx = 2\na = f(x)", ["a = f(x)"], id="x is another one"),
        pytest.param("a = f(x)\nif b:\n    a = f(x)", ["if b:", "a = f(x)"], id="alone in its block"),
        pytest.param("if b:\n    a = f(x)\nelse:\n    g()\n    a = f(x)", ["a = f(x)"], id="another branch"),
        pytest.param(
            "a = f(x)\nfor b in x:\n    a = f(x)\n    x = g()", ["a = f(x)"], id="x changes in a loop"
        ),
        pytest.param("a = f(x)\ndef g():\n    h()\n    a = f(x)", ["a = f(x)"], id="another function"),
    ],
)
def test_a_copy_that_may_say_something_new_is_asked(text: str, asked: list[str]) -> None:
    assert dropped(text)[1] == [asked]


def test_not_where_one_version_has_it_twice():
    twice = lines("a = f(x)\nb = 2\na = f(x)")
    assert drop_duplicates(twice, ONE, ONE, twice) == (twice, [])


def test_a_copy_behind_a_conflict_is_asked():
    conflict = Conflict((), tuple(lines("x = 1")), tuple(lines("x = 2")), "")
    pieces, flags = drop_duplicates([ONE[0], conflict, ONE[0]], ONE, ONE, ONE)
    assert (pieces[:2], flags) == ([ONE[0], conflict], [])
    assert isinstance(pieces[2], Conflict)
    assert pieces[2].theirs == (ONE[0],)


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
    if not kept:
        assert (pieces, [flag.kind for flag in flags]) == (ours, ["twice"])
        return
    assert resolved(pieces, "theirs") == [*ours, *theirs[1:]]
    asked = [one.theirs[0].key for one in pieces if isinstance(one, Conflict)]
    assert asked == ["if seat:" if "else" in upstream else "seat.left -= 1"]


def test_a_block_that_would_stand_twice_is_left_to_a_person() -> None:
    block = "if x:\n    a = f(x)\n    x = g(a)\nelse:\n    h()"
    pieces, flags = drop_duplicates(lines(f"{block}\nb = 2\n{block}"), ONE, lines(block), lines(block))
    assert (pieces[:-1], flags) == (lines(f"{block}\nb = 2"), [])
    (conflict,) = [one for one in pieces if isinstance(one, Conflict)]
    assert conflict.theirs == tuple(lines(block))
    assert not conflict.ours


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
