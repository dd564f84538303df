"""Seeded defects of the dry run: reading a recipe, its shadow folder, and whether its lines ran."""

import pytest

from bench.defect_lines import reached
from bench.defects import chosen, read_defect, write_shadow
from npu_upgrade.errors import BadInput

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
