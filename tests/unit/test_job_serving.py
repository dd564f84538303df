"""What serves a model that is being adapted, before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stages_kit import state

from npu_upgrade.gates.serving.hub import check_questions, check_reachable
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.job import serving
from npu_upgrade.job.serving import planned


def test_an_id_that_cannot_be_fetched_blocks_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    with pytest.raises(Blocked, match="Org/Tiny is no folder here, and cannot be fetched"):
        check_reachable("Org/Tiny")
    (tmp_path / "hub/models--Org--Tiny").mkdir(parents=True)
    check_reachable("Org/Tiny")
    check_reachable(str(tmp_path / "elsewhere"))  # a path that is not there is told by the gate


def test_questions_that_cannot_be_fetched_block_before_an_environment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Blocked, match="the questions of gsm8k cannot be fetched") as told:
        check_questions(["gsm8k"])
    assert "--include-path" in told.value.try_
    (tmp_path / "datasets/openai___gsm8k/main").mkdir(parents=True)
    check_questions(["gsm8k"])


def test_the_plugin_of_the_plan_is_the_models(tmp_path: Path) -> None:
    model = tmp_path / "Tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"architectures": ["TideForCausalLM"]}))
    assert planned(tmp_path, str(model)).plugin is None
    (tmp_path / "out").mkdir()
    plugin = {"root": str(tmp_path / "out"), "there": True, "package": "tide"}
    state(tmp_path, "plan.json", {"model": str(model), "trees": {"plugin": plugin}})
    found = planned(tmp_path, str(model)).plugin
    assert found is not None
    assert (found.root, found.package, found.architecture) == (tmp_path / "out", "tide", "TideForCausalLM")
    with pytest.raises(BadInput, match="names no vllm-ascend"):
        planned(tmp_path, str(model)).python("auto", emulated=True)


def test_code_in_the_tree_is_not_served_by_vllm_for_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "Tiny"
    model.mkdir()
    monkeypatch.setattr(serving, "named_python", lambda asked: tmp_path / asked)
    state(
        tmp_path, "plan.json", {"model": str(model), "trees": {}, "scaffold": ["vllm_ascend/models/tide.py"]}
    )
    with pytest.raises(Blocked, match="which vLLM for a CPU does not load") as told:
        planned(tmp_path, str(model)).python("cpu", emulated=False)
    assert "--form plugin" in told.value.try_
    assert planned(tmp_path, str(model)).python("/own/python", emulated=False)[0] == Path("/own/python")
    state(tmp_path, "plan.json", {"model": str(model), "trees": {}})
    assert planned(tmp_path, str(model)).python("cpu", emulated=False)[0] == tmp_path / "cpu"
