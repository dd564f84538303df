"""Omni markers: recognised in the dialects of real files, added once, never in the way."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import replace

import pytest
from code_gen import three_versions
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_upgrade.code.statements import END, Comment, Statement, render, split_statements
from npu_upgrade.lineage.marker_places import NOTE, is_marker, is_rule, omni_code, unmarked_runs
from npu_upgrade.lineage.marker_places import counted as markers_of
from npu_upgrade.lineage.marking import MARKER, add_markers
from npu_upgrade.merge.markers import close_in_place
from npu_upgrade.threeway.method import merge_method

OPENERS = [
    "# -------------------------------------- Omni-new -------------------------------------------------",
    "#  -------------------------------------- Omni-new -------------------------------------------------",
    "# ---------------------------------------Omni-new----------------------------------------------",
    "# Omni-new",
    "# omni-NEW",
    "#Omni-new",
]
NOTES = ["# [Omni] Handle the transfer first", "# OMNI: keep", "# Omni: prefix-cache step id", "#[omni]"]
OTHERS = ["# the omni model", "# new", "# ---- section ----", "# TODO(omni): x", "# uses Omni-newer things"]
UPSTREAM = """    def run(self, batch):
        start(batch)
        if batch:
            inner(batch)
            last(batch)
        return batch"""


def unmarked_lines(merged: list[Statement], upstream: list[Statement]) -> tuple[int, int]:
    """(omni statements outside markers, omni statements in all) of one method."""
    omni = omni_code(merged, upstream)
    return sum(sum(omni[run.start : run.end]) for run in unmarked_runs(merged, omni)), sum(omni)


def mark(merged: str, upstream: str = UPSTREAM) -> str:
    return render(marked(split_statements(merged), split_statements(upstream)))


def marked(merged: list[Statement], upstream: list[Statement]) -> list[Statement]:
    return add_markers(merged, omni_code(merged, upstream))


def counted(merged: str, upstream: str = UPSTREAM) -> tuple[int, int]:
    return unmarked_lines(split_statements(merged), split_statements(upstream))


def expect(text: str) -> str:
    """``M`` alone on a line stands for the marker, ``N`` for the note."""
    words = {"M": MARKER, "N": NOTE}
    return "\n".join(re.sub(r"^( *)([MN])$", lambda m: m[1] + words[m[2]], line) for line in text.split("\n"))


@pytest.mark.parametrize("text", [*OPENERS, *NOTES])
def test_dialects(text: str) -> None:
    assert is_marker(text)
    assert not is_rule(text)


@pytest.mark.parametrize("text", OTHERS)
def test_other_comments_are_no_markers(text: str) -> None:
    assert not is_marker(text)
    assert not is_rule(text)


def test_rules() -> None:
    assert is_rule("#  ------------------------------------------------")
    assert is_rule("# ---")
    assert not is_rule("# --")
    assert not is_marker("# ----------------")


def test_the_marker_that_is_added_is_one() -> None:
    assert is_marker(MARKER)
    assert OPENERS[0] == MARKER


def test_counting_reads_comments_only() -> None:
    text = '"""\n# Omni-new\n"""\nx = 1  # [Omni] why\ncall(\n    # OMNI: inside\n    1)\n# Omni-new\n'
    assert markers_of(text).total() == 3


def test_a_copy_gets_no_markers() -> None:
    assert mark(UPSTREAM) == UPSTREAM
    assert counted(UPSTREAM) == (0, 0)


def test_a_run_of_omni_statements_is_enclosed() -> None:
    merged = UPSTREAM.replace(
        "        if batch:", "\n        # why\n        one()\n        two()\n        if batch:", 1
    )
    wanted = UPSTREAM.replace(
        "        if batch:",
        "\n        M\n        # why\n        one()\n        two()\n        M\n        if batch:",
        1,
    )
    assert mark(merged) == expect(wanted)
    assert counted(merged) == (2, 2)
    assert counted(mark(merged)) == (0, 2)


def test_a_whole_omni_block_is_one_run() -> None:
    block = "        if omni:\n            one()\n        else:\n            two()\n"
    merged = UPSTREAM.replace("        return batch", block + "        return batch")
    wanted = UPSTREAM.replace("        return batch", f"        M\n{block}        M\n        return batch")
    assert mark(merged) == expect(wanted)


def test_code_at_the_end_of_a_block_and_of_the_method() -> None:
    merged = (
        UPSTREAM.replace("            last(batch)", "            last(batch)\n            own()")
        + "\n        more()"
    )
    wanted = UPSTREAM.replace(
        "            last(batch)", "            last(batch)\n            N\n            own()"
    )
    assert mark(merged) == expect(wanted + "\n        N\n        more()")


def test_a_run_at_the_end_of_the_method_is_closed_there() -> None:
    more = "        more()\n        again()"
    assert mark(f"{UPSTREAM}\n{more}") == expect(f"{UPSTREAM}\n        M\n{more}\n        M")


def test_a_changed_statement_in_an_upstream_block_has_a_note() -> None:
    merged = UPSTREAM.replace("inner(batch)", "inner(batch, stage=1)")
    wanted = UPSTREAM.replace("            inner(batch)", "            N\n            inner(batch, stage=1)")
    assert mark(merged) == expect(wanted)


def test_a_changed_header_is_marked_alone() -> None:
    merged = UPSTREAM.replace("if batch:", "if batch and omni:")
    wanted = UPSTREAM.replace("        if batch:", "        N\n        if batch and omni:")
    assert mark(merged) == expect(wanted)
    assert counted(mark(merged)) == (0, 1)


def test_the_note_of_a_header_is_not_for_what_stands_under_it() -> None:
    merged = UPSTREAM.replace("        if batch:", "        N\n        if batch and omni:")
    own = merged.replace("            last(batch)", "            own(batch)\n            last(batch)")
    assert mark(expect(own)) == expect(own.replace("            own", "            N\n            own"))


def test_signature_and_docstring_need_no_marker() -> None:
    merged = UPSTREAM.replace("batch):", 'batch, stage=0):\n        """Omni\'s."""', 1)
    assert mark("    @torch.no_grad()\n" + merged) == "    @torch.no_grad()\n" + merged
    assert counted(merged) == (0, 0)


@pytest.mark.parametrize("opener", [*OPENERS, *NOTES])
def test_marked_code_is_left_alone(opener: str) -> None:
    closing = [OPENERS[0], "#  -----------------------------"]
    for closer in closing:
        merged = UPSTREAM.replace(
            "        return batch", f"        {opener}\n        one()\n        {closer}\n        return batch"
        )
        assert mark(merged) == merged
        assert counted(merged) == (0, 1)


def test_an_argument_with_a_note_behind_it_marks_its_statement() -> None:
    merged = UPSTREAM.replace(
        "            last(batch)",
        "            last(\n                batch,\n                rows,  # Omni-specific\n            )",
    )
    assert mark(merged) == merged
    plain = merged.replace("  # Omni-specific", "  # one a row")
    assert mark(plain) == plain.replace("            last", f"            {NOTE}\n            last")


def test_a_marker_on_an_omni_block_is_for_all_in_it() -> None:
    merged = UPSTREAM.replace("        if batch:", "        # [Omni] only here\n        if batch and omni:")
    merged = merged.replace("            last(batch)", "            own(batch)\n            last(batch)")
    assert mark(merged) == merged


def test_a_pair_around_more_than_omni_code_counts() -> None:
    merged = UPSTREAM.replace(
        "        start(batch)", "        # Omni-new\n        start(batch)\n        own(batch)"
    )
    merged = merged.replace("        return", "        # Omni-new\n        return").replace(
        "last(b", "last(o, b"
    )
    assert mark(merged) == merged
    assert counted(merged) == (0, 2)


def test_a_lone_marker_of_upstream_code_says_nothing() -> None:
    merged = UPSTREAM.replace(
        "        start(batch)", "        # Omni-new\n        start(batch)\n        own(batch)"
    )
    assert counted(merged) == (1, 1)
    assert markers_of(mark(merged)).total() == 2


def test_code_behind_a_closing_marker_is_outside() -> None:
    merged = UPSTREAM.replace(
        "        return batch",
        "        # Omni-new\n        one()\n        # Omni-new\n        two()\n        return batch",
    )
    assert counted(merged) == (1, 2)
    assert mark(merged) == merged.replace("        two()", f"        {NOTE}\n        two()")


def test_blank_lines_stay_before_the_marker() -> None:
    merged = UPSTREAM.replace(
        "        return batch", "\n        # why\n\n        one()\n        return batch"
    )
    assert f"last(batch)\n\n        {NOTE}\n        # why\n\n        one()\n" in mark(merged)


def test_comments_of_the_block_before_stay_there() -> None:
    merged = UPSTREAM.replace(
        "        return batch", "            # of the block\n        one()\n        return batch"
    )
    assert f"            # of the block\n        {NOTE}\n        one()\n" in mark(merged)


def plain(statements: list[Statement]) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(s.key, s.indent, s.lines) for s in statements if s.key != END]


def sprinkled(rng: random.Random, statements: list[Statement]) -> list[Statement]:
    """The statements with markers, notes and rules put before some of them, at odd depths too."""
    out = []
    for statement in statements:
        comments = list(statement.comments)
        while rng.random() < 0.3:
            text = rng.choice([*OPENERS, *NOTES[:2], "# ------", "# other"])
            indent = statement.indent + rng.choice([0, 0, 0, 4, 8, -4])
            comments.insert(rng.randint(0, len(comments)), Comment(max(0, indent), text, rng.randint(0, 1)))
        out.append(replace(statement, comments=tuple(comments)))
    return out


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(200))
def test_adding_keeps_the_code_and_is_done_once(seed: int) -> None:
    rng = random.Random(seed)
    _, ours, theirs = map(split_statements, three_versions(rng, 6))
    merged = sprinkled(rng, ours) if rng.random() < 0.7 else ours
    once = marked(merged, theirs)
    assert plain(once) == plain(merged)
    before = [c.text for s in merged for c in s.comments]
    assert markers_of(render(once)).total() >= sum(map(is_marker, before))
    left = iter(c.text for s in once for c in s.comments)
    assert all(text in left for text in before)
    ast.parse(f"class A:\n{render(once)}")
    again = split_statements(render(once))
    assert plain(again) == plain(once)
    assert render(marked(again, theirs)) == render(once)
    assert unmarked_lines(again, theirs)[0] == 0
    assert unmarked_lines(again, theirs)[1] == unmarked_lines(merged, theirs)[1]


def test_the_closing_marker_stands_behind_comments_of_the_run() -> None:
    block = "        if omni:\n            one()\n            # end of one\n"
    merged = UPSTREAM.replace("        return batch", f"{block}        # then\n        return batch")
    assert f"            # end of one\n        {MARKER}\n        # then\n        return" in mark(merged)


def merged_with(ours: str, theirs: str) -> str:
    base, mine, new = (split_statements(expect(text)) for text in (UPSTREAM, ours, theirs))
    pieces = close_in_place(merge_method(base, mine, new).pieces, mine)
    return render([piece for piece in pieces if isinstance(piece, Statement)])


@pytest.mark.parametrize("new", ["also(batch)", "if done:\n            also(batch)"])
def test_what_upstream_puts_behind_omni_code_stays_out_of_its_markers(new: str) -> None:
    ours = UPSTREAM.replace(
        "        start(batch)\n", "        M\n        start(batch, talk)\n        M\n        # where any\n"
    )
    theirs = UPSTREAM.replace("        if batch", f"        # at last\n        {new}\n        if batch")
    expected = ours.replace("        # where", f"        # at last\n        {new}\n        # where")
    assert merged_with(ours, theirs) == expect(expected)


def test_a_marker_that_opens_omni_code_stays_with_it() -> None:
    ours = UPSTREAM.replace("        return", "        M\n        talk(batch)\n        M\n        return")
    new = "        also(batch)\n        if batch"
    theirs = UPSTREAM.replace("        if batch", new)
    assert merged_with(ours, theirs) == expect(ours.replace("        if batch", new))
