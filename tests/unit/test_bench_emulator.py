"""What the emulator's bench takes for expected, and for short of its goals."""

import pytest

from bench.emulator import STAGES, _short, _state
from bench.emulator_known import Known, load_known
from bench.emulator_matrix import ALONE, MATCHED, Pair, Row
from bench.emulator_upgrades import load_upgrades
from npu_upgrade.gates.emulation.catalogue import scenarios
from npu_upgrade.gates.emulation.outcome import FAIL, INCONCLUSIVE, PASS, Outcome

FIGURES = {"import_s": "10", "eager_s": "10", "graph_s": "10", "serve_s": "10", "memory_mib": "100"}
PAIR = Pair("0.30.0", "0.30.0rc2")
KNOWN = Known("0.30.0rc2", "never came", "the incident", omni="0.30.0", tier="graph")
FIXED = Known("0.30.0rc2", "never came", "the incident", omni="0.30.0", tier="graph", fixed_by="some-fix")


def row(
    state: str = FAIL, why: str = "updates that never came", tier: str = "graph", pair: Pair = PAIR
) -> Row:
    return Row(pair, Outcome(tier, "ar", state, why))


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (row(), "EXPECTED FAIL"),
        (row(why="something else"), "FAIL"),
        (row(tier="eager"), "FAIL"),
        (row(pair=Pair("0.28.0", "0.30.0rc2")), "FAIL"),
        (row(INCONCLUSIVE), "INCONCLUSIVE"),
        (row(PASS, ""), "PASS"),
    ],
)
def test_only_the_recorded_failure_is_expected(one: Row, state: str) -> None:
    assert _state(one, [KNOWN]) == state


def test_a_whole_pair_passes_or_has_a_recorded_fix() -> None:
    assert _short([row()], [FIXED], FIGURES) == []
    assert "goal PASS" in _short([row()], [KNOWN], FIGURES)[0]
    assert "goal PASS" in _short([row(INCONCLUSIVE)], [FIXED], FIGURES)[0]
    assert _short([row(pair=Pair("0.28.0", "0.28.0rc1"), state=INCONCLUSIVE)], [], FIGURES) == []


def test_a_slow_or_large_run_is_short_of_the_goal() -> None:
    slow = FIGURES | {"import_s": "20", "memory_mib": "8192"}
    assert _short([], [], slow) == ["import_s 20, goal < 20", "memory_mib 8192, goal < 8192"]


def test_the_recorded_defects_name_what_there_is() -> None:
    names, upgrades = {one.name for one in scenarios()}, {one.id for one in load_upgrades()}
    pairs = {(pair.omni, pair.ascend) for pair in [*MATCHED, *ALONE]}
    for known in load_known():
        assert (known.omni, known.ascend) in pairs
        assert known.scenario in {None, *names}
        assert known.fixed_by in {None, *upgrades}
    assert set(STAGES) <= names
