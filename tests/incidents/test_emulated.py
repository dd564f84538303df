"""The recipes of the seeded defects: well formed, and still fitting their releases."""

from __future__ import annotations

import ast
import re

import pytest

from bench import emulator_side
from bench.edits import EDITS, edited
from bench.emulator_defects import DEFECTS, Defect, load_defects, texts
from bench.emulator_upgrades import load_upgrades
from bench.incidents import PARTS, Trees
from bench.shared import each_kind
from npu_upgrade.audit.triples import open_project

DEFECT_LIST = load_defects()
SIDE = [*emulator_side.load_defects(), *emulator_side.load_defects("stages")]
SPEC = re.compile(r"pypi:(vllm-omni|vllm-ascend|vllm)==[\w.]+")


@pytest.mark.parametrize("one", [*DEFECT_LIST, *SIDE], ids=lambda one: one.id)
def test_a_recipe_names_releases_edits_and_runs(one: Defect) -> None:
    assert one.note.endswith(".")
    assert list(one.specs) == list(PARTS)
    assert all(SPEC.fullmatch(spec) for spec in one.specs.values())
    assert one.runs
    for edit in one.edits:
        assert edit["do"] in EDITS
        assert len(edit.get("code", "").strip().splitlines()) <= 4


def test_a_recipe_has_the_name_of_its_file() -> None:
    assert [one.id for one in DEFECT_LIST] == [path.stem for path in sorted(DEFECTS.glob("*.yaml"))]


def test_a_default_run_covers_what_a_whole_run_does() -> None:
    default = each_kind(DEFECT_LIST, lambda one: [one.kind])
    tiers, every = ({tier for one in some for tier, _ in one.runs} for some in (default, DEFECT_LIST))
    assert tiers == every
    assert {one.kind for one in default} == {one.kind for one in DEFECT_LIST}
    known = load_upgrades()
    upgrades = each_kind(known, lambda one: one.kinds)
    for what in (lambda one: type(one.fix), lambda one: one.run.partition(" ")[0]):
        assert {what(one) for one in upgrades} == {what(one) for one in known}


@pytest.mark.network
def test_all_edits_fit_their_releases() -> None:
    trees = Trees()
    for defect in [*DEFECT_LIST, *SIDE]:
        edited = texts(trees, defect)
        assert set(edited) == set(defect.paths), defect.id
        for before, after in edited.values():
            assert before != after
            assert ast.parse(after)


def test_the_recorded_fixes_still_fit_their_releases() -> None:
    for one in load_upgrades():
        if isinstance(one.fix, list):
            edited(open_project(f"pypi:vllm-omni=={one.omni}", "vllm-omni"), one.fix)
