"""Real releases: what the demo shows, and one sync that the maintainers did by hand."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from bench.replay import replay
from known_runners import RUNNERS
from npu_upgrade.cli import main as cli
from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import undefined_names
from npu_upgrade.code.statements import split_statements
from npu_upgrade.sources.tree import open_source

pytestmark = pytest.mark.network

OMNI, ASCEND = "pypi:vllm-omni==0.22.0", "pypi:vllm-ascend==0.23.0.post1"


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("upgrade")
    argv = [
        "merge",
        "--omni",
        OMNI,
        "--ascend",
        ASCEND,
        "--out",
        str(folder / "out"),
        "--workspace",
        str(folder),
    ]
    assert cli.main("upgrade.py", "test", ["merge"], [*argv, "--output", str(folder / "result.json")]) in (
        0,
        1,
    )
    return folder / "out"


def test_the_base_is_the_release_the_runners_were_copied_from(merged: Path) -> None:
    plan = json.loads((merged / "plan.json").read_text())
    assert plan["versions"]["base"]["version"] == "0.19.1rc1"


def test_every_answer_to_the_conflicts_is_python_without_undefined_names(merged: Path) -> None:
    for runner in RUNNERS:
        ours, theirs = answers((merged / runner.path).read_text())
        ast.parse(ours.text)
        ast.parse(theirs.text)
        assert undefined_names(ours.text) == set()


def test_the_known_break_is_repaired(merged: Path) -> None:
    """0.22.0 unpacks four values of a call that gives three in 0.23: the merged runner unpacks three."""
    theirs = open_source(ASCEND).read("vllm_ascend/worker/model_runner_v1.py")
    expected = unpacked(parse_module(theirs).units["NPUModelRunner.execute_model"].source)
    for runner in RUNNERS[1:]:
        text = answers((merged / runner.path).read_text())[0].text
        unit = parse_module(text).units[f"{runner.class_name}.execute_model"]
        assert unpacked(unit.source) == expected


def unpacked(source: str) -> str:
    return next(
        s.key.partition(" = ")[0] for s in split_statements(source) if "self._prepare_inputs(" in s.key
    )


def test_no_omni_method_and_no_omni_comment_is_lost(merged: Path) -> None:
    omni = open_source(OMNI)
    for runner in RUNNERS:
        before, after = omni.read(runner.path), answers((merged / runner.path).read_text())[0].text
        assert set(parse_module(before).units) <= set(parse_module(after).units)
        markers = [
            Counter(line.strip() for line in t.split("\n") if "omni" in line.lower()) for t in (before, after)
        ]
        lost = {line for line in markers[0] - markers[1] if line.startswith("#")}
        assert lost == set()


def test_a_past_sync_is_reproduced() -> None:
    done = replay("0.18.0", "0.20.0", "pypi:vllm-ascend")
    assert done.score.reproduced >= 0.97 * done.score.ceiling > 100
    assert (done.score.garbage, done.score.duplicated, done.undefined) == (0, 0, 0)
    assert done.score.clean >= 0.9 * done.score.methods
    assert done.score.git_hunks > done.score.hunks
