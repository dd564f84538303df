"""A real upgrade walked through `next` and `resolve` alone, from the release to the one commit."""

from __future__ import annotations

from pathlib import Path

import pytest

import grade
from bench.walk import TRANSITIONS, walk

pytestmark = pytest.mark.network


def test_a_real_upgrade_is_walked(tmp_path: Path) -> None:
    """The emulated run takes minutes and is the benchmark's; here the commit says that it was left out."""
    done = walk(TRANSITIONS[0], tmp_path / "vllm-omni", "skip", skip=("look", "port"), prove=False)
    assert done.problems == []
    assert done.answered["conflict --with"] == 2
    assert {gate: done.verdicts[gate] for gate in ("audit", "deliver")} == {
        "audit": "PASS",
        "deliver": "PASS",
    }
    result = grade.grade({task["id"]: task for task in grade.tasks()}["upgrade-0.22-to-0.23"], done.repo)
    assert result["verdict"] == "PASS", result
