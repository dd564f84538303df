"""The scores of one workspace, and what it cost."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from graders import adaptation, answer, commit, gates, reasons, runners
from graders.score import Score
from graders.task import Task
from graders.workspace import Workspace
from npu_upgrade.cli.calls import Call

GRADERS: dict[str, Callable[[Workspace, Task], Score]] = {
    one.__name__: one
    for one in (
        commit.one_commit,
        commit.signed_off,
        commit.nothing_else,
        runners.recall,
        runners.names,
        runners.markers,
        runners.omni_kept,
        adaptation.artifacts,
        adaptation.pins_untouched,
        adaptation.no_sign_off_without_proof,
        answer.claims,
        answer.untouched,
        answer.named,
        reasons.unexplained,
    )
} | {"gates": gates.passed}


class Row(Struct, frozen=True):
    """One assertion; ``score`` is None when there was nothing to judge."""

    grader: str
    text: str
    score: float | None
    met: bool
    why: str


class Cost(Struct, frozen=True):
    """``minutes`` from the first call's start to the commit, ``after`` those from it to the last one's end.

    The commit is the first one with the files that were delivered at last: what only brings its message up to
    date comes after it. Where nothing was committed, ``minutes`` are all. ``waited`` are those inside calls.
    """

    minutes: float = 0.0
    waited: float = 0.0
    calls: int = 0
    characters: int = 0
    after: float = 0.0


class Graded(Struct, frozen=True):
    eval: str
    rows: tuple[Row, ...]
    cost: Cost
    verdicts: dict[str, str]

    @property
    def met(self) -> bool:
        return all(row.met for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        judged = [row.score for row in self.rows if row.score is not None]
        return {
            "eval": self.eval,
            "verdict": "PASS" if self.met else "FAIL",
            "score": round(sum(judged) / len(judged), 3) if judged else 0.0,
            "cost": msgspec.to_builtins(self.cost),
            "verdicts": self.verdicts,
            "assertions": msgspec.to_builtins(self.rows),
        }


def grade(task: Task, workspace: Workspace) -> Graded:
    """The scores of a workspace, the verdicts of its evidence, and what its calls cost."""
    rows = []
    for one in task.assertions:
        score = GRADERS[one.grader](workspace, task)
        met = score.value is None or score.value >= one.at_least
        value = None if score.value is None else round(score.value, 3)
        rows.append(Row(one.grader, one.text, value, met, score.why))
    return Graded(task.id, tuple(rows), _cost(workspace), gates.verdicts(workspace))


_ROUNDED = 2.0  # seconds by which the times of the journals may differ


def _cost(workspace: Workspace) -> Cost:
    calls = workspace.calls
    if not calls:
        return Cost()
    begun = [datetime.datetime.fromisoformat(one.started).timestamp() for one in calls]
    ends = [at + one.seconds for at, one in zip(begun, calls, strict=True)]
    commits = [end for end, one in zip(ends, calls, strict=True) if _commits(one)]
    kept = [at for at, tree in workspace.delivered if tree == workspace.delivered[-1][1]]
    first = datetime.datetime.fromisoformat(kept[0]).timestamp() if kept else max(commits, default=max(ends))
    committed = min((end for end in commits if end >= first - _ROUNDED), default=max(ends))
    return Cost(
        round((committed - min(begun)) / 60, 1),
        round(sum(one.seconds for one in calls) / 60, 1),
        len(calls),
        sum(one.stdout + one.stderr for one in calls),
        round((max(ends) - committed) / 60, 1),
    )


def _commits(call: Call) -> bool:
    return call.exit == 0 and "deliver" in call.command and "--dry-run" not in call.command
