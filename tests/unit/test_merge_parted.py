"""Half of an upstream pair in the result of a merge is told; both halves, or none, are not."""

from __future__ import annotations

import pytest
from test_merge_method import merge, method

from npu_upgrade.code.statements import render, split_statements
from npu_upgrade.threeway.parted import parted
from npu_upgrade.threeway.pieces import resolved

DUMPS = """
    if self.late:
        self.dump()
        return None
    tokens = self.prepare(batch)
    self.dump()
    return tokens
"""
PLAIN = """
    tokens = self.prepare(batch)
    logits = self.sample(tokens)
    return logits
"""


def found(base: str, ours: str, theirs: str, merged: str) -> list[str]:
    sides = [split_statements(method(side)) for side in (base, ours, theirs, merged)]
    return [flag.reason for flag in parted(*sides)]


def told(base: str, ours: str, theirs: str) -> list[str]:
    return [flag.reason for flag in merge(base, ours, theirs).flags if flag.kind == "parted"]


def test_one_of_two_calls_without_the_new_argument():
    theirs = DUMPS.replace("self.dump()", "self.dump(batch=batch)")
    half = DUMPS.replace("self.dump()", "self.dump(batch=batch)", 1)
    reason = "this call of self.dump lacks batch, which upstream gave to all of them"
    assert found(DUMPS, DUMPS, theirs, half) == [reason]
    back = "this call of self.dump has batch, which upstream took from all of them"
    assert found(theirs, theirs, DUMPS, half) == [back]
    assert found(DUMPS, DUMPS, theirs, theirs) == []
    assert found(DUMPS, DUMPS, theirs, DUMPS) == []  # what was not taken at all has a flag of its own
    assert told(DUMPS, DUMPS, theirs) == []


def test_a_call_of_which_upstream_has_both_forms_is_no_half():
    theirs = DUMPS.replace("self.dump()", "self.dump(batch=batch)", 1)
    assert found(DUMPS, DUMPS, theirs, theirs) == []


@pytest.mark.parametrize("pair", ["begin/end", "start/finish", "enter/exit", "prepare/complete"])
def test_a_begin_without_its_end(pair: str):
    first, last = pair.split("/")
    half = PLAIN.replace("tokens =", f"self.{first}_pass()\n    tokens =")
    theirs = half.replace("return logits", f"self.{last}_pass(logits)\n    return logits")
    reason = (
        f"upstream calls self.{last}_pass with self.{first}_pass, and only self.{first}_pass is called here"
    )
    assert found(PLAIN, PLAIN, theirs, half) == [reason]
    assert found(PLAIN, PLAIN, theirs, theirs) == []
    assert found(half, half, theirs, half) == []  # the end alone is new
    assert told(PLAIN, PLAIN, theirs) == []


def test_two_names_that_are_no_opposites_are_no_pair():
    half = PLAIN.replace("tokens =", "self.count_pass()\n    tokens =")
    theirs = half.replace("return logits", "self.note_pass(logits)\n    return logits")
    assert found(PLAIN, PLAIN, theirs, half) == []


def test_a_value_for_what_was_left_out():
    base = PLAIN.replace("return logits", "self.record(logits)\n    return logits")
    theirs = base.replace("tokens =", "timer = self.clock()\n    tokens =").replace(
        "self.record(logits)", "self.record(logits, timer)"
    )
    assert told(base, base, theirs) == []
    reason = "upstream gives timer a value here for what was left out: nothing reads it"
    (flag,) = merge(base, base.replace("    self.record(logits)\n", ""), theirs).flags
    assert (flag.kind, flag.reason.endswith(f"; {reason}")) == ("replaced", True)


@pytest.mark.parametrize("own", [True, False])
def test_a_new_return_without_what_ours_does_before_it_returns(own: bool):
    early = "    if self.idle:\n        return None\n"
    theirs = DUMPS.replace("    tokens =", early.replace("None", "self.empty(batch)") + "    tokens =")
    ours = (
        DUMPS.replace(
            "        return None",
            "        out = None\n        if self.held:\n            self.take(out)\n        return out",
        )
        if own
        else DUMPS
    )
    reason = "upstream returns below `if self.idle` now, without what ours does before it returns elsewhere"
    assert told(DUMPS, ours, theirs) == ([reason] if own else [])


def test_a_begin_that_ours_had_left_out_with_its_end_and_that_comes_back_alone():
    begun = PLAIN.replace("tokens =", "self.begin_pass()\n    tokens =")
    both = begun.replace("return logits", "self.end_pass(logits)\n    return logits")
    assert len(found(both, PLAIN, both, begun)) == 1
    assert found(both, begun, both, begun) == []  # as ours has had it


def test_a_field_that_is_set_and_not_set_back():
    half = PLAIN.replace("tokens =", "self.positions.fill_(127)\n    tokens =")
    theirs = half.replace("return logits", "self.positions.fill_(0)\n    return logits")
    reason = "upstream sets self.positions back, which is only set here"
    assert found(PLAIN, PLAIN, theirs, half) == [reason]
    assert found(PLAIN, PLAIN, theirs, theirs) == found(PLAIN, PLAIN, theirs, PLAIN) == []
    assert found(PLAIN, half, theirs, half) == []  # as ours has had it
    flags = PLAIN.replace("tokens =", "self.busy = True\n    tokens =")
    back = flags.replace("return logits", "self.busy = False\n    return logits")
    assert found(PLAIN, PLAIN, back, flags) == ["upstream sets self.busy back, which is only set here"]


PACKED = """
    batch = self.shape(tokens)
    if self.packs:
        self.positions.fill_(127)
    meta = self.build(batch)
    out = self.model(batch, meta)
    self.note(out)
    if self.packs and meta:
        self.positions.fill_(0)
        self.buffer.fill_(0)
    return out
"""
CUT = """
    batch = self.shape(tokens)
    meta = self.build(batch)
    out = self.model(batch, meta)
    self.note(out)
    return out
"""
REWRITTEN = PACKED.replace(
    "if self.packs:\n        self.positions.fill_(127)\n    meta = self.build(batch)",
    "if self.packs:\n        self.positions.fill_(127)\n        self.buffer.fill_(127)\n"
    "    elif self.plans:\n        self.positions.fill_(1)\n    meta = self.build(batch, packs=self.packs)",
)


def test_what_sets_back_comes_with_what_sets_where_ours_had_cut_out_both():
    merged = merge(PACKED, CUT, REWRITTEN)
    text = render(resolved(merged.pieces, "theirs"))
    assert "self.positions.fill_(127)" in text
    assert text.index("self.note(out)") < text.index("if self.packs and meta:") < text.index("return out")
    assert text.count("self.positions.fill_(0)") == text.count("self.buffer.fill_(0)") == 1
    (flag,) = [one for one in merged.flags if "fill_(0)" in one.theirs]
    assert (flag.kind, flag.base, "if self.packs and meta" in flag.theirs) == ("rewritten", "", True)
    assert flag.reason.startswith("upstream sets self.positions and self.buffer back here")


@pytest.mark.parametrize(
    "cut",
    [
        CUT.replace("    self.note(out)\n", ""),  # where it belongs is not there
        CUT.replace("    self.note(out)\n", "    self.note(out)\n    self.note(out)\n"),  # or is not sure
        CUT.replace("    self.note(out)\n", "    if out:\n        self.note(out)\n"),  # or is elsewhere
    ],
)
def test_what_sets_back_stays_a_question_where_its_place_is_not_sure(cut: str):
    merged = merge(PACKED, cut, REWRITTEN)
    assert "self.positions.fill_(0)" not in merged.text()
    reasons = [flag.reason for flag in merged.flags if flag.kind == "parted"]
    assert reasons == ["upstream sets self.positions and self.buffer back, which is only set here"]


def test_a_half_that_a_flag_shows_as_left_out_is_told_with_it():
    base = "tokens = self.prepare(batch)\nwith forward(batch):\n    rows = self.model(tokens)\nreturn rows"
    ours = "tokens = self.prepare(batch)\nreturn self.own(tokens)"
    theirs = base.replace("tokens =", "self.begin_pass()\ntokens =").replace(
        "return rows", "self.end_pass(rows)\nreturn rows"
    )
    (flag,) = [one for one in merge(base, ours, theirs).flags if "end_pass" in one.theirs]
    assert flag.kind != "parted"
    assert "upstream calls self.end_pass with self.begin_pass" in flag.reason
