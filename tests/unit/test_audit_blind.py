"""How a blind set is judged: by what is new, by its true cause, and by what the first run said."""

from __future__ import annotations

import pytest
from test_bench_audit import case, finding

from bench import audit_blind
from bench.audit_blind import blind_sets, first_run, state_of
from bench.incidents import FOLDER, Case, read_recipe

EXPECT = {"subject": "Crane", "owner": "Worker"}


@pytest.mark.parametrize(
    ("subjects", "lag", "state"),
    [
        (["harbour.Crane"], True, "cause"),
        (["harbour.Hook", "harbour.Crane"], True, "cause"),
        (["harbour.Hook"], True, "new"),
        ([], True, "lag"),
        ([], False, "missed"),
    ],
)
def test_the_state_of_a_defect(subjects: list[str], lag: bool, state: str) -> None:
    assert state_of(case(expect=EXPECT), [finding(subject=name) for name in subjects], lag=lag) == state


@pytest.mark.parametrize(("found", "state"), [([], "silent"), ([finding()], "told")])
def test_the_state_of_a_harmless_change(found: list, state: str) -> None:
    assert state_of(case(group="negative"), found, lag=False) == state


def firsts(monkeypatch: pytest.MonkeyPatch, **counts: int) -> tuple[dict[str, str], list[str]]:
    cases = [case(first=state) for state, number in counts.items() for _ in range(number)]
    monkeypatch.setattr(audit_blind, "_cases", lambda name: cases)
    return first_run("blind-9")


def test_the_goals_are_held_against_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    good = firsts(monkeypatch, cause=18, new=2, missed=4, silent=6)
    assert good == ({"blind-9-first": "20/24-new,18-cause,6/6-silent"}, [])
    _, short = firsts(monkeypatch, cause=17, new=2, lag=5, silent=5, told=1)
    assert short == [
        "blind-9: 19 new, goal 20",
        "blind-9: 17 cause, goal 18",
        "blind-9: 1 negatives not silent",
    ]
    assert firsts(monkeypatch, cause=9, new=1, missed=2)[1] == []  # a set of twelve


def test_the_sets_are_read() -> None:
    for name in blind_sets():
        cases = read_recipe(FOLDER / f"{name}.yaml", list[Case])
        assert all((one.group == "negative") is (one.expect is None) for one in cases)
