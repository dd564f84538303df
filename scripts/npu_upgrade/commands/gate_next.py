"""What a gate that served a model is about, and what to run after it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from npu_upgrade.commands.serving_arguments import Asked
from npu_upgrade.evidence.chain import OfJob
from npu_upgrade.gates.serving.installed import Installed
from npu_upgrade.ground import command
from npu_upgrade.ground.command import ADAPT, Command
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.adaptation import after_gate
from npu_upgrade.job.job import open_job
from npu_upgrade.job.plan_file import load_plan


def served_job(workspace: Path, installed: Installed) -> OfJob | None:
    """The current upgrade and its files as they are, when the served vllm_omni is of its checkout."""
    if not (workspace / WORKSPACE_DIR / "current").is_file():
        return None
    try:
        job = open_job(workspace)
        plan = load_plan(job)
    except UpgradeError:  # one of another version, or whose plan is gone: its own commands say so
        return None
    served = installed.folder("vllm_omni")
    if not job.repo or served is None or not served.resolve().is_relative_to(Path(job.repo).resolve()):
        return None
    return job.of(plan.subject(Path(job.repo)).tree)


def after(wanted: Asked, result: dict[str, Any], verdict: Verdict) -> Command:
    """The next step of an adaptation after a PASS; else the evidence of this run."""
    workspace = wanted.store.workspace
    if command.program() == ADAPT and verdict is Verdict.PASS:
        launch = wanted.launch
        # what ran is recorded and shown, whatever ails the state
        with contextlib.suppress(UpgradeError):
            ran = command.current()
            return after_gate(workspace, launch.model, result["gate"], launch.load_format, ran)
    action = "check" if verdict is Verdict.PASS and result["gate"] == "serve" else "show"
    return Command(command.program(), "evidence", (action, result["run"], "--workspace", str(workspace)))
