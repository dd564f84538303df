"""What a flag says of the callee of upstream's that ours does without."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npu_upgrade.code.module import parse_module
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.merge.runners import MethodOutcome, _with_callees
from npu_upgrade.sources.tree import SourceTree, overlay
from npu_upgrade.threeway.pieces import Flag, MergedMethod

TARGET = """class Crane:
    def lift(self, load):
        return self.hoist(load, self.rope)

    def hoist(self, load, rope):
        self.brake()
        load = self.weigh(load)
        return self.winch(load)

    def plain(self, load):
        return load
"""


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (
            "x = self.winch(load)",
            "x = self.hoist(load, rope)",
            "; upstream's hoist (crane.py:5) calls self.brake(), self.weigh() besides",
        ),
        ("x = self.winch(load)", "x = self.plain(load)", ""),
        ("x = self.winch(load)", "x = self.elsewhere(load)", ""),
    ],
)
def test_it_names_what_else_upstreams_callee_calls(ours: str, theirs: str, said: str) -> None:
    flags = (Flag("callee", "why", "", ours, theirs), Flag("combined", "both", "", ours, theirs))
    outcome = MethodOutcome(SimpleNamespace(), "auto with flags", "1.0", MergedMethod((), flags, 0))
    units, upstream = parse_module(TARGET).units, Upstream("crane.py", "Crane")
    texts = TARGET.replace("        self.brake()\n", ""), TARGET
    less, same = (overlay(SourceTree("crane", "crane"), {"crane.py": text}) for text in texts)
    for before, as_before in (
        (None, ""),
        (less, ""),
        (same, said and ", as it did before: no gap of this upgrade's"),
    ):
        found = _with_callees(outcome, units, before, upstream)
        assert [flag.reason for flag in found.merged.flags] == [f"why{said}{as_before}", "both"]
