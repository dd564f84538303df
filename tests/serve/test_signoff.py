"""Deliveries from real servers: the commit says what ran, here, elsewhere and before, and what did not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.signoff_bases import Place, make, put_back
from npu_upgrade.gates.vllm_cpu import cpu_python

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make("upgrade", tmp_path_factory.mktemp("upgrade") / "upgrade")


@pytest.fixture
def upgrade(made: Place) -> Place:
    """An upgrade whose stages ran on the emulated NPU, as it was before any test."""
    put_back(made)
    return made


def test_an_emulated_upgrade_names_the_classes_that_ran(upgrade: Place) -> None:
    answer = upgrade.deliver()
    assert answer.code == 0, answer.words
    lines = answer.data["message"].splitlines()
    for name in ("NPUARModelRunner", "NPUGenerationModelRunner"):
        assert f"- emulated: {name} executed in serve" in lines
    assert "NPU-Validation: pending" in lines
    assert "NPU real" not in answer.data["message"]


def test_the_pair_before_and_the_pair_after_answer_alike_on_the_same_weights(upgrade: Place) -> None:
    runs = [upgrade.omni(weights="real", old=old) for old in (True, False)]
    assert [one.code for one in runs] == [0, 0], [one.words for one in runs]
    assert [bool(one.data.get("job")) for one in runs] == [False, True]  # what is old says nothing of the job
    answer = upgrade.call("evidence", "compare", *(one.data["run"] for one in runs))
    before, after = answer.data["versions"]
    assert (before["vllm-ascend"], after["vllm-ascend"]) == ("0.24.0rc1", "0.26.0rc1")
    assert (answer.data["other_answers"], answer.data["greedy_answers"] > 0) == ([], True), answer.words


def test_what_a_pack_ran_on_another_machine_is_evidence_of_the_job(upgrade: Place, tmp_path: Path) -> None:
    pack, into = tmp_path / "validate.pyz", tmp_path / "there"
    asked = ("--rungs", "cpu-dummy,cpu-real")  # of a checkpoint whose answers are known
    assert upgrade.call("validate", "--pack", pack, *asked).code == 0
    there = [sys.executable, str(pack), "--into", str(into), "--python", str(cpu_python())]
    done = subprocess.run(there, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = upgrade.call("evidence", "import", into / "evidence.tar.gz")
    assert (answer.code, len(answer.data["added"])) == (0, 2), answer.words
    message = upgrade.deliver().data["message"]
    assert "CPU real" in message
    assert "NPU-Validation: pending" in message


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
