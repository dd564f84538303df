"""What a flag says of the callee of upstream's that ours does without."""

from __future__ import annotations

import pytest

from npu_upgrade.code.module import parse_module
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.merge.callees import unlike_upstream, with_callees
from npu_upgrade.sources.tree import SourceTree, overlay
from npu_upgrade.threeway.pieces import Flag

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
    units, upstream = parse_module(TARGET).units, Upstream("crane.py", "Crane")
    texts = TARGET.replace("        self.brake()\n", ""), TARGET
    less, same = (overlay(SourceTree("crane", "crane"), {"crane.py": text}) for text in texts)
    for before, as_before in (
        (None, ""),
        (less, ""),
        (same, said and ", as it did before: no gap of this upgrade's"),
    ):
        found = with_callees(flags, units, before, upstream)
        assert [flag.reason for flag in found] == [f"why{said}{as_before}", "both"]


WHOLE = """class Crane:
    def hoist(self, load, rope=None, *, speed=1, **more):
        self.brake()
        return self.winch(load=load, rope=rope, **more)
"""


@pytest.mark.parametrize(
    ("ours", "theirs", "before", "after"),
    [
        ("x = self.winch(rope=r)", "x = self.hoist(box, r)", "self.winch(", "load=box, "),
        ("x = self.winch(load=box, **more)", "x = self.hoist(box)", "self.winch(", ""),
        ("x = self.winch(box)", "x = self.hoist(box)", "", ""),  # where it lands is not known
        ("x = self.winch(load=box, hook=1)", "x = self.hoist(box)", "", ""),  # upstream's takes no hook
        ("x = self.winch(rope=r)", "x = self.hoist(*boxes)", "", ""),  # of what load is nobody knows
        ("x = self.other(load=box)", "x = self.hoist(box)", "", ""),  # upstream's calls no such thing
        ("x = self.winch(load=self.winch(load=box))", "x = self.hoist(box)", "", ""),
    ],
)
def test_a_call_of_ours_can_go_through_upstreams_own(ours: str, theirs: str, before: str, after: str) -> None:
    units, upstream = parse_module(WHOLE).units, Upstream("crane.py", "Crane")
    reason = with_callees([Flag("callee", "why", "", ours, theirs)], units, None, upstream)[0].reason
    expected = f'replace: {{"{before}": "Crane.hoist(self, {after}"}}'
    assert reason.endswith(expected) if before else "replace" not in reason


UPSTREAM = """class Crane:
    def run(self, load):
        return self.hoist(load)

    def hoist(self, load, rope=None):
        self.brake()
        return self.winch(load=load, rope=rope)

    def choose(self, load, even=None):
        return even

    def plain_capture(self, load):
        return self.choose(load, even=load > 1)
"""
OURS = """class OmniCrane(Crane):
    def run(self, load):
        return self.winch(load=load)

    def capture(self, load):
        return self.choose(load)

    def hoist(self, load, rope=None):
        return self.winch(load=load, rope=rope)
"""


def test_what_is_called_otherwise_than_upstream_does_is_named() -> None:
    target, upstream = parse_module(UPSTREAM), Upstream("crane.py", "Crane")
    past, leaves_out = unlike_upstream({"omni.py": OURS}, target, upstream)
    assert past == (
        "OmniCrane.run (omni.py:2) calls self.winch(...) where upstream calls self.hoist(), which calls "
        'self.brake() besides; to have that too, replace: {"self.winch(": "Crane.hoist(self, "}'
    )
    assert leaves_out == (
        "OmniCrane.capture (omni.py:5) calls self.choose(), to which upstream's plain_capture gives "
        "even besides"
    )


def test_what_the_called_method_makes_otherwise_now_is_named_of_what_is_left_out() -> None:
    upstream = Upstream("crane.py", "Crane")
    target = parse_module(UPSTREAM.replace("return even", "return even and load > 0"))
    before = parse_module(UPSTREAM)
    told = unlike_upstream({"omni.py": OURS}, target, upstream, before)[1]
    assert told.endswith("gives even besides; what it makes of even has changed")
    assert unlike_upstream({"omni.py": OURS}, before, upstream, before)[1].endswith("even besides")


def test_a_class_that_a_file_does_not_name_has_to_be_imported() -> None:
    target, upstream = parse_module(UPSTREAM), Upstream("crane.py", "Crane")
    told = unlike_upstream({"omni.py": OURS.replace("(Crane)", "(Base)")}, target, upstream)[0]
    assert told.endswith('"Crane.hoist(self, "} (import Crane from crane there)')
    texts = {
        "yard/omni.py": "from yard.base import Base\n" + OURS.replace("(Crane)", "(Base)"),
        "yard/base.py": "from yard.this_device import Crane\nclass Base(Crane):\n    ...\n",
    }
    told = unlike_upstream(texts, target, upstream)[0]
    assert told.endswith("(import Crane from yard.base there)"), "which may choose it by the device"


@pytest.mark.parametrize(
    "alike",
    [
        OURS.replace("self.winch(load=load)", "Crane.hoist(self, load)").replace(
            "choose(load)", "choose(load, even=True)"
        ),
        OURS.replace("self.winch(load=load)", "self.hoist(load)").replace("choose(load)", "choose(**load)"),
        "def run(self, load):\n    return self.winch(load=load)\n",
        "",
    ],
)
def test_what_is_called_as_upstream_does_is_not(alike: str) -> None:
    target, upstream = parse_module(UPSTREAM), Upstream("crane.py", "Crane")
    assert unlike_upstream({"omni.py": alike}, target, upstream) == []
    assert unlike_upstream({"omni.py": OURS}, parse_module("class Other: ...\n"), upstream) == []
