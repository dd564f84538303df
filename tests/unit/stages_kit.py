"""The state of an adaptation in a workspace: its files, and runs of its model as evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.runs import SCHEMA
from npu_upgrade.evidence.store import Outcome, workspace_store
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.verdict import Verdict

MODEL = "/models/Tiny"
SOME_CODE = Subject({"vllm": "a" * 64})
GATES = (("serve", "dummy"), ("serve", "real"), ("features", "real"), ("capacity", "real"))
ACCURACY = f"adapt.py accuracy {MODEL} --tasks gsm8k --num-fewshot 5"


def state(workspace: Path, file: str, value: dict[str, Any], name: str = "Tiny") -> None:
    path = workspace / ".npu-upgrade" / "adapt" / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def ran(
    workspace: Path,
    gate: str,
    load: str,
    verdict: Verdict = Verdict.PASS,
    model: str = MODEL,
    *,
    code: Subject = SOME_CODE,
    device: str = "CPU",
    label: str = "",
    command: tuple[str, ...] = (),
    versions: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    store = workspace_store(workspace)
    run = store.begin(gate, Redactor())
    root = {"cause": "no room", "next": "use less"} if verdict is Verdict.FAIL else None
    label = label or f"{device} {load}"
    result = {"schema": SCHEMA, "gate": gate, "label": label, "load_format": load, "root": root}
    result |= {"model": model, "model_name": Path(model).name}
    run.json("result.json", result | {"versions": versions or {}} | (more or {}))
    outcome = Outcome(
        gate=gate,
        label=label,
        verdict=verdict,
        subject=code,
        pins={name: {"version": version} for name, version in (versions or {}).items()},
        command=["adapt.py", gate, *command],
        started="2026-11-03T08:14:02Z",
        seconds=1.0,
        summary=f"{gate} said so",
    )
    store.record(outcome, run)


def planned(workspace: Path, name: str = "Tiny", model: str = MODEL) -> None:
    state(workspace, "analysis.json", {"model": model}, name)
    state(workspace, "plan.json", {"model": model, "name": name, "strategy": {"name": "x"}}, name)


def served(workspace: Path, **how: Any) -> None:
    """Every gate up to capacity has passed."""
    for gate, load in GATES:
        ran(workspace, gate, load, **how)


def code_of(folder: Path, *packages: str) -> Subject:
    return judged({Path(name).name: folder / name for name in packages})[0]
