"""Two deliveries from real servers: the commit says what ran, and what did not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.signoff_bases import make, put_back

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


def test_an_emulated_upgrade_names_the_classes_that_ran(tmp_path: Path) -> None:
    place = make("upgrade", tmp_path / "upgrade")
    put_back(place)
    answer = place.deliver()
    assert answer.code == 0, answer.words
    lines = answer.data["message"].splitlines()
    for name in ("NPUARModelRunner", "NPUGenerationModelRunner"):
        assert f"- emulated: {name} executed in serve" in lines
    assert "NPU-Validation: pending" in lines
    assert "NPU real" not in answer.data["message"]


def test_a_multimodal_model_on_the_cpu_is_delivered_with_its_gaps(tmp_path: Path) -> None:
    place = make("looker", tmp_path / "looker")
    put_back(place)
    assert place.deliver(opened=["npu"]).code == 2
    answer = place.deliver()
    assert answer.code == 0, answer.words
    gaps = [line.partition(":")[0] for line in answer.data["message"].splitlines() if line.startswith("- ")]
    assert {f"- {gap}" for gap in ("npu", "graph", "capacity", "accuracy", "throughput")} <= set(gaps)
    assert not {"- image", "- right", "- serve"} & set(gaps)  # pictures were asked, and equal Transformers
    assert "NPU-Validation: pending" in answer.data["message"]
