"""What comes after a gate of the adaptation that passed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from npu_upgrade.ground import invocation
from npu_upgrade.job.adaptation import (
    RUNS,
    adaptation,
    gate_command,
    models,
    next_stage,
    plain_name,
    stages,
)


def following(workspace: Path, where: str, gate: str, load: str, command: Sequence[str]) -> str:
    """The command after ``gate`` of the model at ``where``, which ``command`` ran.

    It is the model's next stage where its adaptation was begun, else the next gate of the runbook.
    """
    name = plain_name(where.rstrip("/").rpartition("/")[2])
    if name in models(workspace):
        stage = next_stage(stages(adaptation(workspace, name)))
        found = stage.command if stage else shlex.join(["adapt.py", "next", name])
    else:
        after = [number for number, run in enumerate(RUNS, 1) if run[1:] == (gate, load)]
        if after and after[0] < len(RUNS):
            found = gate_command(*RUNS[after[0]][1:], where, command)
        else:
            found = shlex.join(["adapt.py", "artifacts", where, "--tree", "DIR"])
    return in_workspace(found, workspace)


def overview(workspace: Path) -> str:
    """What to look at after several runs: the adaptation that goes on, else the list of the runs."""
    going_on = invocation.program() == "adapt.py" and models(workspace)
    return in_workspace("adapt.py next", workspace) if going_on else "upgrade.py evidence list"


def in_workspace(command: str, workspace: Path | None) -> str:
    """The command with the workspace that was named; what follows -- stays behind it."""
    words = shlex.split(command)
    if workspace is None or "--workspace" in words:
        return command
    at = words.index("--") if "--" in words else len(words)
    return shlex.join([*words[:at], "--workspace", str(workspace), *words[at:]])
