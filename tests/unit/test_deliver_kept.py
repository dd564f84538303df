"""Markers that go while their code stays, and methods that are defined twice."""

from __future__ import annotations

import pytest

from npu_upgrade.job.answer_checks import defined_twice, lost_markers, problems

FENCE = "# ------ Omni-new ------"
MARKED = f"""class Runner:
    def run(self):
        a = 1
        {FENCE}
        b = self.omni(a)
        {FENCE}
        return b

    def load(self):
        return 1
"""


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (MARKED, []),
        (MARKED.replace(f"        {FENCE}\n", ""), ["Runner.run"]),
        (MARKED.replace(f"        {FENCE}\n", "", 1), ["Runner.run"]),
        (MARKED.replace("a = 1", "a = 2").replace(f"        {FENCE}\n", ""), ["Runner.run"]),
        (MARKED.replace(FENCE, "# ---- Omni-new ----"), []),
        (MARKED.replace(f"        {FENCE}\n", "").replace("self.omni(a)", "self.other(a)"), []),
        ("class Runner:\n    def load(self):\n        return 1\n", []),
    ],
    ids=["as it was", "both", "one", "beside a change", "another dash", "with the code", "with the method"],
)
def test_lost_markers(now: str, lost: list[str]) -> None:
    assert lost_markers(MARKED, now) == lost


TWICE = MARKED + "\n    def load(self):\n        return 2\n"


def test_a_method_defined_twice() -> None:
    assert defined_twice(MARKED, TWICE) == ["Runner.load"]
    assert defined_twice(TWICE, TWICE) == []
    assert defined_twice(MARKED, "def f(): pass\ndef f(): pass\n") == ["f"]


def test_what_may_have_a_name_twice() -> None:
    decorated = "class A:\n    @property\n    def x(self): ...\n    @x.setter\n    def x(self, value): ...\n"
    assert defined_twice("", decorated) == []
    assert defined_twice("", "class A:\n    def x(self): ...\nclass B:\n    def x(self): ...\n") == []


def test_an_answer_loses_no_marker_of_code_that_stands_and_defines_nothing_twice() -> None:
    assert problems(MARKED, MARKED.replace("a = 1", "a = 2")) == []
    (lost,) = problems(MARKED, MARKED.replace(f"        {FENCE}\n", ""))
    assert lost == "Runner.run lost markers of omni code that still stands"
    between = MARKED.replace("self.omni(a)", "self.other(a)")
    bare = MARKED.replace(f"        {FENCE}\n", "")
    assert problems(between, bare) == []  # its code changed as well
    assert problems(between, bare, MARKED) == [lost]
    assert problems(bare, bare.replace("a = 1", "a = 2"), MARKED) == []  # lost before
    (twice,) = problems(MARKED, TWICE)
    assert twice.startswith("Runner.load is defined twice")
