"""Which statement is which: equal ones, re-indented runs, re-worded ones."""

from __future__ import annotations

import itertools
import textwrap

import pytest
from code_gen import versions
from drawn import examples
from hypothesis import given, settings

from npu_upgrade.code.statements import split_statements
from npu_upgrade.threeway.align import align, align_similar, fine_changes, resembles, weight


def lines(text: str):
    return split_statements(textwrap.dedent(text).strip("\n"))


def paired(pairs, a, b) -> list[tuple[str, str]]:
    return [(a[i].key, b[j].key) for i, j in pairs]


@settings(max_examples=examples(150))
@given(versions())
def test_pairs_are_equal_statements_in_order(sides):
    base, side = split_statements(sides[0]), split_statements(sides[1])
    pairs = align(base, side)
    assert all(base[i].key == side[j].key for i, j in pairs)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in itertools.pairwise(pairs))


@settings(max_examples=examples(100))
@given(versions())
def test_fine_changes_turn_one_version_into_the_other(sides):
    base, side = split_statements(sides[0]), split_statements(sides[1])
    out, place = [], 0
    for change in fine_changes(base, side):
        out += [s.key for s in base[place : change.a0]] + [s.key for s in side[change.b0 : change.b1]]
        place = change.a1
    assert out + [s.key for s in base[place:]] == [s.key for s in side]


def test_a_run_that_was_wrapped_is_found_at_its_new_depth():
    base = lines("""
        a = self.prepare(batch, tokens)
        b = self.gather(a, device=d)
    """)
    side = lines("""
        with self.lock():
            a = self.prepare(batch, tokens)
            b = self.gather(a, device=d)
    """)
    assert align(base, side) == [(0, 1), (1, 2)]


def test_a_short_line_at_another_depth_is_not_believed():
    base, side = lines("x = a\nreturn"), lines("x = a\nif b:\n    return")
    assert paired(align(base, side), base, side) == [("x = a", "x = a")]


def test_a_line_at_anothers_old_depth_does_not_pull_a_wrapped_block_apart():
    base = lines("""
        try:
            first = self.prepare(batch, tokens)
        except KeyError:
            first = self.fallback(batch, tokens)
        for item in self.items(batch):
            try:
                second = self.gather(item, device=d)
            except KeyError:
                second = self.skip(item, device=d)
    """)
    side = lines("with self.lock():") + [s.shifted(4) for s in base]
    assert align(base, side) == [(n, n + 1) for n in range(len(base))]


def test_reworded_statements_pair_by_similarity():
    base, side = lines("x = f(a)\ny = self.gather(a, b)"), lines("y = self.gather(a, b, c)\nz = 1")
    assert paired(align_similar(base, side), base, side) == [
        ("y = self.gather(a, b)", "y = self.gather(a, b, c)")
    ]


def test_statements_of_another_kind_never_pair():
    assert align_similar(lines("return value(a, b)"), lines("value(a, b)")) == []


def test_resembling_is_same_target_or_similar_text():
    first, second, third = lines("x = f(a)\nx = other(thing)[1:]\ny = 0")
    assert resembles(first, second)
    assert not resembles(first, third)


def test_weight_counts_words():
    assert weight("else:") == 1
    assert weight("x = self.f(a, b)") > weight("x = a")


@pytest.mark.parametrize(
    ("condition", "pairs"), [("self.deep", True), ("self.deep and out", True), ("out", False)]
)
def test_an_else_is_not_paired_with_that_of_another_block(condition: str, pairs: bool) -> None:
    """What stands below it would come under the wrong condition."""
    base = lines("""
        out = self.run(batch)
        if self.deep:
            tokens, rest = out
        else:
            tokens = out
        return tokens
    """)
    side = lines(f"""
        out = self.run(batch)
        if {condition}:
            self.log(out)
        else:
            self.log("none")
        tokens = self.read(out)
        return tokens
    """)
    assert (("else:", "else:") in paired(align(base, side), base, side)) == pairs
