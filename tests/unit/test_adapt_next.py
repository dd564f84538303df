"""`adapt.py next`: the stages of a model in order, from its state and the evidence of its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npu_upgrade import cli
from npu_upgrade.commands.adapt.next import ROUNDS
from npu_upgrade.deliver.subject import Subject
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import workspace_store
from npu_upgrade.verdict import Verdict

MODEL = "/models/Tiny"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def call(*options: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        argv = ["next", *options, "--workspace", str(tmp_path), "--format", "json"]
        code = cli.main("adapt.py", "", ["adapt.next"], argv)
        data = json.loads(capsys.readouterr().out)
        # every next command names the workspace that was named, before what is passed on
        named = f" --workspace {tmp_path}"
        assert not data.get("next") or named in data["next"].partition(" -- ")[0]
        return code, data | {"next": (data.get("next") or "").replace(named, "")}

    return call


def state(workspace: Path, file: str, value: dict[str, Any], name: str = "Tiny") -> None:
    path = workspace / ".npu-upgrade" / "adapt" / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def ran(workspace: Path, gate: str, load: str, verdict: Verdict, model: str = MODEL) -> None:
    store = workspace_store(workspace)
    run = store.begin(gate, Redactor())
    root = {"cause": "no room", "next": "use less"} if verdict is Verdict.FAIL else None
    run.json(
        "result.json", {"model": model, "model_name": Path(model).name, "load_format": load, "root": root}
    )
    store.record(
        run,
        label=f"CPU {load}",
        verdict=verdict,
        subject=Subject({"vllm": "a" * 64}),
        pins={},
        command=["adapt.py", gate],
        started="2026-11-03T08:14:02Z",
        seconds=1.0,
        summary=f"{gate} said so",
    )


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
    assert ask()[1]["next"] == f"adapt.py capacity {MODEL}"
    ran(tmp_path, "capacity", "real", Verdict.PASS)
    assert ask()[1].get("stage") in (None, "artifacts", "deliver")


def planned(workspace: Path, name: str = "Tiny", model: str = MODEL) -> None:
    state(workspace, "analysis.json", {"model": model}, name)
    state(workspace, "plan.json", {"model": model, "name": name, "strategy": {"name": "x"}}, name)


def test_dummy_weights_prove_no_real_ones(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    for gate in ("serve", "features", "capacity"):
        ran(tmp_path, gate, "dummy", Verdict.PASS)
    assert ask()[1]["stage"] == "serve real"


def test_a_failed_stage_comes_again_with_its_cause(ask, tmp_path: Path) -> None:
    planned(tmp_path)
    ran(tmp_path, "serve", "dummy", Verdict.PASS)
    ran(tmp_path, "serve", "dummy", Verdict.FAIL)
    code, data = ask()
    assert (code, data["stage"], "no room; use less" in data["why"]) == (0, "serve dummy", True)
    for _ in range(ROUNDS - 1):
        ran(tmp_path, "serve", "dummy", Verdict.FAIL)
    code, data = ask()
    assert (code, "a person is needed" in data["why"]) == (4, True)
    ran(tmp_path, "serve", "dummy", Verdict.PASS)
    assert ask()[0] == 0


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
