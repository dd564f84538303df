"""Conflicts in which ours asks for what nothing has any more."""

from __future__ import annotations

import pytest
from sources_kit import write_tree

from npu_upgrade.code.statements import split_statements
from npu_upgrade.merge.nowhere import Known, known_in
from npu_upgrade.sources.tree import open_source
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.threeway.pieces import MergedMethod

BASE = """    def step(self, batch):
        keeper = Keeper.instance()
        keeper.clear_all()
        return batch
"""
OURS = """    def step(self, batch):
        keeper = self.keeper_of_experts
        if keeper is not None:
            keeper.finish_copying()
        return batch
"""
THEIRS = """    def step(self, batch):
        if self.counting:
            self.keeper_of_experts.clear_all()
        return batch
"""


def merged(ours: str = OURS, theirs: str = THEIRS, known: Known | None = None) -> MergedMethod:
    context = Context(vain=known.why_vain if known else None)
    return merge_method(*(split_statements(text) for text in (BASE, ours, theirs)), context)


def known(upstream: set[str], own: set[str] = frozenset()) -> Known:
    return Known(upstream.__contains__, own.__contains__)


HAD = {"keeper_of_experts", "clear_all", "counting"}


def test_what_could_not_run_gives_way_to_theirs_and_says_so() -> None:
    assert merged().conflicts
    now = merged(known=known(HAD))
    assert now.text() == THEIRS.rstrip("\n")
    (flag,) = [one for one in now.flags if one.kind == "vain"]
    assert "finish_copying" in flag.reason
    assert "keeper.finish_copying()" in flag.ours


def test_what_reads_a_name_of_theirs_that_is_taken_so_is_taken_too() -> None:
    more = "        made = self.make(batch)\n", "        made.check()\n"
    theirs = THEIRS.replace("        if", more[0] + "        if").replace(
        "        return", more[1] + "        return"
    )
    now = merged(theirs=theirs, known=known({*HAD, "check", "make"}))
    assert now.text() == theirs.rstrip("\n")
    assert [flag.kind for flag in now.flags] == ["vain"]


@pytest.mark.parametrize(
    ("upstream", "own", "ours"),
    [
        (HAD | {"finish_copying"}, set(), OURS),  # upstream has it
        (HAD, {"finish_copying"}, OURS),  # omni has it
        (HAD, {"tell_stage"}, OURS.replace("keeper.finish", "self.tell_stage()\n            keeper.finish")),
    ],
)
def test_what_may_run_or_has_more_of_omnis_stays_to_be_decided(
    upstream: set[str], own: set[str], ours: str
) -> None:
    before = merged(ours)
    assert before.conflicts
    assert merged(ours, known=known(upstream, own)) == before


def test_what_the_trees_have(tmp_path) -> None:
    trees = {
        "omni": {"vllm_omni/runner.py": "def tell_stage():\n    keeper.finish_copying()\n"},
        "ascend": {"vllm_ascend/worker.py": "keeper_of_experts = 1\n"},
        "vllm": {"vllm/keeper.py": "def clear_all(): ...\n"},
    }
    omni, ascend, vllm = (
        open_source(f"dir:{write_tree(tmp_path / name, files)}") for name, files in trees.items()
    )
    assert known_in(omni, ascend, None) is None
    found = known_in(omni, ascend, vllm)
    assert found
    assert found.upstream("keeper_of_experts")
    assert found.upstream("clear_all")
    assert not found.upstream("tell_stage")
    assert found.own("tell_stage")
    assert not found.own("finish_copying")  # it is only called
