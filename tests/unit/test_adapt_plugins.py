"""Plugins that serve a model are judged with it, and delivered only as they were judged."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import artifacts_kit
import pytest

from npu_upgrade.checkpoint.registry import plugin_models
from npu_upgrade.delivery.adaptation import check_plugins
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.observed import Observed, Process, Ran
from npu_upgrade.evidence.runs import Run, trusted_runs_of
from npu_upgrade.evidence.store import workspace_store
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.sources.installed import serving

REGISTERS = 'def register():\n    ModelRegistry.register_model("TideForCausalLM", "tide.model:Tide")\n'


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout with a plugin ``tide`` in a folder of its own."""
    package = tmp_path / "repo/plugins/tide"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REGISTERS, "utf-8")
    return tmp_path / "repo"


def runs(
    folder: Path,
    repo: Path,
    label: str = "CPU real",
    loaded: Sequence[str] = ("tide/__init__.py",),
    **changes: str,
) -> list[Run]:
    """One run that judged the plugin as it is now, whose worker loaded some files."""
    code = judged({"tide": repo / "plugins/tide"})[0]
    seen = Observed("plain", (Process(1, "worker", files={path: Ran("a" * 64) for path in loaded}),))
    artifacts_kit.add(folder, "serve", label, code=code, shown=seen, **changes)
    return trusted_runs_of(workspace_store(folder), artifacts_kit.NAME).counted


def test_a_plugin_as_it_was_judged_is_delivered(tmp_path: Path, repo: Path) -> None:
    check_plugins(repo, ["plugins/tide/__init__.py", "docs/a.md"], runs(tmp_path, repo))


@pytest.mark.parametrize("name", ["__init__.py", "more.py"])
def test_a_plugin_that_was_changed_since_is_refused(tmp_path: Path, repo: Path, name: str) -> None:
    standing = runs(tmp_path, repo)
    (repo / "plugins/tide" / name).write_text("CHANGED = True\n", "utf-8")
    with pytest.raises(BadInput, match="tide is not what gate serve"):
        check_plugins(repo, ["plugins/tide/__init__.py"], standing)
    check_plugins(
        repo, ["docs/tide/a.md", "tests/tide/test_a.py"], standing
    )  # where nothing of it is delivered


@pytest.mark.parametrize(
    ("loaded", "fits"), [(["tide/__init__.py"], True), (["vllm/config.py"], False), ([], False)]
)
def test_a_plugin_that_no_process_loaded_is_refused(
    tmp_path: Path, repo: Path, loaded: list[str], fits: bool
) -> None:
    standing = runs(tmp_path, repo, loaded=loaded)
    with contextlib.nullcontext() if fits else pytest.raises(BadInput, match="was not loaded by gate serve"):
        check_plugins(repo, ["plugins/tide/__init__.py"], standing)


def test_a_plugin_that_is_gone_is_refused(tmp_path: Path, repo: Path) -> None:
    standing = runs(tmp_path, repo)
    (repo / "plugins/tide/__init__.py").unlink()
    (repo / "plugins/tide").rmdir()
    with pytest.raises(BadInput, match="is not what gate serve"):
        check_plugins(repo, ["plugins/tide/__init__.py"], standing)


@pytest.mark.parametrize("changes", [{"label": "CPU dummy"}, {"verdict": "FAIL"}])
def test_runs_that_prove_nothing_are_not_compared(
    tmp_path: Path, repo: Path, changes: dict[str, str]
) -> None:
    standing = runs(tmp_path, repo, **changes)
    (repo / "plugins/tide/more.py").write_text("CHANGED = True\n", "utf-8")
    check_plugins(repo, ["plugins/tide/__init__.py"], standing)


def test_what_an_interpreter_loads_is_found_without_importing_it(tmp_path: Path, repo: Path) -> None:
    """An entry point whose package lies elsewhere, as after an editable installation."""
    site = tmp_path / "site"
    info = site / "tide-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tide\nVersion: 1\n", "utf-8")
    points = "[vllm.general_plugins]\ntide = tide:register\nnone = not_there:register\nown = vllm.x:y\n"
    (info / "entry_points.txt").write_text(points, "utf-8")
    (site / "vllm").mkdir()
    (site / "vllm/__init__.py").write_text("raise SystemExit('imported')\n", "utf-8")
    path = os.pathsep.join([str(site), str(repo / "plugins")])
    found = serving(Path(sys.executable), os.environ | {"PYTHONPATH": path}, tmp_path)
    assert found.adapters == {"tide": str(repo / "plugins/tide")}
    assert plugin_models(found.adapters) == {"TideForCausalLM": ("tide.model", "Tide")}
