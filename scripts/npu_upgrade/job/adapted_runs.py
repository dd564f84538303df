"""The runs of one model, and which of them are of the plan's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.runs import Run, newest_checkpoint, trusted_runs
from npu_upgrade.evidence.store import present_store
from npu_upgrade.job.planned_code import divided, planned_code


@dataclass(frozen=True)
class Runs:
    """``counted``: the runs of the plan's code, oldest first; ``others``: the rest, each with the reason."""

    counted: list[Run] = field(default_factory=list)
    others: list[tuple[Run, str]] = field(default_factory=list)

    def of_stage(self, gate: str, load: str) -> list[Run]:
        """Those that count of a gate with dummy or real weights."""
        return [run for run in self.counted if run.is_of_stage(gate, load)]

    def served(self) -> Run | None:
        """The newest run that tells what is installed where real weights are served."""
        fits = [run for run in self.of_stage("serve", "real") if run.versions]
        return fits[-1] if fits else None


def runs_of(workspace: Path, where: str, name: str, plan: dict[str, Any]) -> Runs:
    """The runs of the model at ``where``; raises :class:`BadInput` when evidence was edited."""
    found = {
        run.record.id: run
        for run in trusted_runs(present_store(workspace))
        if run.is_of(where) or run.is_of(name)
    }
    if not found:
        return Runs()
    checkpoint = newest_checkpoint(list(found.values()))
    older = [run for run in found.values() if run.checkpoint != checkpoint]
    now = [run.record for run in found.values() if run.checkpoint == checkpoint]
    counted, others = divided(now, planned_code(plan))
    why = "it ran another checkpoint than the newest run"
    return Runs(
        [found[one.id] for one in counted],
        [(run, why) for run in older] + [(found[one.id], reason) for one, reason in others],
    )
