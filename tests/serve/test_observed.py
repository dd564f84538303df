"""What real servers show of themselves: vLLM on this CPU, and stages of vllm-omni on the emulated NPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.gates_cases import SMALL
from bench.gates_omni import stages
from bench.shared import UPGRADE
from npu_upgrade.evidence.manifest import differences
from npu_upgrade.evidence.observed import Built, Observed, Process, observed_in
from npu_upgrade.gates.vllm_cpu import tiny

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


def serve(
    folder: Path, *words: object, variables: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], Observed]:
    """The result of the command, and what its evidence has of the one start."""
    command = [sys.executable, str(UPGRADE), "serve", *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(variables or {})}, stdin=-3, stdout=-1, text=True
    )
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (0, "PASS"), result
    run = Path(result["folder"])
    assert differences(run) == []
    (found,) = observed_in(run)
    return result, found


def place(folder: Path) -> tuple[object, ...]:
    return "--workspace", folder, "--work-dir", folder, "--quiet", 2, "--format", "json"


def the(process: Process, role: str) -> Built:
    (found,) = (one for one in process.built if one.role == role)
    return found


def test_a_plain_server_on_the_cpu(tmp_path: Path) -> None:
    given = ("--python", "cpu", "--load-format", "dummy", *place(tmp_path))
    result, found = serve(tmp_path, tiny("successor"), *given, "--", *SMALL)
    assert (result["label"], found.mode, found.devices) == ("CPU dummy", "plain", {"cpu"})
    kinds = {one.kind: one for one in found.processes}
    assert set(kinds) == {"server", "engine core", "worker"}
    worker = kinds["worker"]
    runner = the(worker, "runner")
    names = [one.name.rpartition(".")[2] for one in runner.classes]
    assert names[:2] == ["CPUModelRunner", "GPUModelRunner"]
    assert runner.classes[0].path == "vllm/v1/worker/cpu_model_runner.py"
    assert len(runner.classes[0].sha256) == 64
    # 3 completions and a chat of 16 tokens each
    assert the(kinds["engine core"], "scheduler").steps >= runner.steps >= 64
    assert the(worker, "worker").steps == runner.steps
    assert the(worker, "model").classes[0].name.endswith("qwen3.Qwen3ForCausalLM")
    assert the(worker, "attention backend").steps >= 64
    assert worker.device.bytes > 100_000
    assert (found.config["load_format"], found.config["max_model_len"]) == ("dummy", 256)
    assert found.config["enforce_eager"] is True
    assert (found.work_dir, found.pythonpath) == (str(tmp_path), ())
    assert found.versions["vllm"].endswith("+cpu")


def test_stages_of_vllm_omni_on_the_emulated_npu_are_no_npu_without_a_word(tmp_path: Path) -> None:
    """No --emulated: the processes show what they are, the classes of the NPU side, and what ran of them."""
    omni = stages(tmp_path)
    extra = [part for name, value in omni.environment.items() for part in ("--env", f"{name}={value}")]
    given = ("--python", omni.python, "--load-format", "dummy", "--omni", "--keep-pythonpath")
    result, found = serve(
        tmp_path, omni.model, *given, *extra, *place(tmp_path), "--", *omni.arguments,
        variables={"PYTHONPATH": omni.environment["PYTHONPATH"]},
    )  # fmt: skip
    assert (result["label"], result["mode"], found.mode) == ("emulated dry-run", "omni", "omni")
    assert found.devices == {"npu emulated"}
    assert str(tmp_path) not in "".join(found.pythonpath)
    runners = {one.stage: the(one, "runner") for one in found.processes if one.kind == "worker" or one.device}
    names = {stage: one.classes[0].name.rpartition(".")[2] for stage, one in runners.items()}
    assert names == {0: "NPUARModelRunner", 1: "NPUGenerationModelRunner"}
    assert all(one.steps for one in runners.values())
    first = next(one for one in found.processes if one.stage == 0 and one.device)
    ran = first.files["vllm_omni/platforms/npu/worker/npu_ar_model_runner.py"]
    assert ran.sha256 == runners[0].classes[0].sha256
    assert "NPUARModelRunner.execute_model" in ran.functions
    other = "vllm_omni/platforms/npu/worker/npu_generation_model_runner.py"
    assert not any("execute_model" in name for name in first.files.get(other, ran).functions) or (
        other not in first.files
    )
