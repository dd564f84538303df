"""What the replay counts as garbage: a combined statement that a person has in part, or not at all."""

from __future__ import annotations

import pytest

from bench.replay_score import Texts, score_method
from npu_upgrade.code.statements import split_statements
from npu_upgrade.threeway.pieces import MergedMethod

BASE, OURS, THEIRS = (
    "call(batch, size)",
    "call(batch, size, own=own)",
    "call(batch, size, mask=mask, grid=grid)",
)
BOTH = "call(batch, size, own=own, mask=mask, grid=grid)"


@pytest.mark.parametrize(
    ("person", "garbage", "unjudged"),
    [
        pytest.param(BOTH.replace("own=own", "own=own, more=1"), 0, 0, id="both, and more of the own"),
        pytest.param(BOTH.replace("own=own", "own=new(batch)"), 0, 0, id="both, the own rewritten since"),
        pytest.param(BOTH.replace("mask=mask, grid", "mask=new(batch), oth"), 1, 0, id="another argument"),
        pytest.param(f"kept = {BOTH}", 0, 0, id="both, put elsewhere"),
        pytest.param(OURS, 0, 1, id="ours as it was"),
        pytest.param(OURS.replace("own=own", "own=own, more=1"), 0, 1, id="nothing of upstream's"),
        pytest.param(THEIRS, 0, 1, id="upstream's as it is, which is missed, not garbage"),
        pytest.param(OURS.replace("own=own", "own=own, mask=mask"), 1, 0, id="a part of upstream's"),
        pytest.param(THEIRS.replace(", grid=grid", ""), 1, 0, id="a part of upstream's, nothing of the own"),
        pytest.param("call(batch, other)", 1, 0, id="nothing of either"),
        pytest.param("pass", 1, 0, id="no such statement"),
    ],
)
def test_a_combined_statement_is_judged_by_what_each_side_changed(person, garbage, unjudged):
    text = "def step(batch):\n    {}"
    base, ours, theirs, human, merged = (text.format(one) for one in (BASE, OURS, THEIRS, person, BOTH))
    found = score_method(
        Texts("step", base, ours, theirs, human, (), (base, theirs)),
        MergedMethod(tuple(split_statements(merged))),
    )
    assert (found.garbage, found.unjudged) == (garbage, unjudged)
    assert found.attributable - found.reproduced == (person == THEIRS)


def test_what_a_person_moved_into_a_new_function_is_looked_for_there():
    text = "def step(batch):\n    {}"
    base, ours, theirs, human, merged = (text.format(one) for one in (BASE, OURS, THEIRS, "pass", BOTH))
    texts = Texts(
        "step", base, ours, theirs, human, (), (base, theirs), moved=f"def part(batch):\n    {OURS}"
    )
    found = score_method(texts, MergedMethod(tuple(split_statements(merged))))
    assert (found.garbage, found.unjudged) == (0, 1)


def test_type_hints_do_not_count():
    heads = (
        "def f(a):",
        "def f(a, own=1):",
        "def f(a, mask: Mask | None = None):",
        "def f(a, own=1, mask=None):",
    )
    base, ours, theirs, human = (f"{head}\n    return a" for head in heads)
    merged = "def f(a, own=1, mask: Mask | None = None):\n    return a"
    found = score_method(
        Texts("f", base, ours, theirs, human, (), (base, theirs)),
        MergedMethod(tuple(split_statements(merged))),
    )
    assert (found.garbage, found.unjudged) == (0, 0)
