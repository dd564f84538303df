"""All models that are being adapted in a workspace: their gates beside each other, and what comes next."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_upgrade.gates.serving.device import npu_count
from npu_upgrade.ground.command import Command, adapt, answered_together
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import adaptation, going_on, walk
from npu_upgrade.job.stages import MOST_SECONDS, Step, find_workspace, next_step

_MOST = 2  # engines for a CPU beside each other
_WORST_FIRST = (Verdict.FAIL, Verdict.BLOCKED, Verdict.INCONCLUSIVE)


def all_models(models: Sequence[str], named: Path | None, *, run: bool) -> Result:
    """What each model is at; with ``run`` after its next gates.

    ``named`` is the workspace, where one was named.
    """
    workspace = named or find_workspace(Path.cwd())
    place = ["--workspace", str(named)] if named else []
    said = _ran(models, place) if run else {}
    rows: dict[str, dict[str, Any]] = {}
    left: list[tuple[Step, Command]] = []
    for one in models:  # what comes next of one model is another thing where the others are done too
        state = adaptation(workspace, one)
        step, then = next_step(walk(state)), going_on(state)
        told = said.get(one, {"verdict": step.verdict.value})
        verdict = told.get("verdict") if told.get("verdict") in Verdict.__members__ else Verdict.FAIL.value
        rows[one] = {"verdict": verdict, "summary": told.get("error") or step.why}
        rows[one] |= {"ran": told["ran"]} if told.get("ran") else {}
        rows[one]["next"] = str(then)
        left.append((step, then))
    verdicts = {row["verdict"] for row in rows.values()}
    worst = next((one for one in _WORST_FIRST if one.value in verdicts), Verdict.PASS)
    if any(step.needs_nobody for step, _ in left):
        summary, then = "there is more to run", adapt("next", "--run", *place)
    else:  # a delivery is for all: what one of them needs still comes before it
        step, then = next((one for one in left if one[0].stage and one[0].stage.name != "deliver"), left[0])
        summary = step.why
    shown = [(one, row["verdict"], row["summary"]) for one, row in rows.items()]
    return Result(
        worst, summary, {"models": rows}, table(("model", "verdict", ""), shown), then, {"models": rows}
    )


def _ran(models: Sequence[str], place: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the gates of each said; engines for a CPU run beside each other, an NPU has room for one."""
    most = 1 if npu_count() else max(1, min(_MOST, os.cpu_count() or 1))
    found: dict[str, dict[str, Any]] = {}
    begun = time.monotonic()
    for at in range(0, len(models), most):
        some = models[at : at + most]
        if time.monotonic() - begun < MOST_SECONDS:
            commands = [adapt("next", one, "--run", *place) for one in some]
            said = (
                answer or {"error": "it ended without an answer"}
                for _, answer in answered_together(commands, whole=False, of=some)
            )
            found |= zip(some, said, strict=True)
    return found
