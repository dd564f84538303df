"""The base a method was copied from, put together from the versions at hand."""

from __future__ import annotations

import textwrap
from collections import Counter

from code_gen import versions
from drawn import examples
from hypothesis import given, settings

from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.threeway.nearest_base import add_ported, nearest_base


def lines(text: str) -> list[Statement]:
    return split_statements(textwrap.dedent(text).strip("\n"))


def keys(statements: list[Statement]) -> list[str]:
    return [s.key for s in statements if s.key != END]


@settings(max_examples=examples(150))
@given(versions())
def test_a_method_equal_to_the_best_version_has_it_as_base(sides):
    best, older, newer = map(split_statements, sides)
    assert keys(nearest_base(best, [older], [newer], best)) == keys(best)


@settings(max_examples=examples(100))
@given(versions())
def test_a_method_equal_to_a_neighbour_has_that_as_base(sides):
    best, older, newer = map(split_statements, sides)
    assert keys(nearest_base(best, [older], [newer], older)) == keys(older)
    assert keys(nearest_base(best, [older], [newer], newer)) == keys(newer)


@settings(max_examples=examples(150))
@given(versions())
def test_what_both_sides_ported_and_nothing_else_joins_the_base(sides):
    base, ours, theirs = map(split_statements, sides)
    added = Counter(keys(add_ported(base, ours, theirs))) - Counter(keys(base))
    assert added <= Counter(keys(ours)) & Counter(keys(theirs))
    assert not Counter(keys(base)) - Counter(keys(add_ported(base, ours, theirs)))


@settings(max_examples=examples(100))
@given(versions())
def test_a_line_that_only_omni_has_does_not_change_the_base(sides):
    best, older, newer = map(split_statements, sides)
    ours = [*best, Statement("self.omni_only(batch)", 8, ("self.omni_only(batch)",))]
    held = Counter(keys(best)) | Counter(keys(older)) | Counter(keys(newer))
    assert Counter(keys(nearest_base(best, [older], [newer], ours))) <= held


BEST = """
    def step(self, batch):
        tokens = self.prepare(batch)
        hidden = self.model(tokens, mask=None)
        logits = self.sample(hidden, batch)
        return logits
"""
NEWER = """
    def step(self, batch):
        tokens = self.prepare(batch)
        self.record(tokens, batch)
        hidden = self.model(tokens, mask=None)
        logits = self.sample(hidden, batch)
        return logits
"""


def test_a_copy_of_a_newer_version_has_that_as_base():
    assert keys(nearest_base(lines(BEST), [], [lines(NEWER)], lines(NEWER))) == keys(lines(NEWER))


def test_a_copy_of_an_older_version_has_that_as_base():
    assert keys(nearest_base(lines(NEWER), [lines(BEST)], [], lines(BEST))) == keys(lines(BEST))


def test_a_piece_of_a_newer_version_that_ours_lacks_stays_out():
    assert keys(nearest_base(lines(BEST), [], [lines(NEWER)], lines(BEST))) == keys(lines(BEST))


def test_half_of_a_newer_piece_is_not_enough():
    newer = NEWER.replace(
        "self.record(tokens, batch)\n", "self.record(tokens, batch)\n        self.flush(batch)\n"
    )
    assert "self.flush(batch)" in keys(lines(newer))
    assert keys(nearest_base(lines(BEST), [], [lines(newer)], lines(NEWER))) == keys(lines(BEST))


def test_an_argument_of_another_version_that_ours_has_is_taken():
    newer, ours = (
        BEST.replace("mask=None", "mask=batch.mask"),
        BEST.replace("mask=None", "mask=batch.mask, omni=1"),
    )
    base = nearest_base(lines(BEST), [], [lines(newer)], lines(ours))
    assert keys(base) == keys(lines(newer))


def test_what_omni_dropped_long_ago_was_in_its_base():
    # older versions have the statement too, so omni had it and dropped it
    ours = BEST.replace("        logits = self.sample(hidden, batch)\n", "")
    assert keys(nearest_base(lines(BEST), [lines(BEST)], [], lines(ours))) == keys(lines(BEST))


def test_a_statement_that_both_moved_is_not_ported_twice():
    base = lines("a = self.first(1)\nb = self.second(a, 2)")
    moved = lines("b = self.second(a, 2)\na = self.first(1)")
    assert Counter(keys(add_ported(base, moved, moved))) == Counter(keys(base))
