"""Seeded defects of the dry run: reading a recipe, its shadow folder, and whether its lines ran."""

import pytest

from bench.defect_lines import reached
from bench.defect_runs import Row, plan
from bench.defects import chosen, read_defect, write_shadow
from bench.emulator_defects import as_text, figures_of, short_of_goals
from npu_upgrade.gates.emulation.environment import Environment
from npu_upgrade.gates.emulation.outcome import Outcome
from npu_upgrade.ground.errors import BadInput

DATA = {
    "id": "one",
    "incident": "seeded",
    "class": "arity",
    "triple": {"ascend": "pypi:vllm-ascend==1", "vllm": "pypi:vllm==1"},
    "edits": [
        {
            "in": "ascend",
            "path": "vllm_ascend/a.py",
            "at": "f",
            "do": "delete-statement",
            "calls": "g",
        }
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


def test_a_recipe_names_its_runs_and_files():
    defect = read_defect(DATA)
    assert [(tier, one.name) for tier, one in defect.runs] == [("eager", "plain")]
    assert defect.paths == ["vllm_ascend/a.py"]
    assert defect.executed


@pytest.mark.parametrize("run", ["eager nothing", "hover plain", "plain", "import plain"])
def test_a_run_that_does_not_exist_is_bad_input(run):
    with pytest.raises(BadInput, match="no run"):
        read_defect({**DATA, "runs": [run]})


def test_a_name_that_does_not_exist_is_bad_input():
    defects = [read_defect(DATA)]
    assert chosen(defects, []) == chosen(defects, ["one"]) == defects
    with pytest.raises(BadInput, match="no defect two"):
        chosen(defects, ["one", "two"])


def test_only_defects_in_modules_that_start_late_share_an_imported_runner():
    edit = DATA["edits"][0] | {"in": "omni", "path": "vllm_omni/platforms/npu/worker/base.py"}
    assert not read_defect(DATA).late
    assert read_defect({**DATA, "edits": [edit]}).late
    assert not read_defect({**DATA, "edits": [edit, DATA["edits"][0]]}).late


def test_edited_files_lie_by_package(tmp_path):
    edited = {"vllm_ascend/worker/a.py": ("x", "a"), "vllm_omni/b.py": ("y", "b")}
    folders = write_shadow(edited, tmp_path)
    assert folders == {name: str(tmp_path / name) for name in ("vllm_omni", "vllm_ascend")}
    assert (tmp_path / "vllm_ascend/worker/a.py").read_text() == "a"


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


def row(unedited: str, edited: str, executed: bool) -> Row:
    outcomes = [Outcome("eager", "plain", state, "why it is so") for state in (unedited, edited)]
    return Row(read_defect(DATA), (outcomes[0],), (outcomes[1],), executed)


def test_recall_is_over_what_was_executed_and_could_be_judged():
    rows = [row("PASS", "FAIL", True), row("PASS", "PASS", True), row("PASS", "INCONCLUSIVE", True)]
    rows += [row("FAIL", "FAIL", True), row("PASS", "PASS", False)]
    assert figures_of(rows) == {
        "defects": "5", "not_judged": "1", "executed": "3", "caught": "1", "recall": "0.333"
    }  # fmt: skip


def test_a_failure_that_the_unedited_triple_has_is_not_caught_but_not_judged():
    assert row("FAIL", "FAIL", True).caught is None
    assert "not judged, unedited it is FAIL: why it is so" in as_text([row("FAIL", "FAIL", True)])
    assert row("PASS", "FAIL", True).caught is not None


def test_what_is_not_caught_is_listed_with_its_note():
    text = as_text([row("PASS", "FAIL", True), row("PASS", "PASS", True)])
    assert text.count("A note.") == 1
    assert "not caught:" not in as_text([row("PASS", "FAIL", True)])


def test_goals_are_a_number_of_executed_defects_and_a_recall():
    figures = {"executed": "30", "recall": "0.900"}
    assert not short_of_goals(figures)
    assert len(short_of_goals({"executed": "29", "recall": "0.899"})) == 2


def test_the_unedited_triple_runs_every_probe_that_a_defect_runs(tmp_path):
    batch_1 = read_defect({**DATA, "probes": ["batch 1"]})
    batch_4 = read_defect({**DATA, "id": "two", "probes": ["batch 4"]})
    environment = Environment(tmp_path, {}, {"vllm_ascend": tmp_path})
    found = plan([batch_1, batch_4], {"one": {"vllm_ascend": "x"}, "two": {}}, environment, tmp_path)
    first, one, two = found["runs"]
    assert (first["probes"], one["probes"], two["probes"]) == (
        ["batch 1", "batch 4"],
        ["batch 1"],
        ["batch 4"],
    )
    assert (first["shadow"], one["shadow"]) == ({}, {"vllm_ascend": "x"})
    assert len({run["out"] for run in found["runs"]}) == 3
    assert found["modules"] == []
