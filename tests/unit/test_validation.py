"""The ladders: which cells there are, in which order they are climbed, and what their outcomes add up to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import serving_kit as kit

from npu_upgrade.cli import main as cli
from npu_upgrade.gates.serving import device
from npu_upgrade.gates.serving.device import Device, memory_is_back, missing_for_npu, used_memory
from npu_upgrade.gates.validation import matrix
from npu_upgrade.gates.validation.rungs import SCRIPT, Outcome, Rung, cell_rung, climb, judged, together
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.sources.installed import Installed

SMI = """
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.6        42                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3390 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 90.1        40                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          {used} / 65536        |
+===========================+===============+====================================================+
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_matrix_is_read_model_by_model_and_in_the_order_of_the_gates(tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text("")
    cells = matrix.load(
        write(
            tmp_path / "m.yaml",
            """
models:
  - {model: /models/A, tp: [1, 2], gates: [real, dummy], gate_file: gate.yaml, env: {X: 1}}
  - {model: B, arguments: [--max-model-len, 99]}
""",
        )
    )
    names = [one.name for one in cells]
    assert names[:4] == ["A tp1 dummy", "A tp1 real", "A tp2 dummy", "A tp2 real"]
    assert names[4:] == ["B tp1 dummy", "B tp1 real", "B tp1 features", "B tp1 capacity"]
    assert (cells[0].env, cells[-1].arguments) == ({"X": "1"}, ("--max-model-len", "99"))
    assert [one.name for one in matrix.select(cells, "A", ["real"], [2])] == ["A tp2 real"]
    with pytest.raises(BadInput, match="no cell of the matrix is chosen"):
        matrix.select(cells, "C", [], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("models: []", r"\$.models"),
        ("- a", "Expected `object`"),
        ("models: [{tp: 1}]", "`model`"),
        ("models: [{model: A, tp: 0}]", r"models\[0\].tp"),
        ("models: [{model: A, tp: [true]}]", r"models\[0\].tp"),
        ("models: [{model: A, gates: [all]}]", r"models\[0\].gates"),
        ("models: [{model: A, gate_file: none.yaml}]", "no file beside the matrix"),
        ("models: [{model: A, gpu: 1}]", "gpu"),
        ("models: [{model: A, env: [1]}]", r"models\[0\].env"),
        ("models: {", "is no matrix"),
    ],
)
def test_a_wrong_matrix_is_refused_with_its_place(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        matrix.load(write(tmp_path / "m.yaml", text))


def test_more_ranks_than_the_machine_has_are_left_to_vllms_ray_executor() -> None:
    small, large = (cell_rung(matrix.Cell("/m/A", tp, "real"), "py", "ws", 2) for tp in (2, 4))
    assert "ray" not in small.command.passed_on
    assert large.command.passed_on[-2:] == ("--distributed-executor-backend", "ray")
    assert large.after == "A tp4 dummy"


def test_what_stands_on_a_failed_rung_is_not_tried(monkeypatch) -> None:
    codes = {"a": 1, "b": 0, "c": 3}

    def answer(rung: Rung) -> Outcome:
        return judged(rung, codes[rung.name], json.dumps({"summary": rung.name}), 1.0)

    monkeypatch.setattr("npu_upgrade.gates.validation.rungs.run", answer)
    rungs = [
        Rung("a", "", upgrade("serve")),
        Rung("b", "", upgrade("serve"), after="a"),
        Rung("c", "", upgrade("serve")),
    ]
    first, second, third = climb(rungs)
    assert (first.verdict, third.verdict) == (Verdict.FAIL, Verdict.BLOCKED)
    assert not second.ran
    assert "a is FAIL" in second.why


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ("PASS BLOCKED", "PASS"),
        ("BLOCKED BLOCKED", "BLOCKED"),
        ("PASS FAIL INCONCLUSIVE", "FAIL"),
        ("PASS INCONCLUSIVE", "INCONCLUSIVE"),
    ],
)
def test_what_cannot_run_takes_nothing_from_what_did(verdicts: str, whole: str) -> None:
    outcomes = [Outcome(Rung("r", "", upgrade("serve")), Verdict(one), "") for one in verdicts.split()]
    assert together(outcomes) is Verdict(whole)


@pytest.mark.parametrize("code", [2, 70, -9, 130])
def test_an_exit_code_of_no_verdict_judges_nothing(code: int) -> None:
    assert judged(Rung("r", "", upgrade("serve")), code, "no json", 0.0).verdict is Verdict.INCONCLUSIVE


def fake_smi(folder: Path, monkeypatch, used: int) -> Path:
    """An ``npu-smi`` on PATH that shows two cards."""
    script, shown = folder / "npu-smi", folder / "shown"
    shown.write_text(SMI.replace("{used}", str(used)))
    script.write_text(f"#!/bin/sh\ncat {shown}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return shown


def test_the_devices_memory_is_what_its_tool_says(tmp_path: Path, monkeypatch) -> None:
    shown = fake_smi(tmp_path, monkeypatch, 4000)
    npu = Device(device.NPU)
    assert used_memory(npu) == 3390 + 4000
    assert memory_is_back(npu, 7390, 0.1) == (True, 7390)
    shown.write_text(SMI.replace("{used}", "60000"))
    assert memory_is_back(npu, 7390, 0.1) == (False, 63390)
    found = device.detect(Installed("3.11", [], {"vllm_ascend": "x/__init__.py"}))
    assert (found.kind, found.name, found.count) == ("npu", "910B3", 2)
    assert device.label([device.NPU], found, "real") == "NPU real"


def test_a_server_that_leaves_device_memory_behind_fails(tmp_path: Path, monkeypatch) -> None:
    shown = fake_smi(tmp_path, monkeypatch, 1000)
    from npu_upgrade.gates.serving.gate import Options, judge

    def fill(*_: object) -> list:
        shown.write_text(SMI.replace("{used}", "50000"))
        return []

    options = Options(quiet=0.2, patience=2.0, budgets=kit.BUDGETS, extra=fill)
    served = judge(kit.launch(tmp_path, "none"), Device(device.NPU), options, tmp_path / "log")
    assert kit.states(served)["teardown"] == "FAIL"
    assert "53390 MiB of device memory are in use, 4390 MiB before" in served.summary


def test_a_machine_without_an_npu_says_all_that_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(device, "_DEVICES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert len(missing_for_npu(None)) == 3
    lacks = missing_for_npu(Installed("3.11", [], {"vllm": "x"}))
    assert [one.partition(" ")[0] for one in lacks] == ["no", "npu-smi", "torch-npu", "vllm-ascend"]
    (tmp_path / "davinci0").touch()
    fake_smi(tmp_path, monkeypatch, 1)
    whole = {"vllm": "x", "torch_npu": "x", "vllm_ascend": "x"}
    assert missing_for_npu(Installed("3.11", [], whole)) == []


def test_validate_npu_is_blocked_where_there_is_none(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        str(SCRIPT),
        "validate",
        "--npu",
        "--model",
        "/models/A",
        "--workspace",
        str(tmp_path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 3
    assert "no NPU" in json.loads(done.stdout)["error"]


def test_ray_tasks_need_a_cluster(tmp_path: Path) -> None:
    from npu_upgrade.evidence.store import workspace_store
    from npu_upgrade.gates.validation import on_ray

    rung = cell_rung(matrix.Cell("/m/A", 1, "dummy"), sys.executable, str(tmp_path))
    with pytest.raises(Blocked, match="has no ray"):
        on_ray.run([rung], [1], "auto", sys.executable, workspace_store(tmp_path))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rungs", "static,real"], "no real among static, emulated, cpu-dummy, cpu-real"),
        (["--npu", "--gates", "all"], "no all among"),
        (["--npu", "--tp", "1,0"], "0 is not above 0"),
        (["--npu", "--tp", "two"], "--tp"),
    ],
)
def test_a_wrong_list_is_refused_before_anything_runs(words: list[str], why: str, capsys) -> None:
    assert cli.main("upgrade.py", "", ["validate"], ["validate", *words]) == 2
    assert why in capsys.readouterr().out
