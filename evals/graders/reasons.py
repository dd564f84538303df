"""Whether every statement that no side has was put there for a reason that the job recorded."""

from __future__ import annotations

from collections import Counter

from bench.replay_score import keys, total
from graders.runners import in_both_words, runner_files, runners, target_keys
from graders.score import Score
from graders.task import Task
from graders.workspace import Workspace
from npu_upgrade.code.module import parse_module
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.job.job import open_job

# an import of several names is another statement with another set of them; a docstring does nothing
_WITHOUT = ("import ", "from ", '"', "'")


def unexplained(workspace: Workspace, task: Task) -> Score:
    """The changed statements without a recorded reason; one costs the whole point.

    Explained is what the checkout had, what the target has, what the GPU side has, in its own words or in
    those of the NPU side (the merge and the port bring it), and what stands in a method for which an answer
    with a text or a note is recorded.
    """
    gpu = [workspace.before(runner.gpu_path) for runner in runners(task) if runner.gpu_path]
    known = in_both_words(gpu, task) | target_keys(task)
    answered = _answered(workspace)
    strange: Counter[str] = Counter()
    for path in runner_files(workspace, task):
        mine = known | keys(workspace.before(path))
        try:
            units = parse_module(workspace.after(path)).units
        except SyntaxError:
            return Score("unexplained", 0.0, f"{path} does not parse")
        for name, unit in units.items():
            if (path, name) not in answered:
                fresh = keys(unit.source) - mine
                strange += Counter({key: n for key, n in fresh.items() if not key.startswith(_WITHOUT)})
    shown = "; ".join(key[:60] for key in list(strange)[:3])
    return Score("unexplained", 0.0 if strange else 1.0, f"{total(strange)} without a reason {shown}".strip())


def _answered(workspace: Workspace) -> set[tuple[str, str]]:
    """(file, method) of every answer that says why or what."""
    try:
        answers = open_job(workspace.root).journal.answers()
    except UpgradeError:
        return set()
    return {(one.path, unit) for one in answers for unit in (one.unit, *one.units) if one.note or one.text}
