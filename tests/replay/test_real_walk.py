"""A real upgrade walked through `next` and `resolve` alone, from the release to the one commit."""

from __future__ import annotations

from pathlib import Path

import grade
import pytest

from bench.walk import walk
from bench.walk_report import Transition

pytestmark = pytest.mark.network
NPU_SIDE_ALONE = Transition("0.22-0.23", "0.22.0", "0.22.0", "0.23.0.post1", "0.24.0")


def test_a_real_upgrade_is_walked(tmp_path: Path) -> None:
    """The emulated run takes minutes and is the benchmark's; here the commit says that it was left out."""
    done = walk(NPU_SIDE_ALONE, tmp_path / "vllm-omni", "skip", skip=("look", "port"), prove=False)
    assert done.problems == []
    assert done.answered["conflict --with"] == 2
    assert {gate: done.verdicts[gate] for gate in ("audit", "deliver")} == {
        "audit": "PASS",
        "deliver": "PASS",
    }
    result = grade.grade({task["id"]: task for task in grade.tasks()}["upgrade-0.22-to-0.23"], done.repo)
    assert result["verdict"] == "PASS", result
