"""The emulated dry run on released packages: import, an eager and a graph scenario, and a found defect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.edits import edited
from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.dry_run import run
from npu_upgrade.gates.emulation.environment import prepare
from npu_upgrade.gates.emulation.kept import exercised

OMNI, ASCEND = "pypi:vllm-omni==0.24.0", "pypi:vllm-ascend==0.24.0rc1"
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "upgrade.py"

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("machine")]


def emulate(tmp_path, *args: str) -> tuple[int, dict]:
    command = [
        sys.executable,
        str(SCRIPT),
        "emulate",
        *args,
        "--out",
        str(tmp_path / "out"),
        "--format",
        "json",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_the_matched_pair_runs_eager_and_with_graphs(tmp_path):
    triple = open_triple(open_project(OMNI, "vllm-omni"), ASCEND, None)
    played = run(triple, chosen(["ar"], ["eager", "graph"], omni=True), tmp_path / "fresh")
    assert [(outcome.state, outcome.why) for outcome in played.outcomes] == [("PASS", "")] * 3
    graph = played.outcomes[-1]
    assert graph.runner.endswith("npu_ar_model_runner.NPUARModelRunner")
    assert graph.graphs["replayed"] > graph.graphs["captured"] > 0
    ran = played.ran["eager", "ar"]
    functions = {name for part in ran.executed.values() for name, statements in part.items() if statements}
    assert {"NPUARModelRunner.execute_model", "NPUARModelRunner.sample_tokens"} <= functions
    assert "NPUARModelRunner" in str(exercised(ran).classes)
    # the same content does not run again
    code, result = emulate(
        tmp_path, "--omni", OMNI, "--ascend", ASCEND, "--baseline", "none",
        "--tiers", "import,eager,graph", "--scenarios", "ar",
    )  # fmt: skip
    assert (code, result["verdict"]) == (0, "PASS"), result
    assert result["label"] == "emulated dry-run"
    assert result["verified_on_npu"] is False
    assert result["tiers"] == {"import": "PASS", "eager": "PASS", "graph": "PASS"}
    assert result["reused"] == ["eager ar", "graph ar", "import"]
    assert "no old pair to compare with" in result["summary"]


def test_a_plain_model_gives_the_tokens_of_vllm_on_this_cpu(tmp_path):
    triple = open_triple(open_project(OMNI, "vllm-omni"), ASCEND, None)  # the environment of the others
    played = run(triple, chosen(["plain"], ["eager"], omni=False), tmp_path / "plain")
    assert [(outcome.state, outcome.why) for outcome in played.outcomes] == [("PASS", ""), ("PASS", "")]
    plan = json.loads((tmp_path / "plain" / "plan.json").read_text())
    assert plan["references"]["plain"]


def test_a_defect_in_the_runner_is_found_where_it_is(tmp_path):
    edit = {
        "in": "omni",
        "path": "vllm_omni/platforms/npu/worker/npu_model_runner.py",
        "at": "OmniNPUModelRunner._model_forward",
        "do": "replace-name",
        "name": "self._build_model_kwargs_extra",
        "to": "self._build_kwargs_extra",
    }
    good = open_triple(open_project(OMNI, "vllm-omni"), ASCEND, None)
    bad = Triple(edited(good.omni, [edit]), good.ascend, good.vllm)
    played = run(bad, chosen(["ar"], ["eager"], omni=True), tmp_path / "bad")
    imported, ran = played.outcomes
    assert imported.state == "PASS"
    assert ran.state == "FAIL"
    assert "_build_kwargs_extra" in ran.why
    assert "npu_model_runner.py" in ran.where


def test_the_reference_operators_hold_in_the_environment():
    triple = open_triple(open_project(OMNI, "vllm-omni"), ASCEND, None)
    environment = prepare(triple.omni, triple.ascend, triple.vllm)
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [
        "--noconftest",
        *map(str, sorted(ROOT.glob("tests/emulator/test_*_operators.py"))),
        *(str(ROOT / f"tests/emulator/test_{name}.py") for name in ("choices", "replaced", "step_costs")),
    ]
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    ended = subprocess.run(
        command, cwd=ROOT, env=kept | environment.variables, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout
    assert "skipped" not in ended.stdout
