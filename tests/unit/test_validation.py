"""The ladders: which cells there are, in which order they are climbed, and what their outcomes add up to."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import serving_kit as kit
from deliver_support import make_upgrade

from npu_upgrade.cli import main as cli
from npu_upgrade.commands import validate
from npu_upgrade.commands.serving_arguments import add_serving_arguments, asked
from npu_upgrade.gates.serving import device
from npu_upgrade.gates.serving.device import Device, missing_for_npu, still_held, used_memory
from npu_upgrade.gates.serving.session import Session
from npu_upgrade.gates.validation import matrix, rungs
from npu_upgrade.gates.validation.rungs import Outcome, Rung, cell_rung, climb, judged, together
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.paths import SKILL
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
        return judged(rung, codes[rung.name], {"summary": rung.name}, 1.0)

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
        ("PASS PASS", "PASS"),
        ("PASS BLOCKED", "BLOCKED"),
        ("BLOCKED INCONCLUSIVE PASS", "BLOCKED"),
        ("BLOCKED FAIL INCONCLUSIVE", "FAIL"),
        ("PASS INCONCLUSIVE", "INCONCLUSIVE"),
    ],
)
def test_a_ladder_is_as_good_as_its_worst_rung(verdicts: str, whole: str) -> None:
    outcomes = [Outcome(Rung("r", "", upgrade("serve")), Verdict(one), "") for one in verdicts.split()]
    assert together(outcomes) is Verdict(whole)


@pytest.mark.parametrize("code", [2, 70, -9, 130])
def test_an_exit_code_of_no_verdict_judges_nothing(code: int) -> None:
    assert judged(Rung("r", "", upgrade("serve")), code, {}, 0.0).verdict is Verdict.INCONCLUSIVE


def fake_smi(folder: Path, monkeypatch, *used: int, form: str = SMI) -> Path:
    """An ``npu-smi`` on PATH that shows a machine of that form; the file that holds what it shows."""
    script, shown = folder / "npu-smi", folder / "shown"
    show(shown, *used, form=form)
    script.write_text(f"#!/bin/sh\ncat {shown}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return shown


def show(shown: Path, *used: int, form: str = SMI) -> None:
    text = form
    for one in used:
        text = text.replace("{used}", str(one), 1)
    shown.write_text(text)


NPU = Device(device.NPU)


def test_the_devices_memory_is_what_its_tool_says(tmp_path: Path, monkeypatch) -> None:
    shown = fake_smi(tmp_path, monkeypatch, 4000)
    assert used_memory(NPU, {}) == [3390, 4000]
    assert still_held(NPU, {}, [3390, 4000], None, 0.1) == ({}, [3390, 4000])
    show(shown, 60000)
    assert still_held(NPU, {}, [3390, 4000], None, 0.1) == ({1: 60000}, [3390, 60000])
    found = device.detect(Installed("3.11", [], {"vllm_ascend": "x/__init__.py"}))
    assert (found.kind, found.name, found.count) == ("npu", "910B3", 2)
    assert device.label([device.NPU], found, "real") == "NPU real"


# a card with two chips: the second row says its place in the card and in the machine
TWO_CHIPS = """
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc2                            Version: 26.0.rc2                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     Ascend910           | OK            | 162.6                34                      0    / 0                |
| 0     0                   | 0000:9D:00.0  | 0                    0    / 0                {used} / 65536          |
+------------------------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -                    34                      0    / 0                |
| 1     1                   | 0000:9F:00.0  | 0                    0    / 0                {used}/ 65536           |
+===========================+===============+======================================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 0       1                 | 495142        | VLLM/Worker 1 / 2  | 55751                 | 310                     |
+===========================+===============+======================================================================+
"""  # noqa: E501
# chips without HBM: their memory is that of the machine's own kind, and huge pages of it are in use
NO_HBM = """
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.1                                   Version: 25.2.1                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 1       310P3                 | OK              | NA           49                8728  / 8728          |
| 0       0                     | 0000:01:00.0    | 0            {used}/ 44278                           |
+-------------------------------+-----------------+------------------------------------------------------+
| 1       310P3                 | OK              | NA           45                0     / 0             |
| 1       1                     | 0000:01:00.0    | 0            {used} / 43693                          |
+===============================+=================+======================================================+
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Chip                  | Process id      | Process name             | Process memory(MB)        |
+===============================+=================+======================================================+
| No running processes found in NPU 1                                                                    |
+===============================+=================+======================================================+
"""


@pytest.mark.parametrize(("form", "name"), [(TWO_CHIPS, "Ascend910"), (NO_HBM, "310P3")])
def test_every_layout_of_the_tool_is_read(form: str, name: str, tmp_path: Path, monkeypatch) -> None:
    shown = fake_smi(tmp_path, monkeypatch, 3419, 2874, form=form)
    found = device.detect(Installed("3.11", [], {"vllm_ascend": "x/__init__.py"}))
    assert (found.name, found.count) == (name, 2)
    assert used_memory(NPU, {}) == [3419, 2874]
    show(shown, 19435, 2874, form=form)
    held, _ = still_held(NPU, {}, [3419, 2874], None, 0.1)
    assert held == {0: 19435}


@pytest.mark.parametrize(
    ("visible", "seen"), [("1", [7]), ("1,0", [7, 3390]), ("", [3390, 7]), ("5", [3390, 7])]
)
def test_only_devices_that_the_server_may_take_count(
    visible: str, seen: list[int], tmp_path: Path, monkeypatch
) -> None:
    fake_smi(tmp_path, monkeypatch, 7)
    assert used_memory(NPU, {"ASCEND_RT_VISIBLE_DEVICES": visible}) == seen


def test_what_a_neighbour_takes_meanwhile_is_not_the_servers(tmp_path: Path, monkeypatch) -> None:
    fake_smi(tmp_path, monkeypatch, 60000)
    before, serving = [3390, 4000], [58000, 4000]
    assert still_held(NPU, {}, before, serving, 0.1) == ({}, [3390, 60000])
    assert still_held(NPU, {}, before, [58000, 30000], 0.1)[0] == {1: 60000}


def test_a_server_that_leaves_device_memory_behind_fails(tmp_path: Path, monkeypatch) -> None:
    shown = fake_smi(tmp_path, monkeypatch, 1000)
    from npu_upgrade.gates.serving.gate import Options, judge

    def fill(*_: object) -> list:
        show(shown, 50000)
        return []

    options = Options(quiet=0.2, patience=2.0, budgets=kit.BUDGETS, extra=[fill])
    served = judge(kit.launch(tmp_path, "none"), NPU, options, tmp_path / "log")
    assert kit.states(served)["teardown"] == "FAIL"
    assert "50000 MiB of device 1 (1000 before)" in served.summary


def test_two_answers_of_an_npu_come_with_what_tells_why(tmp_path: Path, monkeypatch) -> None:
    from npu_upgrade.gates.serving.gate import Options, judge

    fake_smi(tmp_path, monkeypatch, 1000)
    options = Options(quiet=0.2, patience=2.0, budgets=kit.BUDGETS)
    served = judge(kit.launch(tmp_path, "unsteady"), NPU, options, tmp_path / "log")
    (repeat,) = (one for one in served.checks if one.name == "repeat")
    assert repeat.state == "INCONCLUSIVE"
    assert "HCCL_DETERMINISTIC=true" in repeat.why


def test_a_tool_that_may_not_ask_the_driver_is_said(tmp_path: Path, monkeypatch) -> None:
    fake_smi(tmp_path, monkeypatch)
    (tmp_path / "npu-smi").write_text(
        "#!/bin/sh\necho 'dcmi module initialize failed. ret is -8005'\nexit 1\n"
    )
    from npu_upgrade.gates.serving.gate import Options, judge

    options = Options(quiet=0.2, patience=2.0, budgets=kit.BUDGETS)
    served = judge(kit.launch(tmp_path, "none"), NPU, options, tmp_path / "log")
    (teardown,) = (one for one in served.checks if one.name == "teardown")
    assert (teardown.state, served.memory["after"]) == ("PASS", None)
    assert "npu-smi info told no memory" in teardown.why


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


@pytest.mark.parametrize("words", [[], ["--model", "/models/A"], ["--before", "/no/python"]])
def test_validate_npu_says_first_that_there_is_none(words: list[str], tmp_path: Path, capsys) -> None:
    words = ["validate", "--npu", "--workspace", str(tmp_path), *words]
    assert cli.main("upgrade.py", "", ["validate"], words) == 3
    assert "no NPU" in json.loads(capsys.readouterr().out)["error"]
    assert list(tmp_path.iterdir()) == []


def with_npus(monkeypatch, answer: Callable[[Rung], Outcome]) -> list[Rung]:
    """As on a machine with two NPUs, on which every rung is answered; the rungs that were asked for."""
    asked: list[Rung] = []
    monkeypatch.setattr(validate, "missing_for_npu", lambda _: [])
    monkeypatch.setattr(validate, "npu_count", lambda: 2)
    monkeypatch.setattr(rungs, "run", lambda rung: asked.append(rung) or answer(rung))
    return asked


def passes(rung: Rung) -> Outcome:
    name = f"run-{rung.name.replace(' ', '-')}"
    return Outcome(rung, Verdict.PASS, "it served", data={"run": name, "mode": "omni", "label": "NPU real"})


@pytest.mark.parametrize(
    ("words", "given"), [([], set()), (["--mode", "omni"], {"--omni"}), (["--mode", "plain"], {"--no-omni"})]
)
def test_stages_are_left_to_serve_unless_they_are_named(
    words: list[str], given: set[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    asked = with_npus(monkeypatch, passes)
    options = ["--npu", "--model", "A", "--workspace", str(tmp_path), *words]
    options += ["--budget", "load=7200", "--", "--dtype", "float16"]
    assert cli.main("upgrade.py", "", ["validate"], ["validate", *options]) == 0
    for rung in asked:
        assert {"--omni", "--no-omni"} & set(rung.command.argv) == given
        assert rung.command.passed_on[-2:] == ("--dtype", "float16")
        assert rung.command.argv[rung.command.argv.index("--budget") + 1] == "load=7200"


def test_dummy_weights_that_pass_do_not_hide_real_ones_that_cannot_run(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    with_npus(monkeypatch, lambda rung: judged(rung, 0 if "dummy" in rung.name else 3, {}, 1.0))
    words = ["validate", "--npu", "--model", "A", "--gates", "dummy,real", "--workspace", str(tmp_path)]
    assert cli.main("upgrade.py", "", ["validate"], words) == 3
    assert json.loads(capsys.readouterr().out)["verified_on_npu"] is False


def test_evidence_is_never_kept_in_the_skill(tmp_path: Path, monkeypatch, capsys) -> None:
    asked = with_npus(monkeypatch, passes)
    inside = SKILL / "references"
    assert (
        cli.main(
            "upgrade.py", "", ["validate"], ["validate", "--npu", "--model", "A", "--workspace", str(inside)]
        )
        == 2
    )
    assert "the skill's own folder" in json.loads(capsys.readouterr().out)["error"]
    assert asked == []


def test_make_works_in_the_folder_it_was_called_from(tmp_path: Path) -> None:
    argv = [
        "make",
        "-n",
        "-C",
        str(SKILL),
        "validate-npu",
        "MODEL=/m/A",
        "OMNI=1",
        "BEFORE=/old/python",
    ]
    env = {**os.environ, "PWD": str(tmp_path)}
    shown = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=env, check=True).stdout
    assert f'cd "{tmp_path}" && "$python" "{SKILL}/scripts/upgrade.py" validate --npu' in shown
    assert '--model "/m/A" --mode "omni"' in " ".join(shown.split())
    assert '--before "/old/python"' in shown
    other = subprocess.run(
        [*argv[:-3], "OMNI=0"], capture_output=True, text=True, cwd=tmp_path, env=env
    ).stdout
    assert '--mode "plain"' in other


def test_the_old_pair_is_served_alike_and_compared(tmp_path: Path, monkeypatch, capsys) -> None:
    asked = with_npus(monkeypatch, passes)
    monkeypatch.setattr(
        validate, "serving", lambda *_: Installed("3.11", [], {"vllm_omni": "/old/vllm_omni"})
    )
    options = ["--npu", "--model", "A", "--gates", "dummy,real", "--workspace", str(tmp_path)]
    assert cli.main("upgrade.py", "", ["validate"], ["validate", *options, "--before", "/old/python"]) == 0
    old, compared = asked[2:]
    assert (old.name, compared.name) == ("A tp1 real before", "A tp1 real compared")
    words = old.command.argv
    assert words[words.index("--python") + 1] == "/old/python"
    assert words[words.index("--expect-import") + 1] == "vllm_omni=/old/vllm_omni"
    assert "--omni" in words
    assert compared.command.argv[2:5] == ["compare", "run-A-tp1-real-before", "run-A-tp1-real"]


def test_inside_an_upgrade_its_checkout_has_to_be_what_serves(tmp_path: Path, monkeypatch) -> None:
    upgrade = make_upgrade(tmp_path, monkeypatch)
    python, parser = kit.machine(tmp_path / "machine"), argparse.ArgumentParser()
    add_serving_arguments(parser)
    words = [str(kit.model(tmp_path)), "--python", str(python), "--workspace", str(upgrade.workspace)]

    def session(*more: str) -> Session:
        return asked(parser.parse_args([*words, *more]))

    with pytest.raises(BadInput, match=f"vllm_omni is not installed, expected from {upgrade.repo}"):
        session()
    assert session("--no-omni").launch.omni is False
    (site,) = (tmp_path / "machine").glob("lib/python3*/site-packages")
    (site / "checkout.pth").write_text(f"{upgrade.repo}\n")
    assert session().launch.omni is True
    (site / "vllm_omni").mkdir()
    (site / "vllm_omni/__init__.py").write_text("")  # an older wheel shadows the checkout
    with pytest.raises(BadInput, match="is imported from"):
        session()
    assert session("--expect-import", f"vllm_omni={site}").launch.omni is True  # asked for by name
    job = upgrade.job.folder / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"repo": None}))
    assert session().launch.omni is False


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
