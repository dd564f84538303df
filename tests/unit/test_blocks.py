"""Blocks of three versions, and the depth that a statement inherits."""

from __future__ import annotations

import textwrap

import pytest
from code_gen import versions
from drawn import examples
from hypothesis import given, settings

from npu_upgrade.code.statements import Comment, Statement, split_statements
from npu_upgrade.threeway.blocks import Span, block_starts, enclosing_block, split_at_blocks
from npu_upgrade.threeway.comments import lost_inline, merge_comments, own_comments
from npu_upgrade.threeway.shifts import agreed_depth, inherited_shifts, parents


def lines(text: str) -> list[Statement]:
    return split_statements(textwrap.dedent(text).strip("\n"))


BLOCKS = lines("""
    a = 1
    if a:
        b = 2
    else:
        c = 3
    d = 4
""")


def test_blocks_start_at_the_outermost_statements_and_else_is_no_start():
    assert block_starts(BLOCKS, 0, len(BLOCKS)) == [0, 1, 5]


def test_the_enclosing_block_has_its_header_and_its_else():
    assert enclosing_block(BLOCKS, 2, 3) == (1, 5)


def test_the_enclosing_block_grows_until_it_is_everything():
    place = (2, 3)
    for _ in range(len(BLOCKS)):
        place = enclosing_block(BLOCKS, *place)
    assert place == (0, len(BLOCKS))


def test_a_place_splits_at_the_block_that_all_three_have():
    other = lines("x = 0") + BLOCKS[1:5]
    parts = split_at_blocks(Span(0, 6, 0, 5, 0, 6), BLOCKS, other, BLOCKS)
    assert parts == [Span(0, 1, 0, 1, 0, 1), Span(1, 5, 1, 5, 1, 5), Span(5, 6, 5, 5, 5, 6)]


@settings(max_examples=examples(100))
@given(versions())
def test_the_parts_of_a_place_cover_it_in_order(sides):
    base, ours, theirs = map(split_statements, sides)
    parts = split_at_blocks(Span(0, len(base), 0, len(ours), 0, len(theirs)), base, ours, theirs)
    for low, high, size in (("b0", "b1", base), ("o0", "o1", ours), ("t0", "t1", theirs)):
        edges = [0, *(getattr(part, high) for part in parts)]
        assert [getattr(part, low) for part in parts] == edges[:-1]
        assert edges[-1] in (0, len(size)), "0 when there are no parts"


def test_parents_are_the_headers_above():
    assert parents(BLOCKS) == [None, None, 1, None, 3, None]


def test_an_inserted_statement_moves_with_both_its_neighbours():
    side = lines("a = 1\nnew = 2\nb = 3")
    assert inherited_shifts(side, {0: 4, 2: 4}) == [4, 4, 4]


def test_where_the_neighbours_disagree_it_stays_with_its_header():
    side = lines("if c:\n    a = 1\n    new = 2\n    b = 3")
    assert inherited_shifts(side, {0: 0, 1: 0, 3: 4}) == [0, 0, 0, 4]


def test_one_wrap_that_both_sides_have_is_no_change_of_either():
    base, wrapped = lines("a = f(1)"), lines("with lock():\n    a = f(1)")
    assert agreed_depth(base, wrapped, wrapped, {0: 1}, {0: 1})[0].indent == 4


def test_two_wraps_of_one_depth_are_two_changes():
    base = lines("if c:\n    a = f(1)")
    ours, theirs = (
        lines("with x():\n    if c:\n        a = f(1)"),
        lines("for y in z:\n    if c:\n        a = f(1)"),
    )
    mates = {0: 1, 1: 2}
    assert agreed_depth(base, ours, theirs, mates, mates) == base


def comments(*texts: str) -> tuple[Comment, ...]:
    return tuple(Comment(4, text) for text in texts)


def test_comments_that_both_sides_added_stay():
    assert merge_comments(comments("# a"), comments("# a", "# o"), comments("# t")) == comments("# t", "# o")


def test_a_comment_that_only_upstream_changed_is_upstreams():
    assert merge_comments(comments("# a"), comments("# a"), comments("# b")) == comments("# b")


def test_own_comments_are_those_that_base_lacks():
    assert own_comments(comments("# a"), comments("# a", "# o")) == comments("# o")


def test_a_comment_inside_a_statement_that_is_laid_out_anew_becomes_a_line():
    base, ours = lines("f(a)")[0], lines("f(a, b)  # omni: b")[0]
    assert lost_inline(base, ours, ("f(a, b, c)",), 4) == (Comment(4, "# omni: b"),)
    assert lost_inline(base, ours, ours.lines, 4) == ()


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "want"),
    [
        # ours wraps what base says otherwise, and upstream dropped it
        (["# one two three", "# four five"], ["# one two", "# three four five"], None, []),
        # ours wraps what theirs says otherwise
        (["# one"], ["# one two", "# three"], ["# one two three"], ["# one two three"]),
        # a full stop is no change
        (["# old"], ["# shut the gate."], ["# shut the gate"], ["# shut the gate"]),
        # an edited comment is kept whole
        (["# one two", "# three"], ["# one two", "# other"], None, ["# one two", "# other"]),
        # what was added to it is kept alone
        (["# one two"], ["# one two", "# omni: more"], None, ["# omni: more"]),
        # lines of dashes have no words
        (["# one"], ["# one", "# ----"], ["# two"], ["# two", "# ----"]),
    ],
)
def test_a_comment_is_judged_by_its_words(base, ours, theirs, want):
    sides = comments(*base), comments(*ours)
    found = merge_comments(*sides, comments(*theirs)) if theirs else own_comments(*sides)
    assert found == comments(*want)
