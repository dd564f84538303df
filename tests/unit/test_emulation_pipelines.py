"""A release without a pipeline's model or deploy file is told as absent, before a checkpoint is made."""

import importlib
import sys
import types

import pytest

from npu_emulator.dry_run.catalogue import SCENARIOS
from npu_emulator.dry_run.models import PIPELINES

STAGES = ("pipeline", "pipeline_a5")
NEED_TORCH = ("npu_emulator.dry_run.checks", *(f"npu_emulator.dry_run.stages.{name}" for name in STAGES))
WANTED = {one.model: one.name for one in SCENARIOS if one.model.startswith(PIPELINES)}
MODULES = {model: importlib.import_module(f"npu_emulator.dry_run.models.{model}") for model in WANTED}


def played(model, tmp_path, monkeypatch, source):
    package = tmp_path / "vllm_omni"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "registry.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "vllm_omni", raising=False)
    importlib.invalidate_caches()
    for name in NEED_TORCH:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    scenario = importlib.import_module("npu_emulator.dry_run.scenario")
    sys.modules.pop(scenario.__name__, None)
    plan = {"models": str(tmp_path / "models")}
    return scenario.play(plan, {"scenario": WANTED[model], "tier": "pipelines"})["absent"]


@pytest.mark.parametrize("model", WANTED)
def test_a_release_without_the_model_is_absent(model, tmp_path, monkeypatch):
    why = played(model, tmp_path, monkeypatch, "MODELS = {}")
    assert why == f"vllm-omni knows no model {MODULES[model].ARCHITECTURE}"


@pytest.mark.parametrize("model", [model for model in WANTED if MODULES[model].DEPLOY])
def test_a_release_without_the_deploy_file_is_absent(model, tmp_path, monkeypatch):
    why = played(model, tmp_path, monkeypatch, f'MODELS = {{"{MODULES[model].ARCHITECTURE}": "module"}}')
    assert why == f"vllm-omni has no deploy file {MODULES[model].DEPLOY}"
