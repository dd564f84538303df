"""What to run after a gate that served a model, in the runbook that it was run by."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

from npu_upgrade.commands.serving_arguments import Asked
from npu_upgrade.ground import invocation
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.onward import following


def after(wanted: Asked, result: dict[str, Any], verdict: Verdict) -> str:
    """The next step of an adaptation after a PASS; else the evidence of this run."""
    workspace, program = wanted.store.workspace, invocation.program()
    if program == "adapt.py" and verdict is Verdict.PASS:
        launch, command = wanted.launch, invocation.current()
        with contextlib.suppress(UpgradeError):  # what ran is recorded and told, whatever ails the state
            return following(workspace, launch.model, result["gate"], launch.load_format, command)
    action = "check" if verdict is Verdict.PASS and result["gate"] == "serve" else "show"
    return shlex.join([program, "evidence", action, result["run"], "--workspace", str(workspace)])
