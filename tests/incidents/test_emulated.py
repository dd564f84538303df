"""The recipes of the seeded defects: well formed, and still fitting their releases."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from bench.defects import DEFECTS, load_defects, texts
from bench.edits import EDITS, edited
from bench.emulator_upgrades import load_upgrades
from bench.incidents import PARTS, Trees
from npu_upgrade.audit.triples import open_project

DEFECT_LIST = load_defects()
SPEC = re.compile(r"pypi:(vllm-omni|vllm-ascend|vllm)==[\w.]+")
REQUIRED = {"id", "incident", "class", "triple", "edits", "runs", "note"}


@pytest.mark.parametrize("path", sorted(DEFECTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_has_what_a_recipe_needs(path: Path) -> None:
    data = yaml.safe_load(path.read_text("utf-8"))
    assert REQUIRED <= set(data) <= REQUIRED | {"executed", "probes"}
    assert data["id"] == path.stem
    assert data["note"].endswith(".")
    assert list(data["triple"]) == list(PARTS)
    assert all(SPEC.fullmatch(spec) for spec in data["triple"].values())
    assert data["edits"]
    assert data["runs"]
    for edit in data["edits"]:
        assert edit["do"] in EDITS
        assert len(edit.get("code", "").strip().splitlines()) <= 4


def test_there_are_enough_of_each_kind() -> None:
    assert len(DEFECT_LIST) >= 36
    assert len({defect.kind for defect in DEFECT_LIST}) >= 15
    assert len({defect.specs["omni"] for defect in DEFECT_LIST}) >= 2
    assert {tier for defect in DEFECT_LIST for tier, _ in defect.runs} >= {"eager", "graph"}
    assert any(not defect.executed for defect in DEFECT_LIST)


@pytest.mark.network
def test_all_edits_fit_their_releases() -> None:
    trees = Trees()
    for defect in DEFECT_LIST:
        edited = texts(trees, defect)
        assert set(edited) == set(defect.paths), defect.id
        for before, after in edited.values():
            assert before != after
            assert ast.parse(after)


def test_the_recorded_fixes_still_fit_their_releases() -> None:
    for one in load_upgrades():
        if isinstance(one.fix, list):
            edited(open_project(f"pypi:vllm-omni=={one.omni}", "vllm-omni"), one.fix)
