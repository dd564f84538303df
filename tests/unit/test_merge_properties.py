"""What holds for every merge: nothing gets lost in silence, nothing is invented, all of it is Python.

The three versions are generated methods with edits that people make: statements added,
deleted, re-worded, wrapped, unwrapped, swapped, moved and commented, on one side or both.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from code_gen import edited_apart, versions
from drawn import examples
from hypothesis import assume, given, settings

from npu_upgrade.code.statements import END, Statement, render, split_statements
from npu_upgrade.threeway.align import align, weight
from npu_upgrade.threeway.expressions import merge_statement
from npu_upgrade.threeway.method import merge_method
from npu_upgrade.threeway.pieces import MergedMethod, as_module, resolved, syntax_error
from npu_upgrade.threeway.renaming import follow_renames

# The same examples on every run: some generated triples have no one right answer to check against.
many = settings(max_examples=examples(250), derandomize=True)
some = settings(max_examples=examples(100), derandomize=True)


def merge(*sides: str) -> MergedMethod:
    return merge_method(*map(split_statements, sides))


def followed(base: str, ours: str, theirs: str) -> tuple[str, str, str]:
    """The versions, the first two with the names that upstream gave to values anew."""
    before, own = follow_renames(*map(split_statements, (base, ours, theirs)))
    return render(before), render(own), theirs


def is_combined(key: str, old: Iterable[str], ours: Iterable[str], theirs: Iterable[str]) -> bool:
    """Whether a statement of each side, changed from one of base, combine to ``key``."""
    three = (three for three in itertools.product(set(old), set(ours), set(theirs)) if len(set(three)) == 3)
    return any(merged.text == key for one in three if (merged := merge_statement(*one)))


def plain(merged: MergedMethod) -> list[Statement]:
    return [piece for piece in merged.pieces if isinstance(piece, Statement) and piece.key != END]


def code(statements: Iterable[Statement]) -> list[tuple[int, str]]:
    return [(s.indent, s.key) for s in statements if s.key != END]


def count(statements: Iterable[Statement]) -> Counter[str]:
    return Counter(s.key for s in statements if s.key != END)


def comments(source: str) -> set[str]:
    """The comments of a method, those inside statements too."""
    return set(re.findall(r"# .*", source))


def flagged(text: str) -> list[Statement]:
    """The statements of a flag's text, which may begin at any depth."""
    first = next(
        (line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), ""
    )
    depth = (len(first) - len(first.lstrip())) // 4
    return split_statements("".join("    " * n + "if 1:\n" for n in range(depth)) + text)[depth:]


def accounted_for(merged: MergedMethod) -> Counter[str]:
    """What the result, its conflicts or its flags hold."""
    held = count(plain(merged))
    for conflict in merged.conflicts:
        held += count(conflict.ours) | count(conflict.theirs)
    for flag in merged.flags:
        held += count(flagged(flag.ours)) | count(flagged(flag.theirs))
    return held


def words(key: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", key))


def is_part_of(key: str, others: Sequence[Statement], base: Sequence[Statement]) -> bool:
    """Whether the change that made ``key`` out of a base statement is in one of ``others`` too."""
    for other in others:
        for old in base:
            new, gone = words(key) - words(old.key), words(old.key) - words(key)
            small = new.total() <= max(2, 0.6 * words(key).total())
            if small and key != old.key != other.key and new <= words(other.key) - (gone - words(other.key)):
                return True
    return False


def lost(merged: MergedMethod, base: str, side: str, other: str) -> list[str]:
    """Statements of ``side`` that are gone though the other side did not delete or include them."""
    old, mine, rival = (split_statements(text) for text in (base, side, other))
    new = set(count(plain(merged))).difference(*map(count, (old, mine, rival)))
    held, was, had, theirs = accounted_for(merged), count(old), count(mine), count(rival)
    matched = {i for i, _ in align(old, rival)}
    moved = count(s for i, s in enumerate(old) if i not in matched)
    found = []
    for key in had:
        gone = had[key] - held[key]
        deleted = max(0, min(had[key], was[key]) - theirs[key])
        shuffled = gone <= moved[key] and (held[key] >= min(had[key], theirs[key]) or was[key] > 1)
        survivors = [s for s in rival if held[s.key]]
        if gone > deleted and not shuffled and not is_part_of(key, survivors, old):
            sides = ([key], count(rival))
            both = (is_combined(one, was, *two) for one in new for two in (sides, sides[::-1]))
            if not any(both):
                found.append(key)
    return found


@many
@given(versions(6))
def test_no_statement_of_omni_is_lost_in_silence(sides):
    base, ours, theirs = followed(*sides)
    assert lost(merge(*sides), base, ours, theirs) == []


@pytest.mark.parametrize("kind", ["statement", "block"])
def test_what_omni_added_outlives_every_run_that_upstream_drops_around_it(kind: str) -> None:
    """At each place of a method, and for each run of its statements that has the place in or beside it."""
    own = ["self.kv_transfer.hold(batch)"]
    own = own if kind == "statement" else ["if self.kv_transfer:", f"    {own[0]}"]
    verbs = ("prepare", "gather", "split", "select", "record")
    lines = [f"self.{verb}(batch, self.{verb}_size)" for verb in verbs]

    def method(body: Sequence[str]) -> str:
        return "\n".join(["    def step(self, batch):", *(f"        {one}" for one in body)]) + "\n"

    for start, end in itertools.combinations(range(len(lines) + 1), 2):
        theirs = method([*lines[:start], *lines[end:], "return batch"])
        for place in range(start, end + 1):
            ours = method([*lines[:place], *own, *lines[place:], "return batch"])
            held = accounted_for(merge(method([*lines, "return batch"]), ours, theirs))
            assert all(held[one.strip()] for one in own), (start, end, place)


@many
@given(versions(6))
def test_no_change_of_upstream_is_lost_in_silence(sides):
    base, ours, theirs = followed(*sides)
    assert lost(merge(*sides), base, theirs, ours) == []


@many
@given(versions(6))
def test_no_comment_of_omni_is_lost(sides):
    base, ours, _ = sides
    moved_with_code = comments("\n".join(flag.ours for flag in merge(*sides).flags))
    assert comments(ours) - comments(base) <= comments(merge(*sides).text()) | moved_with_code


@many
@given(versions(6))
def test_no_statement_is_invented(sides):
    merged = merge(*sides)
    sides = followed(*sides)
    each = [count(split_statements(side)) for side in sides]
    known = set().union(*each)
    for flag in merged.flags:
        if flag.kind in ("combined", "callee"):
            three = [flagged(text)[0].key for text in (flag.base, flag.ours, flag.theirs)]
            known.add(merge_statement(*three).text)
    invented = set(count(plain(merged))) - known
    assert {key for key in invented if not is_combined(key, *each)} == set()


@many
@given(versions(8))
def test_the_result_is_python_whichever_way_its_conflicts_are_decided(sides):
    merged = merge(*sides)
    assert syntax_error(merged.pieces) is None
    for side in ("ours", "theirs"):
        ast.parse(as_module(MergedMethod(tuple(resolved(merged.pieces, side))).text()))


@some
@given(versions())
def test_without_omni_changes_the_result_is_upstreams(sides):
    base, _, theirs = sides
    merged = merge(base, base, theirs)
    assert code(plain(merged)) == code(split_statements(theirs))
    assert (merged.conflicts, merged.flags) == ([], ())


@some
@given(versions())
def test_without_upstream_changes_the_result_is_omnis(sides):
    base, ours, _ = sides
    merged = merge(base, ours, base)
    assert code(plain(merged)) == code(split_statements(ours))
    assert comments(merged.text()) >= comments(ours)
    assert (merged.conflicts, merged.flags) == ([], ())


@some
@given(versions())
def test_where_both_sides_are_equal_so_is_the_result(sides):
    base, both, _ = sides
    merged = merge(base, both, both)
    assert code(plain(merged)) == code(split_statements(both))
    assert (merged.conflicts, merged.flags) == ([], ())


@many
@given(edited_apart())
def test_changes_at_different_statements_all_apply_also_inside_a_wrapped_run(four):
    *sides, want = four
    telling = [s.key for s in split_statements(want) if weight(s.key) > 2]
    assume(len(telling) == len(set(telling)))
    for order in ((0, 1, 2), (0, 2, 1)):
        merged = merge(*(sides[n] for n in order))
        if not merged.conflicts and not merged.flags:
            assert code(plain(merged)) == code(split_statements(want))


@some
@given(versions(6))
def test_a_merge_is_deterministic(sides):
    assert merge(*sides) == merge(*sides)


@some
@given(versions(6))
def test_the_layout_of_the_sides_does_not_matter(sides):
    laid_out = []
    for side in sides:
        text = ast.unparse(ast.parse(as_module(side)).body[0].body[0])
        laid_out.append("\n".join("    " + line for line in text.split("\n")))
        assume(code(split_statements(side)) == code(split_statements(laid_out[-1])))
    one, other = merge(*sides), merge(*laid_out)
    assert code(plain(one)) == code(plain(other))
    assert len(one.conflicts) == len(other.conflicts)
