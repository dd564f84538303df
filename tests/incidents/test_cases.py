"""The recipes of the incident cases: well formed, still fitting their releases, and a few end to end."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import incident_notes
from bench.audit import load_reviews
from bench.audit_runs import Bench
from bench.edits import EDITS
from bench.incidents import COUNTED, FOLDER, Case, load_cases
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.notes import FILE, notes_for

CASES = load_cases()
BY_ID = {case.id: case for case in CASES}
SPEC = re.compile(r"pypi:(vllm-omni|vllm-ascend|vllm)==[\w.]+")
PROJECTS = {"omni": "vllm-omni", "ascend": "vllm-ascend", "vllm": "vllm"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_recipe_names_releases_and_edits_of_them(case: Case) -> None:
    assert case.note.rstrip(")").endswith(".")
    for specs in (case.specs, case.baseline):
        for part, spec in specs.items():
            assert SPEC.fullmatch(spec)
            assert spec.startswith(f"pypi:{PROJECTS[part]}==")
    for edit in case.edits:
        assert edit["in"] in case.specs
        assert edit["do"] in EDITS


def test_a_recipe_has_the_name_of_its_file_and_nothing_unknown(tmp_path: Path) -> None:
    files = sorted((FOLDER / "cases").glob("*.yaml"))
    assert [case.id for case in CASES] == [path.stem for path in files]
    (tmp_path / "one.yaml").write_text(files[0].read_text("utf-8") + "exepct: 1\n", "utf-8")
    with pytest.raises(BadInput, match="exepct"):
        load_cases(tmp_path)


def test_each_figure_of_the_bench_has_cases_behind_it() -> None:
    """A recall of a class, or a silence, that nothing was asked about would be no figure."""
    assert {case.kind for case in CASES if case.counted} == set(COUNTED)
    assert {case.group for case in CASES} == {"incident", "gap", "negative"}
    assert {case.held_out for case in CASES} == {True, False}


def test_code_in_recipes_is_short_and_our_own() -> None:
    for case in CASES:
        for edit in case.edits:
            assert len(edit.get("code", "").strip().split("\n")) <= 4


def test_a_case_without_a_finding_says_where_it_shows() -> None:
    for case in CASES:
        if case.expect is None and case.group == "incident":
            assert case.kind == "D"
            assert "dry run" in case.note


def test_verdicts_are_read() -> None:
    assert {type(verdict) for verdict in load_reviews().values()} == {bool}


def test_the_incidents_that_the_product_shows_are_those_of_the_recipes() -> None:
    assert FILE.read_text("utf-8") == incident_notes.text(), "run lab/incident_notes.py"


def test_an_incident_is_shown_where_something_of_it_stands() -> None:
    found = notes_for("NPUGenerationModelRunner.profile_run", "self._dummy_run(tokens, _dummy_sampler_run=1)")
    assert 0 < len(found) <= 3
    assert all("_dummy" in note.note for note in found)
    assert notes_for("NPUModelRunner.profile_run", "self.profile_run(tokens)") == []


END_TO_END = (
    "omni-3517", "negative-3517-fixed", "omni-5290", "negative-5290-fixed", "omni-6135", "omni-6654",
    "omni-5846-request-ids",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


@pytest.mark.network
def test_the_edits_of_all_cases_fit_their_releases(bench: Bench) -> None:
    for case in CASES:
        for part in {edit["in"] for edit in case.edits}:
            tree = bench.trees.tree(case.specs, part, case.edits)
            assert "+edited-" in tree.spec
            for edit in case.edits:
                assert edit["in"] != part or ast.parse(tree.read(edit["path"]))


@pytest.mark.network
@pytest.mark.parametrize("case", [BY_ID[name] for name in END_TO_END], ids=lambda case: case.id)
def test_the_audit_says_what_the_case_expects(case: Case, bench: Bench) -> None:
    result = bench.result(case)
    assert result.passed, [f"{item.check} {item.owner} {item.subject}" for item in result.found]
