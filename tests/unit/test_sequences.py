"""Sequence alignment: pairs increase, pair equal items, and changes cover what is left."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.code.sequences import Change, changes, dice, longest_common, overlap, patience, similarity

ITEMS = st.lists(st.sampled_from("abcdef"), max_size=20)


def check_pairs(pairs, a, b):
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in itertools.pairwise(pairs))


@given(ITEMS, ITEMS)
def test_patience_gives_increasing_pairs_of_equal_items(a, b):
    check_pairs(patience(a, b), a, b)


@given(ITEMS, ITEMS)
def test_longest_common_gives_increasing_pairs_of_equal_items(a, b):
    check_pairs(longest_common(a, b), a, b)


@given(ITEMS, ITEMS)
def test_longest_common_is_never_shorter_than_patience(a, b):
    assert len(longest_common(a, b)) >= len(patience(a, b))


@given(ITEMS)
def test_equal_sequences_pair_completely(a):
    whole = [(n, n) for n in range(len(a))]
    assert patience(a, a) == whole
    assert longest_common(a, a) == whole


@given(ITEMS, ITEMS)
def test_pairs_and_changes_cover_everything_once(a, b):
    pairs = patience(a, b)
    found = changes(pairs, len(a), len(b))
    assert sorted([i for i, _ in pairs] + [i for c in found for i in range(c.a0, c.a1)]) == [*range(len(a))]
    assert sorted([j for _, j in pairs] + [j for c in found for j in range(c.b0, c.b1)]) == [*range(len(b))]
    assert all(c.a0 < c.a1 or c.b0 < c.b1 for c in found)


@given(ITEMS, ITEMS)
def test_applying_the_changes_gives_the_other_sequence(a, b):
    out, place = [], 0
    for change in changes(longest_common(a, b), len(a), len(b)):
        out += a[place : change.a0] + b[change.b0 : change.b1]
        place = change.a1
    assert out + a[place:] == b


@given(ITEMS, ITEMS)
def test_overlap_is_an_upper_bound_of_dice(a, b):
    assert overlap(Counter(a), Counter(b)) >= dice(a, b)[0]


def test_patience_keeps_a_block_together():
    # the common "}" must not tie the new block to the end of the old one
    old, new = list("f{a}"), list("g{b}f{a}")
    assert patience(old, new) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_changes_name_the_runs_on_both_sides():
    assert changes([(0, 0), (2, 1)], 3, 4) == [Change(1, 2, 1, 1), Change(3, 3, 2, 4)]


def test_similarity_is_a_share_of_common_text():
    assert similarity("abc", "abc") == 1.0
    assert similarity("self.f(a)", "self.f(a, b)") > 0.8
    assert similarity("abc", "xyz") == 0.0
