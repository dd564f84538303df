"""`adapt.py next`: the stages of a model in order, from its state and the evidence of its runs."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from artifacts_kit import add, add_all, analysed
from stages_kit import ACCURACY, MODEL, code_of, planned, ran, served, state

from npu_upgrade.checkpoint.reading import Finding
from npu_upgrade.cli import main as cli
from npu_upgrade.commands import next as next_command
from npu_upgrade.commands.adapt import together as together_command
from npu_upgrade.commands.evidence import overview
from npu_upgrade.commands.serving_arguments import after as after_run
from npu_upgrade.evidence.chain import canonical
from npu_upgrade.evidence.judged import model_digest
from npu_upgrade.evidence.manifest import listing
from npu_upgrade.evidence.store import DRY_RUN, present_store
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.gates.serving.session import named_python
from npu_upgrade.ground import command as called
from npu_upgrade.ground.command import Command
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job import adaptation
from npu_upgrade.job.adaptation import ROUNDS, SKIPPABLE, after_gate, gate_of, note_halt


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adaptation, "npu_count", lambda: 1)  # else a vLLM for the CPU is made

    def call(*options: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        argv = ["next", *options, "--workspace", str(tmp_path), "--format", "json"]
        code = cli.main("adapt.py", "", ["next", "status"], argv)
        data = json.loads(capsys.readouterr().out)
        # every next command names the workspace that was named, before what is passed on
        named = f" --workspace {tmp_path}"
        assert not data.get("next") or named in data["next"].partition(" -- ")[0]
        own = f" --work-dir {tmp_path}"
        return code, data | {"next": (data.get("next") or "").replace(named, "").replace(own, "")}

    return call


def test_the_stages_come_in_order(ask, tmp_path: Path) -> None:
    code, data = ask()
    assert (code, "analyze" in data["try"]) == (2, True)
    state(tmp_path, "analysis.json", {"model": MODEL, "verdict": "PASS"})
    assert ask()[1]["next"] == f"adapt.py plan {MODEL}"
    state(tmp_path, "plan.json", {"model": MODEL, "name": "Tiny", "strategy": {"name": "config only"}})
    assert ask()[1]["next"] == f"adapt.py serve {MODEL} --load-format dummy"
    ran(tmp_path, "serve", "dummy", Verdict.PASS)
    assert ask()[1]["next"] == f"adapt.py serve {MODEL}"
    ran(tmp_path, "serve", "real", Verdict.PASS)
    assert ask()[1]["next"] == f"adapt.py features {MODEL}"
    ran(tmp_path, "features", "real", Verdict.PASS)
    assert ask()[1]["next"] == f"adapt.py capacity {MODEL} --fill"
    ran(tmp_path, "capacity", "real", Verdict.PASS)
    data = ask()[1]
    skipped = next(one for one in data["stages"] if one["name"] == "performance")
    assert (skipped["state"], skipped["said"]) == ("skipped", "without an NPU it would close nothing")
    assert data["next"] == ACCURACY
    ran(tmp_path, "accuracy", "real", Verdict.PASS)
    data = ask()[1]
    assert (data["stage"], data["next"]) == ("requirements", f"adapt.py analyze {MODEL}")
    assert "the checkpoint was not analysed; open: analysis, npu, right, graph" in data["why"]
    assert "adapt.py next Tiny --skip requirements --note WHY" in data["why"]
    data = ask("--skip", "requirements", "--note", "no NPU here")[1]
    assert data["next"] == f"adapt.py artifacts {MODEL} --tree DIR"


def test_dummy_weights_prove_no_real_ones(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    for gate in ("serve", "features", "capacity"):
        ran(tmp_path, gate, "dummy", Verdict.PASS)
    assert ask()[1]["stage"] == "serve real"


def test_a_command_that_failed_for_this_code_is_not_named_again(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    words = (MODEL, "--load-format", "dummy", "--work-dir", str(tmp_path))
    ran(tmp_path, "serve", "dummy", Verdict.FAIL, command=words)
    code, data = ask()
    assert (code, data["stage"], data["step"], data["next"]) == (1, "serve dummy", "change", "")
    assert "no room; use less" in data["why"]
    assert "would say the same again" in data["why"]
    assert " serve " in data["then"]
    ran(tmp_path, "serve", "dummy", Verdict.FAIL, command=(*words, "--port", "8001"))
    assert ask()[1]["then"].count("--port 8001") == 1  # what was asked for last is kept
    ran(tmp_path, "serve", "dummy", Verdict.PASS, command=words)
    assert (ask()[0], ask()[1]["stage"]) == (0, "serve real")


def test_a_failed_command_with_other_options_may_come(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy", Verdict.FAIL, command=(MODEL, "--load-format", "dummy", "--ladder"))
    code, data = ask()
    assert (code, data["stage"]) == (0, "serve dummy")
    assert "--ladder" not in data["next"]


@pytest.mark.parametrize("gate", ["features", "capacity", "performance"])
def test_what_was_inconclusive_is_left_to_the_requirements(ask, tmp_path: Path, gate: str) -> None:
    planned(tmp_path)
    served(tmp_path)
    ran(tmp_path, "performance", "real")
    own = ("--fill",) if gate == "capacity" else ()
    ran(tmp_path, gate, "real", Verdict.INCONCLUSIVE, command=(MODEL, *own, "--work-dir", str(tmp_path)))
    data = ask()[1]
    states = {one["name"]: (one["state"], one["verdict"]) for one in data["stages"]}
    assert (data["stage"], states[gate]) == ("accuracy", ("done", "INCONCLUSIVE"))


def test_what_cannot_begin_here_is_told_once_and_can_be_left_out(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    served(tmp_path)
    ran(tmp_path, "performance", "real")
    (command,) = [one["command"] for one in ask()[1]["stages"] if one["name"] == "accuracy"]
    gate = gate_of("accuracy", "real")
    note_halt(tmp_path, MODEL, gate, shlex.split(command), "no network; wait for it")
    code, data = ask()
    assert (code, data["stage"], data["next"]) == (3, "accuracy", "")
    assert "no network; wait for it" in data["why"]
    assert "--skip 'accuracy' --note WHY" in data["why"]
    assert ask("--skip", "accuracy", "--note", "none here")[1]["stage"] == "requirements"
    ran(tmp_path, "accuracy", "real")
    assert ask()[1]["stage"] == "requirements"


def test_the_speed_is_measured_on_an_npu(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    for load in ("dummy", "real"):
        ran(tmp_path, "serve", load, device="NPU")
    for gate in ("features", "capacity"):
        ran(tmp_path, gate, "real", device="NPU")
    assert ask()[1]["next"] == f"adapt.py performance {MODEL}"


def test_without_vllm_and_an_npu_one_for_the_cpu_is_made(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path)
    monkeypatch.setattr(adaptation, "npu_count", lambda: 0)
    monkeypatch.setattr(adaptation.shutil, "which", lambda name: None)
    assert ask()[1]["next"] == f"adapt.py serve {MODEL} --load-format dummy --python cpu"


def test_without_vllm_the_next_command_is_the_one_that_makes_one(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path)
    (command,) = [one["command"] for one in ask()[1]["stages"] if one["name"] == "serve dummy"]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Blocked) as stopped:
        named_python("auto")
    gate, why = gate_of("serve", "dummy"), stopped.value.what
    note_halt(tmp_path, MODEL, gate, shlex.split(command), why, "BLOCKED", stopped.value.adding)
    code, data = ask()
    assert (code, data["step"], data["why"]) == (3, "change", f"serve dummy: {why}")
    then = shlex.split(data["then"])
    assert [word for word in then if word not in shlex.split(command)] == ["--python", "cpu"]


def test_a_plugin_that_does_not_take_part_is_to_be_changed(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    (command,) = [one["command"] for one in ask()[1]["stages"] if one["name"] == "serve dummy"]
    gate = gate_of("serve", "dummy")
    note_halt(tmp_path, MODEL, gate, shlex.split(command), "its register() registers no Tide", "FAIL")
    data = ask()[1]
    assert (data["step"], data["verdict"], data["next"], data["then"]) == ("change", "FAIL", "", command)
    assert "registers no Tide" in data["why"]


def test_rounds_that_do_not_pass_are_for_a_person(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    for number in range(ROUNDS):
        ran(tmp_path, "serve", "dummy", Verdict.FAIL, command=(MODEL, "--port", str(number)))
    code, data = ask()
    assert (code, "a person is needed" in data["why"]) == (4, True)
    ran(tmp_path, "serve", "dummy", Verdict.PASS)
    assert ask()[0] == 0


def test_of_several_open_models_all_are_shown_and_one_has_to_be_named_to_go_on(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    planned(tmp_path, "Other", "/models/Other")
    assert set(ask()[1]["models"]) == {"Tiny", "Other"}
    code, data = ask("--continue", "--note", "talked")
    assert (code, data["expected"]) == (2, "the name of one: Tiny, Other")
    assert ask("Tiny")[1]["job"] == "Tiny"
    state(tmp_path, "delivered.json", {"commit": "c0ffee"}, "Other")
    assert ask()[1]["job"] == "Tiny"
    state(tmp_path, "delivered.json", {"commit": "c0ffee"})
    assert ask()[1]["job"] in ("Tiny", "Other")


@pytest.mark.parametrize("able", [True, False])
def test_a_cpu_is_asked_for_no_features_where_an_emulated_npu_judges_them(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    monkeypatch.setattr("npu_upgrade.job.adaptation._emulates", lambda: able)
    state(tmp_path, "analysis.json", {"model": MODEL, "verdict": "PASS"})
    trees = {"ascend": {"spec": "pypi:vllm-ascend==0.30.0rc2"}}
    strategy = {"name": "config only"}
    state(tmp_path, "plan.json", {"model": MODEL, "name": "Tiny", "strategy": strategy, "trees": trees})
    ran(tmp_path, "serve", "dummy", Verdict.PASS)
    ran(tmp_path, "serve", "real", Verdict.PASS)
    first = f"adapt.py capacity {MODEL} --fill" if able else f"adapt.py features {MODEL}"
    data = ask()[1]
    assert data["next"] == first
    features = next(one for one in data["stages"] if one["name"] == "features")
    assert ("the emulated run judges them" in features["said"]) is able
    # without it, the CPU's are better than none
    assert ask("--skip", "features emulated", "--note", "no time")[1]["next"] == f"adapt.py features {MODEL}"


def test_an_emulated_run_proves_nothing_of_real_hardware(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    ascend = {"root": "/none", "there": False, "spec": "pypi:vllm-ascend==0.30.0rc2"}
    state(tmp_path, "plan.json", {"model": MODEL, "name": "Tiny", "trees": {"ascend": ascend}})
    ran(tmp_path, "serve", "dummy")
    emulated = {"label": DRY_RUN, "load_format": "real"}
    ran(tmp_path, "serve", "real", more=emulated, label=DRY_RUN)
    assert ask()[1]["stage"] == "serve real"
    ran(tmp_path, "serve", "real", command=(MODEL, "--python", "cpu", "--", "--max-model-len", "512"))
    stages = {one["name"]: one for one in ask()[1]["stages"]}
    assert (stages["serve real"]["state"], stages["serve emulated"]["state"]) == ("done", "done")
    assert stages["features emulated"]["state"] == "todo"
    command = stages["features emulated"]["command"]
    assert command.startswith(f"adapt.py features {MODEL} --emulated")
    assert "--python" not in command


def test_runs_of_another_model_do_not_count(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    planned(tmp_path, "Other", "/models/Other")
    ran(tmp_path, "serve", "dummy", Verdict.PASS, "/models/Other")
    assert ask("Tiny")[1]["stage"] == "serve dummy"
    assert ask("Other")[1]["stage"] == "serve real"
    code, data = ask("Third")
    assert (code, "Other" in data["expected"]) == (2, True)


def test_an_edited_ledger_is_told(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy", Verdict.FAIL)
    path = tmp_path / ".npu-upgrade" / "evidence" / "evidence.jsonl"
    path.write_text(path.read_text().replace("FAIL", "PASS"))
    assert ask()[0] == 2


def _change(folder: Path) -> None:
    path = folder / "result.json"
    path.write_text(path.read_text().replace("FAIL", "PASS") + " ")


def _rename_its_model(folder: Path) -> None:
    path = folder / "result.json"
    path.write_text(path.read_text().replace("Tiny", "Other"))


def _add(folder: Path) -> None:
    (folder / "more.log").write_text("more")


def _remove(folder: Path) -> None:
    (folder / "result.json").unlink()


def _forge(folder: Path) -> None:
    """A change with a manifest that fits it."""
    _change(folder)
    manifest = {"schema": "npu-upgrade/run/1", "id": folder.name, "files": listing(folder)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("edit", [_change, _rename_its_model, _add, _remove, _forge])
def test_an_edited_run_never_counts(ask, tmp_path: Path, edit: Callable[[Path], None]) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy")
    (folder,) = (tmp_path / ".npu-upgrade/evidence/runs").iterdir()
    edit(folder)
    assert ask()[1]["stage"] == "serve dummy"


def test_a_run_whose_folder_is_gone_does_not_count(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy")
    assert ask()[1]["stage"] == "serve real"
    (folder,) = (tmp_path / ".npu-upgrade/evidence/runs").iterdir()
    shutil.rmtree(folder)
    assert ask()[1]["stage"] == "serve dummy"


def test_runs_of_an_older_checkpoint_do_not_count(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    served(tmp_path, more={"model_digest": "a" * 64})
    ran(tmp_path, "performance", "real", more={"model_digest": "a" * 64})
    assert ask()[1]["stage"] == "accuracy"
    ran(tmp_path, "serve", "dummy", more={"model_digest": "b" * 64})
    assert ask()[1]["stage"] == "accuracy", "dummy weights may go without the files of the real ones"
    ran(tmp_path, "serve", "real", more={"model_digest": "b" * 64})
    code, data = ask()
    assert (code, data["stage"]) == (0, "features")
    assert "another checkpoint" in data["why"]
    for gate in ("features", "capacity", "performance"):
        ran(tmp_path, gate, "real", more={"model_digest": "b" * 64})
    assert ask()[1]["stage"] == "accuracy"


def test_without_lm_eval_it_says_how_to_go_on(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    served(tmp_path, versions={"vllm": "0.30.0"})
    ran(tmp_path, "performance", "real")
    data = ask()[1]
    assert data["next"] == f"{ACCURACY} --lm-eval own"
    assert "--skip accuracy --note" in data["why"]
    ran(tmp_path, "serve", "real", versions={"vllm": "0.30.0", "lm-eval": "0.4.13"})
    assert ask()[1]["next"] == ACCURACY


def test_a_gate_is_left_out_with_a_reason_and_delivered_as_an_open_gap(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    served(tmp_path)
    ran(tmp_path, "performance", "real")
    code, data = ask("--skip", "accuracy")
    assert (code, "--note" in data["try"]) == (2, True)
    assert ask()[1]["stage"] == "accuracy"
    code, data = ask("--skip", "accuracy", "--note", "no questions here")
    assert (code, data["stage"], "no questions here" in data["left_out"]["accuracy"]) == (
        0,
        "requirements",
        True,
    )
    states = {one["name"]: one for one in data["stages"]}
    assert states["accuracy"]["state"] == "skipped"
    named = f"--workspace {tmp_path}"
    opened = states["deliver"]["command"]
    assert opened.startswith(f"adapt.py deliver {MODEL} --repo DIR --open analysis")
    assert "--open accuracy" not in opened  # its note names it
    assert opened.endswith(named)
    ran(tmp_path, "accuracy", "real")
    assert {one["name"]: one["state"] for one in ask()[1]["stages"]}["accuracy"] == "done"


def test_a_gate_that_was_left_out_is_not_asked_for_by_its_requirements(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    analysed(tmp_path, "Tiny")
    served(tmp_path)
    ran(tmp_path, "features", "real", Verdict.INCONCLUSIVE)
    data = ask()[1]
    assert (data["stage"], "--skip 'features' --note" in data["why"]) == ("features", True)
    for stage in ("features", "accuracy"):
        assert ask()[1]["stage"] == stage
        ask("--skip", stage, "--note", "not here")
    data = ask("--skip", "capacity", "--note", "no room")[1]
    assert (data["stage"], data["next"]) == ("requirements", f"adapt.py serve {MODEL}")
    assert "on a CPU only" in data["why"]
    ran(tmp_path, "serve", "real", command=(MODEL, "--work-dir", str(tmp_path)))
    assert ask()[1]["stage"] == "artifacts"  # a server on this machine shows nothing more


def test_what_is_shown_to_be_wrong_cannot_be_left_out(ask, tmp_path: Path) -> None:
    planned(tmp_path, "Qwen3-8B", "Qwen/Qwen3-8B")
    add_all(tmp_path, reference={"state": "differs", "why": "token 3 is another"})
    data = ask("--skip", "requirements", "--note", "close enough")[1]
    assert (data["stage"], "token 3 is another" in data["why"]) == ("requirements", True)


def test_the_command_that_fills_a_gap_has_none_of_what_made_it(ask, tmp_path: Path) -> None:
    planned(tmp_path, "Qwen3-8B", "Qwen/Qwen3-8B")
    add_all(tmp_path, resolved={"enforce_eager": True})
    switches = ("--env", "TORCHDYNAMO_DISABLE=1", "--env", "A=1", "--", "-tp", "2", "--enforce-eager")
    add(tmp_path, "serve", resolved={"enforce_eager": True}, command=("Qwen/Qwen3-8B", *switches))
    assert ask()[1]["next"] == "adapt.py serve Qwen/Qwen3-8B --env A=1 -- -tp 2"


def test_nothing_is_asked_for_where_all_is_proven(ask, tmp_path: Path) -> None:
    planned(tmp_path, "Qwen3-8B", "Qwen/Qwen3-8B")
    add_all(tmp_path)
    data = ask()[1]
    assert data["stage"] == "artifacts"
    states = {one["name"]: one for one in data["stages"]}
    assert states["requirements"]["state"] == "done"
    assert "--open" not in states["deliver"]["command"]


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """A vLLM, a vllm-ascend and a plugin, and a plan for them."""
    for package in ("vllm", "vllm_ascend", "out/tide"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "a.py").write_text("one = 1\n")
    root = {"root": str(tmp_path), "there": True}
    plugin = {"root": str(tmp_path / "out"), "there": True, "package": "tide"}
    plan = {"model": MODEL, "name": "Tiny", "trees": {"vllm": root, "ascend": root, "plugin": plugin}}
    state(tmp_path, "analysis.json", {"model": MODEL})
    state(tmp_path, "plan.json", plan)
    return tmp_path


ALL = ("vllm", "vllm_ascend", "out/tide")


def test_runs_of_the_planned_code_count(ask, trees: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu_upgrade.job.adaptation._emulates", lambda: False)
    ran(trees, "serve", "dummy", code=code_of(trees, *ALL), device="NPU")
    assert ask()[1]["stage"] == "serve real"
    ran(trees, "serve", "real", code=code_of(trees, "vllm", "out/tide"))  # a CPU has no vllm-ascend
    assert ask()[1]["stage"] == "features"


@pytest.mark.parametrize("changed", ALL)
def test_runs_of_other_code_than_the_plans_do_not_count(ask, trees: Path, changed: str) -> None:
    ran(trees, "serve", "dummy", code=code_of(trees, *ALL), device="NPU")
    (trees / changed / "a.py").write_text("two = 2\n")
    data = ask()[1]
    name = Path(changed).name
    assert data["stage"] == "serve dummy"
    assert f"1 runs do not count; the newest: it ran another {name} than" in data["why"]
    ran(trees, "serve", "dummy", code=code_of(trees, *ALL), device="NPU")
    assert ask()[1]["stage"] == "serve real"


def test_options_are_kept_where_the_code_is_another_now(ask, trees: Path) -> None:
    given = (MODEL, "--load-format", "dummy", "--python", "cpu")
    ran(trees, "serve", "dummy", code=code_of(trees, *ALL), device="NPU", command=given)
    (trees / ALL[-1] / "a.py").write_text("two = 2\n")
    data = ask()[1]
    assert (data["stage"], data["next"]) == ("serve dummy", f"adapt.py serve {' '.join(given)}")


@pytest.mark.parametrize("left_out", ["vllm_ascend", "out/tide"])
def test_a_run_without_a_part_of_the_planned_code_does_not_count(ask, trees: Path, left_out: str) -> None:
    there = [name for name in ALL if name != left_out]
    ran(trees, "serve", "dummy", code=code_of(trees, *there), device="NPU")
    data = ask()[1]
    assert (data["stage"], f"{Path(left_out).name} of " in data["why"]) == ("serve dummy", True)


def test_a_plan_for_a_release_wants_runs_of_that_release(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    release = {"root": "/none", "there": False, "spec": "pypi:vllm==0.30.0", "version": "0.30.0"}
    state(tmp_path, "plan.json", {"model": MODEL, "name": "Tiny", "trees": {"vllm": release}})
    ran(tmp_path, "serve", "dummy", versions={"vllm": "0.29.0"})
    assert "it ran vllm 0.29.0, the plan is for 0.30.0" in ask()[1]["why"]
    ran(tmp_path, "serve", "dummy", versions={"vllm": "0.30.0+cpu"})
    assert ask()[1]["stage"] == "serve real"


def test_runs_of_two_installations_do_not_add_up(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy")
    ran(tmp_path, "serve", "real", code=Subject({"vllm": "b" * 64}))
    assert ask()[1]["stage"] == "features"
    ran(tmp_path, "features", "real")
    assert ask()[1]["stage"] == "serve real"


def test_options_go_on_from_the_last_run_that_passed(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    given = ("--python", "cpu", "--gate", "g.yaml", "--env", "A=1", "--quiet=2", "--work-dir=/w")
    served_by = ("--", "--max-model-len", "4096", "-tp", "2", "--max-num-seqs=3")
    ran(tmp_path, "serve", "dummy", command=(MODEL, *given, *served_by))
    where = "--python cpu --env A=1 --quiet=2 --work-dir=/w"
    passed_on = "-- --max-model-len 4096 -tp 2 --max-num-seqs=3"
    own = where.replace("--env", "--gate g.yaml --env")
    assert ask()[1]["next"] == f"adapt.py serve {MODEL} {own} {passed_on}"
    ran(tmp_path, "serve", "real", command=(MODEL, *given, *served_by))
    ran(tmp_path, "features", "real", command=(MODEL, *given, *served_by))
    assert ask()[1]["next"] == f"adapt.py capacity {MODEL} --fill {where} -- -tp 2"


@pytest.mark.parametrize(
    ("kind", "stuck"), [("layers-missing", True), ("name-unmapped", False)], ids=["broken", "for an adapter"]
)
def test_nothing_is_planned_on_a_broken_checkpoint(ask, tmp_path: Path, kind: str, stuck: bool) -> None:
    unmapped = Finding("error", "name-unmapped", "a name has no place")
    analysed(tmp_path, findings=[unmapped, Finding("error", kind, "layer 3 is missing")])
    code, data = ask()
    if not stuck:
        assert (code, " plan " in data["next"]) == (0, True)
        return
    assert (code, data["step"], data["stage"]) == (1, "change", "analyze")
    assert "layers-missing: layer 3 is missing; correct the checkpoint" in data["why"]
    assert " analyze " in data["then"]


def test_the_interpreter_of_the_plan_serves_first(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    state(tmp_path, "plan.json", {"model": MODEL, "name": "Tiny", "python": "/v/bin/python"})
    assert ask()[1]["next"] == f"adapt.py serve {MODEL} --load-format dummy --python /v/bin/python"


def test_a_gate_that_passed_names_the_next_of_the_runbook(tmp_path: Path) -> None:
    before = ["adapt.py", "features", MODEL, "--python", "cpu"]

    def after(gate: str) -> str:
        said = str(after_gate(tmp_path, MODEL, gate_of(gate, "real"), before))
        return said.replace(f" --workspace {tmp_path}", "").replace(f" --work-dir {tmp_path}", "")

    assert after("serve") == f"adapt.py features {MODEL} --python cpu"
    assert after("capacity") == f"adapt.py performance {MODEL} --python cpu"
    assert after("performance") == f"{ACCURACY} --python cpu"
    assert after("accuracy") == f"adapt.py artifacts {MODEL} --tree DIR"
    planned(tmp_path)
    assert after("capacity") == "adapt.py next Tiny --run"


def test_after_several_runs_the_adaptation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called, "_shared", {"next", "evidence"})
    monkeypatch.setattr(called, "_called", ["adapt.py", "validate"])
    assert str(overview(tmp_path)) == f"adapt.py evidence list --workspace {tmp_path}"
    planned(tmp_path)
    assert str(overview(tmp_path)) == f"adapt.py next --workspace {tmp_path}"
    monkeypatch.setattr(called, "_called", ["upgrade.py", "validate"])
    assert str(overview(tmp_path)) == f"upgrade.py evidence list --workspace {tmp_path}"


def test_a_gate_tells_how_it_ended_whatever_ails_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(called, "_shared", {"evidence"})
    monkeypatch.setattr(called, "_called", ["adapt.py", "serve", MODEL])
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy")
    launch = SimpleNamespace(model=MODEL, load_format="dummy")
    wanted: Any = SimpleNamespace(store=SimpleNamespace(workspace=tmp_path), launch=launch)
    result = {"gate": "serve", "run": "r1", "label": "CPU dummy"}
    said = after_run(wanted, result, Verdict.PASS)
    assert str(said) == f"adapt.py next Tiny --workspace {tmp_path} --run"
    path = tmp_path / ".npu-upgrade" / "evidence" / "evidence.jsonl"
    path.write_text(path.read_text().replace("PASS", "FAIL"))
    assert str(after_run(wanted, result, Verdict.PASS)).startswith("adapt.py evidence check r1")


def test_a_person_lets_a_stage_go_on(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    for _ in range(ROUNDS):
        ran(tmp_path, "serve", "dummy", Verdict.FAIL)
    code, data = ask()
    assert (code, data["stop"]["rule"], "--continue" in data["a_person_goes_on_with"]) == (4, "rounds", True)
    code, data = ask("--continue", "--note", "another card")
    assert (code, data["stage"]) == (0, "serve dummy")
    for _ in range(ROUNDS):
        ran(tmp_path, "serve", "dummy", Verdict.FAIL)
    assert ask()[0] == 4


@pytest.mark.parametrize("edit", ["result.json", "manifest.json", "new"])
def test_a_run_whose_folder_was_edited_does_not_count(ask, tmp_path: Path, edit: str) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy")
    assert ask()[1]["stage"] == "serve real"
    (folder,) = (tmp_path / ".npu-upgrade/evidence/runs").iterdir()
    (folder / edit).write_text((folder / edit).read_text() + " " if edit != "new" else "")
    data = ask()[1]
    assert data["stage"] == "serve dummy"
    assert "1 runs do not count; the newest: it is not as it was recorded" in data["why"]


def test_runs_of_another_checkpoint_do_not_count(ask, tmp_path: Path) -> None:
    model = tmp_path / "Tiny"
    model.mkdir()
    (model / "config.json").write_text("{}")
    planned(tmp_path, model=str(model))
    ran(tmp_path, "serve", "dummy", model=str(model), more={"model_digest": model_digest(model)})
    assert ask()[1]["stage"] == "serve real"
    (model / "config.json").write_text('{"changed": 1}')
    data = ask()[1]
    assert (data["stage"], "it served another checkpoint" in data["why"]) == ("serve dummy", True)


def test_the_state_of_an_older_version_is_refused(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    state(tmp_path, "skipped.json", {"accuracy": "no network"})
    code, data = ask()
    assert (code, "older version" in data["error"], "next --skip" in data["try"]) == (2, True, True)


def test_evidence_of_an_older_version_is_refused(ask, tmp_path: Path) -> None:
    """A line as version 1 wrote it; nothing is added to such a chain."""
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy")
    path = tmp_path / ".npu-upgrade/evidence/evidence.jsonl"
    line = json.loads(path.read_text())
    del line["job"], line["id"]
    line["schema"] = "npu-upgrade/evidence/1"
    path.write_bytes(canonical(line | {"id": sha256(canonical(line))}) + b"\n")
    path.with_name("evidence.head").unlink()
    before = path.read_bytes()
    code, data = ask()
    assert (code, "older version" in data["error"], "move" in data["try"]) == (2, True, True)
    with pytest.raises(BadInput, match="older version"):
        ran(tmp_path, "serve", "dummy")
    assert path.read_bytes() == before


def gates(monkeypatch: pytest.MonkeyPatch, folder: Path, says: dict[str, Verdict]) -> list[str]:
    """Gates that say by their stage what they are told to, once each; returns the commands they get."""
    got: list[str] = []

    def answered(command: Command, *, whole: bool) -> tuple[int, dict[str, Any]]:
        assert not whole
        got.append(command.short.partition(" --workspace")[0])
        load = "dummy" if "dummy" in command.arguments else "real"
        verdict = says.get(f"{command.name} {load}", says.get(command.name))
        if verdict is None:
            return 2, {"verdict": "USAGE", "error": "no such option", "try": "--help"}
        own = [one for one in command.arguments if one not in ("--workspace", str(folder))]
        ran(folder, command.name, load, verdict, command=(*own, "--work-dir", str(folder)))
        said = {"verdict": verdict.value, "summary": f"{command.name} said so", "next": "x", "why": "because"}
        return verdict.exit_code, said

    monkeypatch.setattr(next_command, "answered", answered)
    return got


def test_gates_are_run_until_there_is_something_to_decide(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path)
    good = dict.fromkeys(("serve", "capacity"), Verdict.PASS)
    got = gates(monkeypatch, tmp_path, good | {"features": Verdict.INCONCLUSIVE, "accuracy": Verdict.BLOCKED})
    code, data = ask("--run")
    assert [one.split()[1] for one in got] == [*("serve", "serve", "features", "capacity", "accuracy")]
    assert [(one["stage"], one["verdict"]) for one in data["ran"]] == [
        ("serve dummy", "PASS"),
        ("serve real", "PASS"),
        ("features", "INCONCLUSIVE"),
        ("capacity", "PASS"),
        ("accuracy", "BLOCKED"),
    ]
    assert (code, data["step"], data["stage"]) == (3, "change", "accuracy")
    assert data["ran"][-1]["said"] == {"why": "because"}
    assert data["ran"][-1]["command"].startswith("adapt.py accuracy")
    assert not any("said" in one for one in data["ran"][:-1])
    again = ask("--run")[1]  # nothing is run twice for the same code
    assert (len(got), again["step"], "ran" in again) == (5, "change", False)


def test_a_command_that_does_not_run_is_not_repeated(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path)
    got = gates(monkeypatch, tmp_path, {})
    code, data = ask("--run")
    assert len(got) == 1
    assert (code, data["next"]) == (0, f"adapt.py serve {MODEL} --load-format dummy")
    assert data["ran"][0]["verdict"] == "USAGE"
    assert data["ran"][0]["said"] == {"try": "--help"}


@pytest.mark.parametrize("said", [{}, {"verdict": "DEFECT", "error": "IndentationError: line 1"}])
def test_a_command_that_breaks_is_called_a_defect_and_not_run_again(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    planned(tmp_path)
    monkeypatch.setattr(next_command, "answered", lambda command, *, whole: (70, said))
    code, data = ask("--run")
    assert (code, data["verdict"], data["next"]) == (1, "FAIL", "")
    assert data["ran"][-1]["verdict"] == "DEFECT"
    assert "defect of this program" in data["summary"]
    assert said.get("error", "exit code 70") in data["summary"]


def test_no_gate_is_begun_late_and_what_has_words_to_fill_in_is_not_run(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path)
    got = gates(monkeypatch, tmp_path, dict.fromkeys(("serve", "features"), Verdict.PASS))
    answer = next_command.answered

    def late(*given: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(next_command, "MOST_SECONDS", -1)
        return answer(*given, **more)

    monkeypatch.setattr(next_command, "answered", late)
    data = ask("--run")[1]
    assert (len(got), len(data["ran"]), data["next"]) == (1, 1, "adapt.py next --run Tiny")
    monkeypatch.setattr(next_command, "MOST_SECONDS", 300)
    monkeypatch.setattr(next_command, "answered", answer)
    everything = [one for one in SKIPPABLE if "emulated" not in one]
    for stage in everything:
        ask("--skip", stage, "--note", "not here")
    data = ask("--run")[1]
    assert data["next"] == f"adapt.py artifacts {MODEL} --tree DIR"
    assert [one.split()[1] for one in got] == ["serve", "serve"]


def test_artifacts_are_written_again_after_a_newer_run(ask, tmp_path: Path) -> None:
    planned(tmp_path, "Qwen3-8B", "Qwen/Qwen3-8B")
    add_all(tmp_path)
    runs = [folder.name for folder in present_store(tmp_path).runs.iterdir()]
    state(tmp_path, "artifacts.json", {"runs": runs}, "Qwen3-8B")
    assert ask()[1]["stage"] == "deliver"
    add_all(tmp_path)
    data = ask()[1]
    assert (data["stage"], "written before the newest runs: serve" in data["why"]) == ("artifacts", True)
    state(tmp_path, "delivered.json", {"commit": "abc"}, "Qwen3-8B")
    assert "every stage is done" in ask()[1]["why"]


def test_models_that_are_ready_go_into_one_commit(ask, tmp_path: Path) -> None:
    for name in ("Qwen3-8B", "Qwen3-32B"):
        planned(tmp_path, name, f"Qwen/{name}")
        target = {"root": ".", "dirty": name == "Qwen3-32B"}  # the first one's scaffold is there by then
        plan = {"model": f"Qwen/{name}", "name": name, "strategy": {"name": "config only"}}
        state(tmp_path, "plan.json", plan | {"trees": {"delivery": target}}, name)
    add_all(tmp_path)
    state(tmp_path, "artifacts.json", {"gaps": ["hf-id"]}, "Qwen3-8B")
    data = ask("Qwen3-8B")[1]
    assert data["next"] == "adapt.py next Qwen3-32B --run"
    assert "not ready yet: Qwen3-32B" in data["why"]
    assert "or without: adapt.py deliver Qwen/Qwen3-8B --repo DIR --open hf-id" in data["why"]
    state(tmp_path, "artifacts.json", {"gaps": []}, "Qwen3-32B")
    wanted = "adapt.py deliver Qwen/Qwen3-32B Qwen/Qwen3-8B --repo DIR --open "
    assert ask("Qwen3-8B")[1]["next"].startswith(wanted)
    state(tmp_path, "delivered.json", {"commit": "abc"}, "Qwen3-32B")
    assert ask("Qwen3-8B")[1]["next"].startswith("adapt.py deliver Qwen/Qwen3-8B --repo")


def test_a_model_of_another_repository_is_not_waited_for(ask, tmp_path: Path) -> None:
    planned(tmp_path, "Qwen3-8B", "Qwen/Qwen3-8B")
    elsewhere = {"trees": {"delivery": {"root": str(tmp_path / "other")}}}
    state(tmp_path, "plan.json", elsewhere | {"model": "Qwen/Qwen3-32B", "name": "Qwen3-32B"}, "Qwen3-32B")
    add_all(tmp_path)
    state(tmp_path, "artifacts.json", {"gaps": []}, "Qwen3-8B")
    assert "not ready" not in ask("Qwen3-8B")[1]["why"]


def test_run_without_a_name_goes_on_with_all_open_models(ask, tmp_path: Path, monkeypatch) -> None:
    for name in ("Tiny", "Other"):
        where = f"/models/{name}"
        state(tmp_path, "analysis.json", {"model": where, "verdict": "PASS"}, name)
        plan = {"model": where, "name": name, "strategy": {"name": "config only"}}
        state(tmp_path, "plan.json", plan, name)
    code, data = ask()
    assert (code, data["summary"], data["next"]) == (0, "there is more to run", "adapt.py next --run")
    assert {one: row["next"] for one, row in data["models"].items()} == {
        name: f"adapt.py next {name} --workspace {tmp_path} --run" for name in ("Tiny", "Other")
    }
    told = ask("--skip", "accuracy", "--note", "nobody asks for it")[1]
    assert told["left_out"] == {"accuracy": "nobody asks for it"}
    assert set(told["left_out_for"]) == {"Tiny", "Other"}
    assert all("accuracy" in ask(name)[1]["left_out"] for name in ("Tiny", "Other"))
    called: list[list[str]] = []

    def together(commands, *, whole, of):
        assert all(name in one.short for one, name in zip(commands, of, strict=True))
        called.append([one.short for one in commands])
        said = {"verdict": "PASS", "summary": "it was", "ran": [{"stage": "serve dummy"}]}
        return [(0, said) if "Tiny" in one.arguments else (2, {"error": "broken"}) for one in commands]

    monkeypatch.setattr(together_command, "answered_together", together)
    monkeypatch.setattr(together_command, "npu_count", lambda: 1)
    code, data = ask("--run")
    here = f"--workspace {tmp_path}"
    # with an NPU there is room for one engine
    assert called == [[f"adapt.py next Other --run {here}"], [f"adapt.py next Tiny --run {here}"]]
    rows = data["models"]
    assert (code, rows["Tiny"]["verdict"], rows["Tiny"]["ran"]) == (1, "PASS", [{"stage": "serve dummy"}])
    assert rows["Other"]["summary"] == "broken"
    assert (data["summary"], data["next"]) == ("there is more to run", "adapt.py next --run")
    called.clear()
    monkeypatch.setattr(together_command, "npu_count", lambda: 0)
    ask("--run")
    assert [len(one) for one in called] == [2]
