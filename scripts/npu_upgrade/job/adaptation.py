"""How far the adaptation of a model is, from its state and the evidence of its runs, and what comes next.

The state is ``.npu-upgrade/adapt/<model>/``, written by ``adapt.py analyze`` and ``adapt.py plan``; the
runs are those of the workspace's evidence whose model is this one, and whose code is the plan's.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.gate_commands import ASKED
from npu_upgrade.evidence.runs import Run
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import read_object, write_json
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.adapted_runs import Runs, runs_of
from npu_upgrade.job.carried import carried

TODO, DONE, FAILED, SKIPPED = "todo", "done", "failed", "skipped"
SKIPPABLE = ("features", "capacity", "accuracy")
# name, gate, load format of the run that proves it
RUNS = (
    ("serve dummy", "serve", "dummy"),
    ("serve real", "serve", "real"),
    ("features", "features", "real"),
    ("capacity", "capacity", "real"),
    ("accuracy", "accuracy", "real"),
)
# what is written at the end: the option that says where, and the file of the state that says it is done
_FILES = {"artifacts": ("--tree", "artifacts.json"), "deliver": ("--repo", "delivered.json")}
_NO_LM_EVAL = (
    "the serving Python has no lm_eval: --lm-eval own lets this project make one, --lm-eval PYTHON takes "
    "another; where neither can be, adapt.py next --skip accuracy --note WHY"
)


@dataclass(frozen=True)
class Stage:
    """One stage: ``state`` is todo, done, failed or skipped, ``said`` what is known, ``command`` runs it.

    ``failed`` counts the runs that did not pass since the last one that did.
    """

    name: str
    state: str
    said: str
    command: str
    failed: int = 0


@dataclass(frozen=True)
class Adaptation:
    """One model of a workspace. ``skipped``: stage -> why a person left it out; ``where``: the checkpoint."""

    folder: Path
    where: str
    analysis: dict[str, Any]
    plan: dict[str, Any]
    skipped: dict[str, str]
    runs: Runs

    @property
    def name(self) -> str:
        return self.folder.name


def plain_name(name: str) -> str:
    """What the folder of a model is called in the workspace."""
    return re.sub(r"[^\w.+-]+", "-", name).strip(".-") or "model"


def models(workspace: Path) -> list[str]:
    """The models with a state, the one that was worked on last at the end."""
    folders = [path for path in (workspace / WORKSPACE_DIR / "adapt").glob("*") if path.is_dir()]
    return [path.name for path in sorted(folders, key=_touched)]


def adaptation(workspace: Path, model: str) -> Adaptation:
    """What is known of a model; :class:`BadInput` when no such model was begun."""
    folder = workspace / WORKSPACE_DIR / "adapt" / model
    if model not in models(workspace):
        known = ", ".join(models(workspace)) or "none was begun"
        raise BadInput(
            f"no adaptation of {model!r} in {workspace}",
            expected=f"one of: {known}",
            try_="adapt.py analyze MODEL begins one",
        )
    plan, analysis = read_object(folder / "plan.json"), read_object(folder / "analysis.json")
    where = str(plan.get("model") or analysis.get("model") or model)
    runs = runs_of(workspace, where, str(plan.get("name") or model), plan)
    skipped = {name: str(why) for name, why in read_object(folder / "skipped.json").items()}
    return Adaptation(folder, where, analysis, plan, skipped, runs)


def skip(found: Adaptation, stage: str, why: str) -> None:
    """Leave a stage out; :func:`stages` says so, and deliver names it."""
    found.skipped[stage] = f"{why} ({utc_now()})"
    write_json(found.folder / "skipped.json", found.skipped)


def stages(one: Adaptation) -> list[Stage]:
    """All stages of a model, in order."""
    analysed = DONE if one.analysis else TODO
    found = [
        Stage("analyze", analysed, str(one.analysis.get("verdict", "")), _command("analyze", one.where)),
        Stage("plan", DONE if one.plan else TODO, _strategy(one.plan), _command("plan", one.where)),
    ]
    found += [_of_runs(one, name, gate, load) for name, gate, load in RUNS]
    written = read_object(one.folder / "artifacts.json").get("trees")
    delivery = list(written) if written and isinstance(written, dict) else _delivery(one.plan)
    for name, (option, file) in _FILES.items():
        if _there(name):
            words = ["adapt.py", name, one.where, option, next(iter(delivery), "DIR")]
            words += (
                [word for gap in _gaps(one, found) for word in ("--open", gap)] if name == "deliver" else []
            )
            said = str(read_object(one.folder / file).get("commit") or "")
            state = DONE if (one.folder / file).is_file() else TODO
            found.append(Stage(name, state, said, shlex.join(words)))
    return found


def _gaps(one: Adaptation, found: list[Stage]) -> list[str]:
    """The stages left out that leave a gap in the deliverables: without any run, or any measured value."""
    ran = {ran.record.gate for ran in one.runs.counted if ran.record.gate != "accuracy"}
    return [stage.name for stage in found if stage.state == SKIPPED and stage.name not in ran]


def next_stage(found: list[Stage]) -> Stage | None:
    """The first stage that is neither done nor left out; None when there is none."""
    return next((stage for stage in found if stage.state not in (DONE, SKIPPED)), None)


def gate_command(gate: str, load: str, where: str, before: Sequence[str]) -> str:
    """The command of a gate, with the options that hold from the command that ran ``before``."""
    options, passed_on = carried(before, gate)
    more = ["--load-format", "dummy"] if load == "dummy" else list(ASKED.get(gate, ()))
    tail = ["--", *passed_on] if passed_on else []
    return shlex.join(["adapt.py", gate, where, *more, *options, *tail])


def _of_runs(one: Adaptation, name: str, gate: str, load: str) -> Stage:
    """A stage that a run proves: the newest one of its gate and weights counts."""
    fits = one.runs.of_stage(gate, load)
    command = gate_command(gate, load, one.where, _before(one))
    if fits and fits[-1].record.verdict == "PASS":
        record = fits[-1].record
        return Stage(name, DONE, f"{record.label}: {record.summary}", command)
    if name in one.skipped:
        return Stage(name, SKIPPED, one.skipped[name], command)
    if not fits:
        return _untried(one, name, gate, load, command)
    passed = [number for number, ran in enumerate(fits, 1) if ran.record.verdict == "PASS"]
    said = _ended(fits[-1])
    if name in SKIPPABLE and fits[-1].record.verdict != "FAIL":
        said += f"; what cannot be had here: adapt.py next --skip {name} --note WHY"
    return Stage(name, FAILED, said, command, len(fits) - max(passed, default=0))


def _ended(run: Run) -> str:
    """How a run ended, with the first root cause."""
    cause = f"; root cause: {run.root.get('cause')}; {run.root.get('next')}" if run.root.get("cause") else ""
    return f"{run.label}: {run.verdict}: {run.record.summary}{cause}"


def _untried(one: Adaptation, name: str, gate: str, load: str, command: str) -> Stage:
    """A stage without a run that counts: why those that there are do not, and what it needs."""
    others = [(ran, why) for ran, why in one.runs.others if ran.is_of_stage(gate, load)]
    said = f"{len(others)} runs do not count; the newest: {others[-1][1]}" if others else ""
    if gate == "accuracy" and (served := one.runs.served()) and "lm-eval" not in served.versions:
        head, dashes, tail = command.partition(" -- ")
        command = f"{head} --lm-eval own{dashes}{tail}"
        said = "; ".join(filter(None, (said, _NO_LM_EVAL)))
    return Stage(name, TODO, said, command)


def _before(one: Adaptation) -> list[str]:
    """The command of the newest run that passed; before there is one, the interpreter of the plan."""
    passed = [ran.record.command for ran in one.runs.counted if ran.record.verdict == "PASS"]
    python = one.plan.get("python")
    return passed[-1] if passed else (["adapt.py", "plan", "--python", str(python)] if python else [])


def _strategy(plan: dict[str, Any]) -> str:
    strategy = plan.get("strategy")
    return str(strategy.get("name", "")) if isinstance(strategy, dict) else ""


def _delivery(plan: dict[str, Any]) -> list[str]:
    """The checkout that the plan delivers to, when it is there."""
    trees = plan.get("trees")
    delivery = trees.get("delivery") if isinstance(trees, dict) else None
    return [str(delivery["root"])] if isinstance(delivery, dict) and delivery.get("there") else []


def _command(name: str, where: str) -> str:
    return shlex.join(["adapt.py", name, where])


def _there(name: str) -> bool:
    """Whether the program has such a command."""
    return importlib.util.find_spec(f"npu_upgrade.commands.adapt.{name}") is not None


def _touched(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.glob("*.json")), default=0.0)
