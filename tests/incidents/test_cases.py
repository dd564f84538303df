"""The recipes of the incident cases: well formed, still fitting their releases, and a few end to end."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from bench.audit_reviews import load_reviews
from bench.audit_runs import Bench
from bench.edits import EDITS
from bench.incidents import CLASSES, FOLDER, GROUPS, PARTS, Case, load_cases

CASES = load_cases()
BY_ID = {case.id: case for case in CASES}
SPEC = re.compile(r"pypi:(vllm-omni|vllm-ascend|vllm)==[\w.]+")
PROJECTS = {"omni": "vllm-omni", "ascend": "vllm-ascend", "vllm": "vllm"}
REQUIRED = {"id", "incident", "class", "triple", "edits", "note"}
OPTIONAL = {"baseline", "expect", "silent", "group", "held_out"}
# Incidents that the facts list, by the number in the id.
INCIDENTS = {
    3503, 3517, 3476, 4447, 4454, 5234, 5290, 5846, 491, 505, 1114, 4310,
    7582, 6654, 2823, 2157, 5350, 5371, 6080, 6134, 6135, 7400, 6204, 3453,
    790, 5330, 5514, 5571, 6560, 6958, 7769, 7789, 7875, 6331, 10188, 10228,
    8937, 8556, 17140, 1611, 102, 552, 561, 307, 48,
}  # fmt: skip


@pytest.mark.parametrize("path", sorted((FOLDER / "cases").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_has_what_a_recipe_needs(path: Path) -> None:
    data = yaml.safe_load(path.read_text("utf-8"))
    assert REQUIRED <= set(data) <= REQUIRED | OPTIONAL
    assert data["id"] == path.stem
    assert data["class"] in CLASSES
    assert data.get("group", "incident") in GROUPS
    assert data["note"].rstrip(")").endswith(".")
    for specs in (data["triple"], data.get("baseline", {})):
        assert set(specs) <= set(PARTS)
        for part, spec in specs.items():
            assert SPEC.fullmatch(spec)
            assert spec.startswith(f"pypi:{PROJECTS[part]}==")
    for edit in data["edits"]:
        assert edit["in"] in data["triple"]
        assert edit["do"] in EDITS
    for name in ("expect", "silent"):
        assert set(data.get(name, {})) <= {"check", "subject", "owner", "kind"}


def test_every_incident_of_the_facts_has_a_case() -> None:
    numbers = {int(number) for case in CASES for number in re.findall(r"#(\d+)", case.incident)}
    assert numbers == INCIDENTS


def test_there_are_enough_cases_of_each_kind() -> None:
    assert sum(case.counted for case in CASES) >= 44
    assert sum(case.group == "gap" for case in CASES) == 11
    assert sum(case.group == "negative" for case in CASES) >= 10
    assert sum(case.held_out for case in CASES) >= 8


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
    assert all(isinstance(verdict, bool) for verdict in load_reviews().values())


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
