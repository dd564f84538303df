"""The plugin of a model in the interpreter that serves: whether it takes part, and its unit test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from npu_upgrade.gates.plugin import Plugin, Unfit, _check

VLLM = """
class ModelRegistry:
    models = {}
"""
PLUGIN = """
def register():
    from vllm import ModelRegistry
    ModelRegistry.models["TideForCausalLM"] = None.__class__
"""
TEST = """
import unittest

class Case(unittest.TestCase):
    def test_it(self):
        self.assertEqual(1, {number})
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """One that is installed beside a vLLM of three lines."""
    files = {
        "vllm.py": VLLM,
        "tide/__init__.py": PLUGIN,
        "tide-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: tide\nVersion: 0.1\n",
        "tide-0.1.dist-info/entry_points.txt": "[vllm.general_plugins]\ntide = tide:register\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return Plugin(tmp_path, "tide", "TideForCausalLM", tmp_path / "home", tmp_path / "test_tide.py")


def check(plugin: Plugin) -> str:
    return _check(Path(sys.executable), plugin, {"PYTHONPATH": str(plugin.root)})


def test_its_unit_test_is_run_and_leaves_nothing(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("npu_upgrade.gates.plugin.say", said.append)
    assert plugin.test is not None
    check(plugin)  # none was written
    assert said == []
    plugin.test.write_text(TEST.format(number=1))
    told = check(plugin)
    by_hand = f"{sys.executable} -B {plugin.test}"
    assert said == [f"tide: {told}"] == [f"tide: all 1 cases of its unit test pass (by hand: {by_hand})"]
    assert not list(plugin.root.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEST.format(number=2), "fails its unit test: 1 cases, test_it (test_of_the_plugin.Case"),
        ("import nowhere", "fails its unit test: it cannot be imported: ModuleNotFoundError"),
        ("def broken(", "fails its unit test: it cannot be imported: SyntaxError"),
    ],
)
def test_a_unit_test_that_fails_is_not_told_as_a_plugin_that_takes_no_part(
    plugin: Plugin, text: str, said: str
) -> None:
    assert plugin.test is not None
    plugin.test.write_text(text)
    with pytest.raises(Unfit) as caught:
        check(plugin)
    assert said in caught.value.what
    assert str(plugin.test) in str(caught.value.expected)


def test_a_test_for_pytest_is_left_to_the_project(plugin: Plugin) -> None:
    assert plugin.test is not None
    plugin.test.write_text("raise ModuleNotFoundError('No module named pytest', name='pytest')")
    check(plugin)


def test_a_plugin_that_registers_something_else_takes_no_part(plugin: Plugin) -> None:
    (plugin.root / "tide/__init__.py").write_text("def register():\n    import vllm\n")
    with pytest.raises(Unfit, match="does not take part: its register\\(\\) registers no TideForCausalLM"):
        check(plugin)
