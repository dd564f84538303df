"""What holds for every port: the pieces make up the change, and a placed hunk is placed.

The GPU side before and after and the NPU side are generated methods with the edits that
people make; see ``code_gen``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from code_gen import versions
from drawn import examples
from hypothesis import Phase, given, settings
from lineage_kit import RUNNERS

from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.port.driven import TELLING, Upstream
from npu_upgrade.port.hunks import Hunk, unit_hunks
from npu_upgrade.port.npu_side import holds
from npu_upgrade.port.place import _other_places, place
from npu_upgrade.port.sides import keys_of
from npu_upgrade.port.unit_diff import diff_units
from npu_upgrade.threeway.align import weight
from npu_upgrade.threeway.pieces import as_module

# Shrinking merges takes minutes and tells little more.
many = settings(max_examples=examples(40), derandomize=True, phases=(Phase.explicit, Phase.generate))


def read(source: str) -> list[Statement]:
    return [s for s in split_statements(source) if s.key != END]


def code(statements: list[Statement]) -> list[tuple[int, str]]:
    return [(s.indent, s.key) for s in statements]


def layout(statements: list[Statement]) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((s.key, s.lines) for s in statements)


def words(key: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", key))


def hunks(old: str, new: str) -> list[Hunk]:
    return list(unit_hunks(RUNNERS[1], "NPUARModelRunner.run", read(old), read(new), Upstream()))


def placed(old: str, ours: str, new: str) -> Iterator[tuple[Hunk, str]]:
    """The hunks that have a place, each with the unit that has it."""
    for hunk in hunks(old, new):
        assert hunk.diff is not None
        found = place([hunk], hunk.diff, ours)
        if found.text is not None and not found.held:
            yield hunk, found.text


@many
@given(versions())
def test_all_pieces_make_the_new_version_and_none_the_old(texts: tuple[str, str, str]) -> None:
    old, _, new = map(read, texts)
    diff = diff_units(old, new)
    assert code(diff.compose(diff.pieces)) == code(new)
    assert code(diff.compose(())) == code(old)


@many
@given(versions())
def test_one_piece_brings_its_statements_and_takes_its_own(texts: tuple[str, str, str]) -> None:
    old, _, new = map(read, texts)
    diff = diff_units(old, new)
    for piece in diff.pieces:
        gone, come = keys_of(old[piece.a0 : piece.a1]), keys_of(new[piece.b0 : piece.b1])
        assert keys_of(diff.compose([piece])) == keys_of(old) - gone + come


@many
@given(versions())
def test_the_hunks_are_the_whole_change(texts: tuple[str, str, str]) -> None:
    old, _, new = texts
    net = keys_of(read(new)) - keys_of(read(old))
    listed = sum((hunk.added for hunk in hunks(old, new)), Counter())
    assert {key for key in net if weight(key) > TELLING} <= set(listed)


@many
@given(versions())
def test_a_unit_with_a_hunk_is_python(texts: tuple[str, str, str]) -> None:
    for _, text in placed(*texts):
        ast.parse(as_module(text))


@many
@given(versions())
def test_nothing_of_ours_is_lost_but_what_the_hunk_takes_away(texts: tuple[str, str, str]) -> None:
    ours = read(texts[1])
    for hunk, text in placed(*texts):
        came = [words(key) for key in keys_of(read(text)) - keys_of(ours)]
        gone = {key for key in keys_of(ours) - keys_of(read(text)) if key not in hunk.removed}
        assert all(any(words(key) <= other for other in came) for key in gone), "its words stand nowhere"
        left = layout(ours) - layout(read(text))
        assert {key for key, _ in left} <= gone | set(hunk.removed), "a statement of ours changed its layout"


@many
@given(versions())
def test_nothing_comes_but_what_the_hunk_brings(texts: tuple[str, str, str]) -> None:
    ours = read(texts[1])
    for hunk, text in placed(*texts):
        came = keys_of(read(text)) - keys_of(ours)
        words = " ".join([*hunk.added, *(s.key for s in ours)])
        assert all(key in hunk.added or all(w in words for w in key.split()) for key in came)


@many
@given(versions())
def test_a_placed_hunk_is_seen_the_next_time(texts: tuple[str, str, str]) -> None:
    for hunk, text in placed(*texts):
        assert hunk.diff is not None
        assert holds(hunk, keys_of(read(text))) or place([hunk], hunk.diff, text).held


def test_what_only_opens_a_block_has_no_other_place() -> None:
    steps = ("self.first()", "logits = self.build(batch)", "return logits")
    old = "\n        ".join(["    def step(self, batch):", *steps])
    new = old.replace("        logits =", "        if self.table:\n            logits =")
    diff = diff_units(read(old), read(new))
    (opens,) = (piece for piece in diff.pieces if piece.b0 < piece.b1)
    assert list(_other_places([opens], diff, read(old))) == []
    added = diff_units(
        read(old), read(old.replace("        logits =", "        self.second()\n        logits ="))
    )
    assert list(_other_places(added.pieces, added, read(old)))
