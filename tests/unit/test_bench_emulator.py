"""What the emulator's bench takes for expected, for executed and caught, and for short of its goals."""

from pathlib import Path

import msgspec
import pytest

from bench import emulator_defects, emulator_pairs
from bench.emulator import STAGES, _short
from bench.emulator_defects import AT_ONCE, Defect, figures_of, reached, run_defects
from bench.emulator_pairs import ALONE, Pair
from bench.emulator_upgrades import load_upgrades
from bench.pipelines import PAIRS
from bench.shared import Run
from npu_upgrade.gates.emulation.catalogue import scenarios
from npu_upgrade.gates.emulation.known_defects import KnownDefect, known_defects
from npu_upgrade.gates.emulation.outcome import FAIL, INCONCLUSIVE, PASS, Outcome

FIGURES = {"import_s": "10", "eager_s": "10", "graph_s": "10", "serve_s": "10", "memory_mib": "100"}
PAIR = Pair("0.30.0", "0.30.0rc2")
KNOWN = KnownDefect("0.30.0rc2", "never came", "the incident", omni="0.30.0", tier="graph")
FIXED = KnownDefect(
    "0.30.0rc2", "never came", "the incident", omni="0.30.0", tier="graph", fixed_by="some-fix"
)


def row(
    state: str = FAIL, why: str = "updates that never came", tier: str = "graph", pair: Pair = PAIR
) -> emulator_pairs.Row:
    return emulator_pairs.Row(pair, Outcome(tier, "ar", state, why))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (row(), "EXPECTED FAIL"),
        (row(why="something else"), "FAIL"),
        (row(tier="eager"), "FAIL"),
        (row(pair=Pair("0.28.0", "0.30.0rc2")), "FAIL"),
        (row(INCONCLUSIVE), "INCONCLUSIVE"),
        (row(PASS, ""), "PASS"),
    ],
)
def test_only_the_recorded_failure_is_expected(one: emulator_pairs.Row, expected: str) -> None:
    assert emulator_pairs.state(one, [KNOWN]) == expected


def test_a_whole_pair_passes_or_has_a_recorded_fix() -> None:
    assert _short([row()], [FIXED], FIGURES) == []
    assert "goal PASS" in _short([row()], [KNOWN], FIGURES)[0]
    assert "goal PASS" in _short([row(INCONCLUSIVE)], [FIXED], FIGURES)[0]
    assert _short([row(pair=Pair("0.28.0", "0.28.0rc1"), state=INCONCLUSIVE)], [], FIGURES) == []


def test_the_recorded_defects_name_what_there_is() -> None:
    names, upgrades = {one.name for one in scenarios()}, {one.id for one in load_upgrades()}
    pairs = {(pair.omni, pair.ascend) for pair in [*PAIRS, *ALONE]}
    for known in known_defects():
        assert (known.omni, known.ascend) in pairs
        assert known.scenario in {None, *names}
        assert known.fixed_by in {None, *upgrades}
    assert set(STAGES) <= names


DATA = {
    "id": "one",
    "incident": "seeded",
    "class": "arity",
    "triple": {"ascend": "pypi:vllm-ascend==1", "vllm": "pypi:vllm==1"},
    "edits": [
        {"in": "ascend", "path": "vllm_ascend/a.py", "at": "f", "do": "delete-statement", "calls": "g"},
    ],
    "runs": ["eager plain"],
    "note": "A note.",
}
BEFORE = """\
def step(x):
    if x:
        a = one(x)
        b = two(x)
    return x


class Runner:
    def load(self):
        return 1
"""


def defect(**data) -> Defect:
    return msgspec.convert(DATA | data, Defect)


def test_a_changed_statement_is_looked_up_in_the_edited_run():
    after = BEFORE.replace("one(x)", "other(x)")
    assert reached(BEFORE, after, ran_before=[], ran_after=[3])
    assert not reached(BEFORE, after, ran_before=[4], ran_after=[2, 5])


def test_a_statement_that_is_gone_is_looked_up_in_the_unedited_run():
    after = BEFORE.replace("        b = two(x)\n", "")
    assert reached(BEFORE, after, ran_before=[4], ran_after=[])
    assert not reached(BEFORE, after, ran_before=[2, 3, 5], ran_after=[2, 3, 4])


def test_a_changed_head_counts_when_its_body_ran():
    renamed = BEFORE.replace("def load(self)", "def start(self)")
    assert not reached(BEFORE, renamed, ran_before=[8, 9], ran_after=[8, 9])
    assert reached(BEFORE, renamed, ran_before=[8, 9, 10], ran_after=[8, 9])
    other = BEFORE.replace("class Runner:", "class Runner(Base):")
    assert not reached(BEFORE, other, ran_before=[8, 9], ran_after=[8, 9])
    assert reached(BEFORE, other, ran_before=[], ran_after=[10])


def defect_row(unedited: str, edited: str, executed: bool, **data) -> emulator_defects.Row:
    outcomes = [Outcome("eager", "plain", state, "why it is so") for state in (unedited, edited)]
    return emulator_defects.Row(defect(**data), (outcomes[0],), (outcomes[1],), executed)


def test_recall_is_over_what_was_executed_and_could_be_judged() -> None:
    rows = [defect_row(PASS, state, True) for state in (FAIL, PASS, INCONCLUSIVE)]
    rows += [defect_row(FAIL, FAIL, True), defect_row(PASS, PASS, False)]
    assert figures_of(rows) == {
        "defects": "5", "not_judged": "1", "executed": "3", "caught": "1", "recall": "0.333"
    }  # fmt: skip


def test_a_run_of_defects_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defects = [defect(id=f"d{number}", **{"class": "arity"}) for number in range(AT_ONCE + 2)]
    asked: list[str] = []

    def group(part: list[Defect], out: Path) -> list[emulator_defects.Row]:
        if asked:
            raise KeyboardInterrupt
        asked.extend(one.id for one in part)
        return [defect_row(PASS, FAIL, True, id=one.id) for one in part]

    monkeypatch.setattr(emulator_defects, "_group", group)
    run = Run("bench-emulator", "whole", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_defects(defects, tmp_path, run)
    assert len(asked) == AT_ONCE
    asked.clear()
    rows = run_defects(defects, tmp_path, run)
    assert asked == ["d12", "d13"]
    assert [row.defect.id for row in rows] == [one.id for one in defects]
    assert all(row.caught for row in rows)
