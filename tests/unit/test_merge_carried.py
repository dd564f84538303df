"""Upstream's new argument in a call that ours has at another place."""

from __future__ import annotations

import pytest

from npu_upgrade.code.statements import render, split_statements
from npu_upgrade.threeway.carried import carry_arguments
from npu_upgrade.threeway.method import merge_method

BASE = """    def step(self, batch):
        tokens = self.prepare(batch)
        if not tokens:
            self.dump()
            return None
        self.dump()
        return tokens
"""
OURS = """    def step(self, batch):
        if self.late:
            self.tell(batch)
            self.dump()
        return self.empty(batch)
"""
THEIRS = BASE.replace("self.dump()", "self.dump(tokens=batch.tokens)")
NEW = OURS.replace("self.dump()", "self.dump(tokens=batch.tokens)")


def carried(ours: str = OURS, theirs: str = THEIRS, base: str = BASE, fits: bool = True) -> str:
    before, own, after = map(split_statements, (base, ours, theirs))
    return render(carry_arguments(before, own, after, own, lambda key: fits)) + "\n"


def test_a_call_that_ours_moved_gets_what_upstream_gave_to_it() -> None:
    assert carried() == NEW
    assert carried(fits=False) == OURS, "it is a function of omni's own that does not take it"


def test_ours_that_is_as_upstream_now_by_this_is_told_no_more() -> None:
    base = BASE.replace("            return None\n", "            return self.none(batch)\n")
    theirs = base.replace("self.dump()", "self.dump(tokens=batch.tokens)")
    ours = base.replace(
        "        if not tokens:\n            self.dump()\n            return self.none(batch)\n", ""
    )
    found = merge_method(*map(split_statements, (base, ours, theirs)))
    assert not found.conflicts
    assert not found.flags
    assert "self.dump(tokens=batch.tokens)" in found.text()


@pytest.mark.parametrize(
    ("ours", "theirs", "base"),
    [
        (OURS.replace("dump()", "dump(1)"), THEIRS, BASE),  # it is not as it was in base
        (OURS.replace("dump()", "dump(**batch)"), THEIRS, BASE.replace("dump()", "dump(**batch)")),
        (OURS, BASE.replace("self.dump()\n        return", "self.dump(tokens=1)\n        return"), BASE),
        (OURS, THEIRS.replace("batch.tokens", "batch.other", 1), BASE),
        (OURS, THEIRS.replace("batch.tokens", "count"), BASE),  # a name that has no value here
        (OURS, THEIRS, BASE.replace("dump()", "dump(tokens=1)", 1)),  # base had it in one of them
    ],
)
def test_what_upstream_did_not_give_to_all_or_what_cannot_be_read_is_not_carried(
    ours: str, theirs: str, base: str
) -> None:
    assert carried(ours, theirs, base) == ours
