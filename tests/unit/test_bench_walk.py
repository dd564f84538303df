"""How the scripted walk reads an answer off the next release, and what it makes of its figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.walk import TRANSITIONS
from bench.walk_answers import region
from bench.walk_report import WALK_S, Commit, Walk, short_of_goals, summary
from npu_upgrade.job.conflicts import conflicts_in, without

BEFORE = ["        a = self.first()", "        b = self.second(a)"]
AFTER = ["        y = self.last(b)", "        return y"]
CONFLICT = """<<<<<<< ours
        c = self.ours(b)
||||||| base
        c = self.base(b)
=======
        c = self.theirs(b)
>>>>>>> theirs"""
FILE = "\n".join(["class A:", "    def run(self):", *BEFORE, CONFLICT, *AFTER, ""])
PLACE = {"path": "a.py", "unit": "A.run", "first_line": 5, "last_line": 11}


def method(*lines: str) -> str:
    return "\n".join(["    def run(self):", *lines])


@pytest.mark.parametrize(
    ("between", "before", "after"),
    [
        (["        c = self.both(b)"], BEFORE, AFTER),
        (["        if b:", "            c = self.both(b)", "        d = c"], BEFORE, AFTER),
        ([], BEFORE, AFTER),
        (["        c = self.both(b)"], [BEFORE[0], "        b = self.second(a, 1)"], AFTER),
        (["        c = self.both(b)"], BEFORE, ["        y = self.last(b, more=True)", AFTER[1]]),
        (["        c = self.both(b)"], BEFORE[:1], AFTER[1:]),
    ],
)
def test_the_answer_is_what_stands_between_the_same_neighbours(
    between: list[str], before: list[str], after: list[str]
) -> None:
    assert region(FILE, PLACE, method(*before, *between, *after)) == "\n".join(between)


def test_no_answer_where_there_is_no_such_conflict() -> None:
    assert region(FILE, PLACE | {"first_line": 2}, method(*BEFORE)) is None
    assert region(FILE, PLACE | {"unit": "A.other"}, method(*BEFORE)) is None


NAMES = st.lists(st.sampled_from(["c = self.f()", "d = self.g(c)", "e = [1, 2]"]), max_size=5)


@given(NAMES)
def test_an_answer_replaces_the_conflict_and_nothing_else(lines: list[str]) -> None:
    answer = "".join(f"        {line}\n" for line in lines)
    (conflict,) = conflicts_in(FILE, "a.py", {})
    text = without(FILE, conflict, answer)
    assert text == "\n".join(["class A:", "    def run(self):", *BEFORE, ""]) + answer + "\n".join(
        [*AFTER, ""]
    )
    assert region(FILE, PLACE, text.partition("\n")[2].rstrip()) == answer.rstrip("\n")


def test_a_walk_that_takes_long_misses_its_goal(tmp_path: Path) -> None:
    walk = Walk(TRANSITIONS[0], tmp_path, steps=[("merge", 20.0), ("emulate", WALK_S)])
    (missed,) = short_of_goals([walk], None)
    assert missed.startswith(f"{TRANSITIONS[0].id}: {WALK_S + 20:.0f} s to the commit")


def test_what_runs_behind_the_commit_is_no_part_of_the_walk(tmp_path: Path) -> None:
    walk = Walk(
        TRANSITIONS[0], tmp_path, steps=[("merge", 20.0), ("emulate", WALK_S)], printed={"merge": 90_000}
    )
    walk.commit = Commit(20.0, 4_000, {"emulate": "PASS"})
    assert short_of_goals([walk], None) == []
    assert summary([walk], None)["characters"] == "4000"
