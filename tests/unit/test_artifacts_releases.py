"""What is written holds in vllm-ascend's releases: its accuracy test takes the config, its site builds.

The release's own conftest and test run, on its own reader of the config. Replaced is only what needs a model:
lm_eval answers what the test tells it to and writes down what it was asked, and of numpy there is isclose.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import artifacts_kit
import ascend_trees
import pytest

from npu_upgrade.environments.specs import read_spec
from npu_upgrade.environments.store import ensure

pytestmark = pytest.mark.network

# what the releases name in .pre-commit-config.yaml
LINTER = "markdownlint-cli@0.45.0"

LM_EVAL = """
import json, os
def simple_evaluate(**asked):
    with open(os.environ["ASKED"], "w") as stream:
        json.dump(asked, stream)
    return {"results": json.loads(os.environ["MEASURED"])}
"""
# numpy's own definition of isclose for two finite numbers
NUMPY = "def isclose(a, b, rtol):\n    return abs(a - b) <= 1e-8 + rtol * abs(b)\n"


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the fixture that gives each test its own cache: releases are fetched once."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture(params=[ascend_trees.OLD, ascend_trees.NEW])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return ascend_trees.copy(request.param, tmp_path / "tree")


@pytest.fixture
def config(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The config of a model that passed every gate."""
    artifacts_kit.add_all(tmp_path)
    given = ("--tree", str(tree), "--workspace", str(tmp_path), "--name", "Tiny")
    code, result = artifacts_kit.run(capsys, "artifacts", artifacts_kit.HF_ID, *given)
    assert (code, result["gaps"]) == (0, [])
    return tree / "tests/e2e/models/configs/Tiny.yaml"


def judge(
    tree: Path, config: Path, folder: Path, measured: dict[str, float]
) -> tuple[int, dict[str, Any], str]:
    """The exit code of the release's own test, what it asked lm_eval, and what it printed."""
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    (stubs / "lm_eval.py").write_text(LM_EVAL)
    (stubs / "numpy.py").write_text(NUMPY)
    errors = {name.replace(",", "_stderr,"): 0.01 for name in measured}
    env = os.environ | {
        "PYTHONPATH": str(stubs),
        "ASKED": str(folder / "asked.json"),
        "MEASURED": json.dumps({"gsm8k": measured | errors}),
    }
    test = "tests/e2e/models/test_lm_eval_correctness.py"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--config",
        str(config),
        "--report-dir",
        str(folder / "report"),
    ]
    command = [sys.executable, "-m", "pytest", test, "--rootdir", str(tree / "tests/e2e/models"), *options]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    asked = json.loads((folder / "asked.json").read_text()) if (folder / "asked.json").exists() else {}
    return done.returncode, asked, done.stdout + done.stderr


def test_the_release_takes_the_config_and_asks_for_what_was_served(
    tree: Path, config: Path, tmp_path: Path
) -> None:
    measured = {"exact_match,strict-match": 0.83, "exact_match,flexible-extract": 0.82}
    code, asked, said = judge(tree, config, tmp_path, measured)
    assert code == 0, said
    assert asked["model"] == "vllm"
    assert asked["tasks"] == ["gsm8k"]
    assert asked["num_fewshot"] == 5
    assert (asked["apply_chat_template"], asked["fewshot_as_multiturn"]) == (False, False)
    assert asked["model_args"] == {
        "pretrained": artifacts_kit.HF_ID,
        "tensor_parallel_size": 2,
        "dtype": "bfloat16",
        "trust_remote_code": False,
        "max_model_len": 4096,
        "gpu_memory_utilization": 0.9,
    }
    report = next((tmp_path / "report").glob("*.md")).read_text()
    assert "Atlas A2 Series" in report
    assert "TP2" in report


@pytest.mark.parametrize(
    ("strict", "flexible", "wanted"), [(0.5, 0.82, 0.8312), (0.83, 0.5, 0.82)], ids=["strict", "flexible"]
)
def test_the_release_finds_another_accuracy(
    tree: Path, config: Path, tmp_path: Path, strict: float, flexible: float, wanted: float
) -> None:
    measured = {"exact_match,strict-match": strict, "exact_match,flexible-extract": flexible}
    code, _, said = judge(tree, config, tmp_path, measured)
    assert code == 1
    assert f"ground_truth={wanted}" in said


def write_two_models(tree: Path, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that passed everything, and one with every gap there is."""
    nasty = "```\n{{ x }} {% raw %} | <b>"
    checks = [{"name": "chat", "state": "PASS", "prompt": nasty, "answer": nasty}]
    artifacts_kit.add_all(workspace, checks=checks)
    artifacts_kit.add(workspace, "serve", "CPU dummy", model="/models/Gaps-1B", model_name="Gaps-1B")
    for model, name in ((artifacts_kit.HF_ID, "Tiny"), ("Gaps-1B", "Gaps-1B")):
        given = ("--tree", str(tree), "--workspace", str(workspace), "--name", name)
        code, result = artifacts_kit.run(capsys, "artifacts", model, *given)
        assert code == 0, result


def test_the_site_of_the_release_builds_with_the_pages_in_it(tmp_path: Path, capsys) -> None:
    tree = ascend_trees.copy(ascend_trees.NEW, tmp_path / "tree")
    ascend_trees.add_what_releases_lack(tree)
    write_two_models(tree, tmp_path, capsys)
    python = ensure(read_spec("ascend-docs"))
    build = [str(python), "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, title in (("Tiny", "Tiny"), ("Gaps-1B", "Gaps-1B (Experimental)")):
        page = (tmp_path / f"site/tutorials/models/{name}.html").read_text("utf-8")
        assert f"<title>{title} - " in page
        assert "A3 series</label>" in page
        assert "{{ vllm_ascend_version }}" not in page
        assert f"tutorials/models/{name}.md" not in done.stderr  # pages outside nav are listed there
    index = (tmp_path / "site/tutorials/models/index.html").read_text("utf-8")
    assert 'href="Gaps-1B.html"' in index
    assert "GAP (accuracy)" in (tmp_path / "site/tutorials/models/Gaps-1B.html").read_text("utf-8")


def test_the_older_site_builds_with_the_pages_in_it(tmp_path: Path, capsys) -> None:
    tree = ascend_trees.copy(ascend_trees.OLD, tmp_path / "tree")
    ascend_trees.add_what_releases_lack(tree)
    write_two_models(tree, tmp_path, capsys)
    python = ensure(read_spec("ascend-docs-sphinx"))
    build = [str(python), "-m", "sphinx", "-b", "html", "-q", "docs/source", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    index = (tmp_path / "site/tutorials/models/index.html").read_text("utf-8")
    for name in ("Tiny", "Gaps-1B"):  # the release's own pages have warnings
        assert f"tutorials/models/{name}.md" not in done.stderr
        assert f'href="{name}.html"' in index
    assert "GAP (accuracy)" in (tmp_path / "site/tutorials/models/Gaps-1B.html").read_text("utf-8")


def test_the_linter_of_the_release_has_nothing_to_say(tree: Path, tmp_path: Path, capsys) -> None:
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("BLOCKED: no npx")
    write_two_models(tree, tmp_path, capsys)
    pages = [f"docs/source/tutorials/models/{name}.md" for name in ("Tiny", "Gaps-1B", "index")]
    reports = [str(path) for path in sorted(tmp_path.glob(".npu-upgrade/adapt/*/*.md"))]
    assert len(reports) == 6
    lint = [npx, "--yes", LINTER, "-c", ".markdownlint.yaml", *pages, *reports]
    done = subprocess.run(lint, cwd=tree, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        pytest.skip(f"BLOCKED: {LINTER} cannot be had: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
