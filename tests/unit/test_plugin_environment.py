"""The plugin of a job: its open decisions, and the environment of its own that it is installed into."""

from __future__ import annotations

import os
import venv
from pathlib import Path

import pytest

from npu_upgrade.evidence.observed import Observed, Process, Ran
from npu_upgrade.gates.plugin import Plugin, python_with, undecided, unit_test_of
from npu_upgrade.gates.serving.observation import took_part
from npu_upgrade.ground.errors import BadInput

PROJECT = """[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"
[project]
name = "tide"
version = "1"
dependencies = ["transformers>=999"]
[project.entry-points."vllm.general_plugins"]
tide = "tide:register"
[tool.setuptools]
packages = ["tide"]
"""
REGISTER = """def register():
    from vllm import ModelRegistry
    ModelRegistry.register_model("TideForCausalLM", "tide.model:Tide")
"""
VLLM = """class ModelRegistry:
    models = {}
    @classmethod
    def register_model(cls, name, place):
        module, _, class_name = place.partition(":")
        cls.models[name] = type("Lazy", (), {"module_name": module, "class_name": class_name})
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An interpreter with a vLLM that has a registry, shared with others."""
    venv.create(tmp_path / "shared", with_pip=False)
    (site,) = (tmp_path / "shared").glob("lib/python3*/site-packages")
    (site / "elsewhere").mkdir()
    (site / "elsewhere/vllm.py").write_text(VLLM)
    (site / "editable.pth").write_text(f"{site / 'elsewhere'}\n")  # as an editable install has it
    return tmp_path / "shared/bin/python"


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    package = tmp_path / "repo/plugin/tide"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text(REGISTER)
    (package / "model.py").write_text("class Tide:\n    pass\n")
    return Plugin(package.parent, "tide", "TideForCausalLM", tmp_path / "job")


@pytest.mark.network
def test_the_plugin_is_installed_into_an_environment_of_its_own(base: Path, plugin: Plugin) -> None:
    before = sorted(base.parents[1].rglob("*"))
    python = python_with(base, plugin, os.environ)
    assert python.is_relative_to(plugin.home)
    assert sorted(base.parents[1].rglob("*")) == before
    assert sorted(path.name for path in plugin.root.rglob("*") if path.is_file()) == [
        *("__init__.py", "model.py", "pyproject.toml"),
    ]
    (installed,) = python.parents[1].glob("lib/python3*/site-packages/tide/model.py")
    assert python_with(base, plugin, {}) == python  # as it is, nothing runs again
    assert unit_test_of(python) == ""  # it has none
    (plugin.root / "tide/model.py").write_text("class Tide:\n    changed = True\n")
    python_with(base, plugin, os.environ)
    assert "changed" in installed.read_text()
    for file, text, why in (
        ("model.py", "class Other:\n    pass\n", "has no attribute 'Tide'"),
        ("__init__.py", "def register():\n    pass\n", "registers no TideForCausalLM"),
    ):
        kept = (plugin.root / "tide" / file).read_text()
        (plugin.root / "tide" / file).write_text(text)
        with pytest.raises(BadInput, match=why):
            python_with(base, plugin, os.environ)
        (plugin.root / "tide" / file).write_text(kept)


def test_open_decisions_stop_it_before_anything_is_made(base: Path, plugin: Plugin) -> None:
    path = plugin.root / "tide/model.py"
    path.write_text(
        'WEIGHTS = {"a": "b", "c": None}\nFP8: str | None = None\n\n\nclass Tide:\n    def forward(self):\n'
        '        raise NotImplementedError("decide: the forward pass")\n\n    def load(self, name):\n'
        '        if name not in WEIGHTS:\n            raise NotImplementedError(f"decide: {name}")\n'
    )
    assert undecided(path) == ["model.py:1 WEIGHTS['c']", "model.py:2 FP8", "model.py:7 forward()"]
    with pytest.raises(BadInput, match="3 decisions of the plugin are open"):
        python_with(base, plugin, os.environ)
    assert not list(plugin.home.glob("env-*/bin"))


def test_a_server_without_the_plugin_is_told() -> None:
    def seen(*files: str) -> Observed:
        return Observed("plain", (Process(7, "worker", files={name: Ran("a") for name in files}),))

    assert took_part(seen("vllm/a.py", "tide/model.py"), "tide").state == "PASS"
    assert took_part(seen("tide/model.py"), "tide", "all 5 cases pass").why.endswith("; all 5 cases pass")
    assert took_part(seen("vllm/a.py"), "tide").state == "FAIL"
    assert "VLLM_PLUGINS" in took_part(seen("vllm/a.py"), "tide").why
    assert took_part(Observed("plain"), "tide").state == "INCONCLUSIVE"
