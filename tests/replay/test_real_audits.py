"""The audit on real releases: what an upgrade breaks, one incident from finding to cure, the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from known_runners import RUNNERS
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.cli import main as cli
from npu_upgrade.sources.tree import open_source, overlay

pytestmark = pytest.mark.network

OMNI, ASCEND, VLLM = "pypi:vllm-omni==0.20.0", "pypi:vllm-ascend==0.20.2rc1", "pypi:vllm==0.20.2"


def upgrade(folder: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    report = folder / "result.json"
    code = cli.main("upgrade.py", "test", [argv[0]], [*argv, "--output", str(report)])
    return code, json.loads(report.read_text())


def test_what_an_upgrade_breaks(tmp_path: Path) -> None:
    specs = ["--omni", "pypi:vllm-omni==0.22.0", "--ascend", "pypi:vllm-ascend==0.23.0.post1"]
    code, result = upgrade(tmp_path, "audit", *specs, "--check", "calls", "imports")
    new = [finding for finding in result["findings"] if finding["state"] == "NEW"]
    assert (code, result["belongs_together"]) == (1, False)
    assert {("calls", "OmniNPUModelRunner._dummy_run")} <= {
        (finding["check"], finding["what"].partition(" ")[0]) for finding in new
    }
    assert result["baseline"]["vllm_ascend"] == "pypi:vllm-ascend==0.22.1rc1"


def test_3517_from_finding_to_cure(tmp_path: Path) -> None:
    found = _of_sample(Triple(open_source(OMNI), open_source(ASCEND), open_source(VLLM)))
    assert [(f.kind, f.owner) for f in found] == [("missing override", "NPUARModelRunner")]
    work = ["--out", str(tmp_path / "out"), "--workspace", str(tmp_path)]
    port = ["port", "--omni", OMNI, "--ascend", ASCEND]
    _, listed = upgrade(tmp_path, *port, "--workspace", str(tmp_path))
    (hunk,) = (h for h in listed["hunks"] if h["group"] == "ar._sample")
    assert upgrade(tmp_path, *port, "--apply", hunk["id"], *work)[0] == 0
    texts = {
        runner.path: (tmp_path / "out" / runner.path).read_text()
        for runner in RUNNERS
        if (tmp_path / "out" / runner.path).exists()
    }
    cured = overlay(open_source(OMNI), texts)
    assert _of_sample(Triple(cured, open_source(ASCEND), open_source(VLLM))) == []


def _of_sample(triple: Triple) -> list[Finding]:
    return [f for f in run_checks(World(triple), ["parity-overrides"]) if f.subject.split()[0] == "_sample"]


def test_the_reference_of_omni_blocks_holds(tmp_path: Path) -> None:
    code, result = upgrade(tmp_path, "blocks", "--check")
    assert code == 0, result["summary"]
