"""The stages of the adaptation of one model, and what comes next.

The state is ``.npu-upgrade/adapt/<model>/``, written by ``adapt.py analyze`` and ``adapt.py plan``; the runs
are those of the workspace's evidence that count for this model and the plan's code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis_file import AnalysisFile, load_analysis
from npu_upgrade.checkpoint.gate_commands import ASKED
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.redaction import MARK
from npu_upgrade.evidence.runs import Code, Run, Runs, mapping, runs_of, standing
from npu_upgrade.evidence.store import present_store
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.journal import Continued, Journal
from npu_upgrade.job.requirements import Judged, Known, gaps, judge
from npu_upgrade.job.stages import Stage, State, Stop, Walk, named_from_here, next_step

REQUIREMENTS = "requirements"
SKIPPABLE = ("features", "capacity", "accuracy", REQUIREMENTS)
ROUNDS = 5  # so many runs of a stage in a row that did not pass are for a person to look at
PACKAGES = {"vllm": "vllm", "ascend": "vllm_ascend"}
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
# the options that go from one gate's command to the next, and whether a value follows
_CARRIED = {
    "--python": True,
    "--omni": False,
    "--emulated": False,
    "--work-dir": True,
    "--port": True,
    "--env": True,
    "--expect-import": True,
    "--keep-pythonpath": False,
}
# options of vllm serve that a gate sets itself
_OWN = {"capacity": ("--max-model-len", "--max-num-seqs")}


@dataclass(frozen=True)
class Adaptation:
    """One model of a workspace. ``where``: the checkpoint; ``skipped``: stage -> why it was left out."""

    folder: Path
    where: str
    analysis: dict[str, Any]
    plan: dict[str, Any]
    skipped: dict[str, str]
    runs: Runs

    @property
    def workspace(self) -> Path:
        return self.folder.parents[2]

    @cached_property
    def analysed(self) -> AnalysisFile | None:
        """The analysis as this version writes it."""
        try:
            return load_analysis(self.folder / "analysis.json")
        except BadInput:
            return None

    @cached_property
    def judged(self) -> list[Judged]:
        """The requirements of the model, by its runs that count."""

        def ask(gate: str, *more: str) -> Command:
            return gate_command(gate, "real", self.where, _before(self)).adding(*more)

        return judge(Known(standing(self.runs.counted), self.analysed, self.where, ask))


def plain_name(name: str) -> str:
    """What the folder of a model is called in the workspace."""
    return re.sub(r"[^\w.+-]+", "-", name).strip(".-") or "model"


def models(workspace: Path) -> list[str]:
    """The models with a state, the one that was worked on last at the end."""
    folders = [path for path in (workspace / WORKSPACE_DIR / "adapt").glob("*") if path.is_dir()]
    newest = [max((file.stat().st_mtime for file in one.glob("*.json*")), default=0.0) for one in folders]
    return [path.name for _, path in sorted(zip(newest, folders, strict=True))]


def adaptation(workspace: Path, model: str | None = None) -> Adaptation:
    """What is known of a model (default: the last one); :class:`BadInput` when no such model was begun."""
    known = models(workspace)
    name = Path(model).name if model else known[-1] if known else ""
    if name not in known:
        raise BadInput(
            f"no adaptation of {name!r} in {workspace}" if model else f"no adaptation in {workspace}",
            expected=f"one of: {', '.join(known)}" if known else "a model that was begun",
            try_="adapt.py analyze MODEL begins one",
        )
    folder = workspace.absolute() / WORKSPACE_DIR / "adapt" / name
    if (folder / "skipped.json").exists():
        raise BadInput(
            f"{folder} was written by an older version: it holds skipped.json",
            expected="what was left out in its journal",
            try_=f"rm {folder / 'skipped.json'}, then adapt.py next --skip STAGE --note WHY for each of it",
        )
    plan, analysis = read_object(folder / "plan.json"), read_object(folder / "analysis.json")
    where = str(plan.get("model") or analysis.get("model") or name)
    runs = runs_of(present_store(workspace), where, planned_code(plan), str(plan.get("name") or name))
    return Adaptation(folder, where, analysis, plan, Journal(folder).skipped(), runs)


def planned_code(plan: dict[str, Any]) -> Code:
    """The code that ``plan`` names: its trees of vLLM and vllm-ascend, and its plugin."""
    folders, versions = {}, {}
    trees = mapping(plan.get("trees"))
    for name, package in PACKAGES.items():
        tree = mapping(trees.get(name))
        if tree.get("spec"):  # a release or a commit, whose code lies nowhere here
            versions |= {package: str(tree["version"])} if tree.get("version") else {}
        elif tree and (folder := Path(str(tree.get("root"))) / package).is_dir():
            folders[package] = folder
    plugin = mapping(trees.get("plugin"))
    if plugin and (folder := Path(str(plugin["root"]), str(plugin["package"]))).is_dir():
        folders[folder.name] = folder
    return Code(judged(folders)[0].files, folders, versions)


def walk(one: Adaptation) -> Walk:
    """The adaptation as next, status and report see it."""
    found = stages(one)
    return Walk(
        name=one.folder.name,
        folder=one.folder,
        root=one.folder,
        naming=[one.folder.name, *named_from_here(one.workspace)],
        stages=found,
        skippable=SKIPPABLE,
        end=(
            "every stage is done: publish the commit with adapt.py deliver --pr, or look at it with git show",
            None,
        ),
        stop=_stop(one, found),
        standing=[_brief(run) for run in one.runs.counted],
        other=[_brief(run) | {"why": why} for run, why in one.runs.others],
        facts={
            "checkpoint": one.where,
            "trees": one.plan.get("trees"),
            "requirements": [judged.as_json() for judged in one.judged],
        },
        heading=[f"{one.folder.name}  {one.where}", *_tree_lines(one.plan)],
    )


def _brief(run: Run) -> dict[str, Any]:
    names = ("gate", "label", "verdict", "tree", "started", "seconds", "summary")
    return {"id": run.id} | {name: getattr(run.record, name) for name in names}


def _tree_lines(plan: dict[str, Any]) -> list[str]:
    trees = mapping(plan.get("trees"))
    return [
        f"  {name:<9}{mapping(one).get('spec') or mapping(one).get('root')}" for name, one in trees.items()
    ]


def stages(one: Adaptation) -> list[Stage]:
    """All stages of a model, in order; their commands name the workspace."""
    strategy = str(mapping(one.plan.get("strategy")).get("name", ""))
    found = [
        Stage(
            "analyze",
            State.DONE if one.analysis else State.TODO,
            str(one.analysis.get("verdict", "")),
            adapt("analyze", one.where),
        ),
        Stage("plan", State.DONE if one.plan else State.TODO, strategy, adapt("plan", one.where)),
    ]
    found += [_of_runs(one, name, gate, load) for name, gate, load in RUNS]
    found.append(_requirements(one))
    written = mapping(read_object(one.folder / "artifacts.json").get("trees"))
    target = mapping(mapping(one.plan.get("trees")).get("delivery"))
    place = next(iter(written), str(target["root"]) if target.get("there") else "DIR")
    opened = [word for gap in gaps(one.judged) if not gap.refused for word in ("--open", gap.id)]
    for name, (option, file) in _FILES.items():
        state = State.DONE if (one.folder / file).is_file() else State.TODO
        commit = str(read_object(one.folder / file).get("commit") or "")
        command = adapt(name, one.where, option, place, *(opened if name == "deliver" else ()))
        found.append(Stage(name, state, commit, command))
    here = named_from_here(one.workspace)
    return [
        replace(stage, command=stage.command.adding(*here)) if stage.command else stage for stage in found
    ]


def _requirements(one: Adaptation) -> Stage:
    """What a delivery would have to name as open: the first that a gate can still show is next."""
    found = gaps(one.judged)
    named = ", ".join(gap.id for gap in found)
    if not found:
        return Stage(REQUIREMENTS, State.DONE, "all are proven")
    refused = next((gap for gap in found if gap.refused), None)
    if refused:
        return Stage(REQUIREMENTS, State.FAILED, refused.what, refused.command)
    if REQUIREMENTS in one.skipped:
        return Stage(REQUIREMENTS, State.SKIPPED, f"{one.skipped[REQUIREMENTS]}; open: {named}")
    left = [gap for gap in found if gap.command.name not in one.skipped]
    if not left:
        return Stage(REQUIREMENTS, State.SKIPPED, f"open: {named}")
    said = f"{left[0].what}; open: {named}; what cannot be had here is named in the commit: "
    said += f"adapt.py next --skip {REQUIREMENTS} --note WHY"
    return Stage(REQUIREMENTS, State.TODO, said, left[0].command)


def _of_runs(one: Adaptation, name: str, gate: str, load: str) -> Stage:
    """A stage that a run proves: the newest one of its gate and weights counts."""
    fits = [run for run in one.runs.counted if (run.gate, run.load) == (gate, load)]
    command = gate_command(gate, load, one.where, _before(one))
    newest = fits[-1] if fits else None
    if newest and newest.verdict == "PASS":
        said = f"{newest.label}: {newest.record.summary}"
        return Stage(name, State.DONE, said, command, "PASS", newest.record.started)
    if name in one.skipped:
        return Stage(name, State.SKIPPED, one.skipped[name], command)
    if newest is None:
        return _untried(one, name, gate, load, command)
    cause = (
        f"; root cause: {newest.root['cause']}; {newest.root.get('next')}" if newest.root.get("cause") else ""
    )
    said = f"{newest.label}: {newest.verdict}: {newest.record.summary}{cause}"
    if name in SKIPPABLE and newest.verdict != "FAIL":
        said += f"; what cannot be had here: adapt.py next --skip {name} --note WHY"
    passed = [number for number, run in enumerate(fits, 1) if run.verdict == "PASS"]
    failed = len(fits) - max(passed, default=0)
    return Stage(name, State.FAILED, said, command, newest.verdict, newest.record.started, failed)


def _untried(one: Adaptation, name: str, gate: str, load: str, command: Command) -> Stage:
    """A stage without a run that counts: why those that there are do not, and what it needs."""
    others = [why for run, why in one.runs.others if (run.gate, run.load) == (gate, load)]
    said = [f"{len(others)} runs do not count; the newest: {others[-1]}"] if others else []
    served = [run.map("versions") for run in one.runs.counted if (run.gate, run.load) == ("serve", "real")]
    installed = next((versions for versions in reversed(served) if versions), {})
    if gate == "accuracy" and installed and "lm-eval" not in installed:
        command = command.adding("--lm-eval", "own")
        said.append(_NO_LM_EVAL)
    return Stage(name, State.TODO, "; ".join(said), command)


def _stop(one: Adaptation, found: list[Stage]) -> Stop | None:
    """A stage that did not pass so often that a person is needed, since one last let it go on."""
    stage = next((stage for stage in found if stage.open), None)
    if stage is None or stage.failed < ROUNDS:
        return None
    key = f"rounds-{stage.name}-{stage.failed // ROUNDS}"
    if any(entry.id == key for entry in Journal(one.folder).of(Continued)):
        return None
    why = f"{stage.name} did not pass {stage.failed} times in a row: {stage.said}"
    return Stop("rounds", key, why, [stage.said])


def gate_command(gate: str, load: str, where: str, before: Sequence[str]) -> Command:
    """The command of a gate, with the options that hold from the command that ran ``before``."""
    own, passed_on = carried(before, gate)
    more = ["--load-format", "dummy"] if load == "dummy" else list(ASKED.get(gate, ()))
    return replace(adapt(gate, where, *more, *own), passed_on=tuple(passed_on))


def carried(command: Sequence[str], gate: str) -> tuple[list[str], list[str]]:
    """The options of ``command`` that hold for ``gate`` too, and what goes on to vllm serve.

    A secret that the evidence does not hold is left out.
    """
    at = list(command).index("--") if "--" in command else len(command)
    found = []
    for number, word in enumerate(command[:at]):
        name, equals, _ = word.partition("=")
        if name in _CARRIED:
            part = command[number : number + 2] if _CARRIED[name] and not equals else [word]
            found += [] if any(MARK in one for one in part) else part
    passed, skip = [], False
    for word in command[at + 1 :]:
        name, equals, _ = word.partition("=")
        if MARK in word:
            passed = passed if equals else passed[:-1]
        elif not skip and name not in _OWN.get(gate, ()):
            passed.append(word)
        skip = name in _OWN.get(gate, ()) and not equals
    return found, passed


def after_gate(workspace: Path, where: str, gate: str, load: str, command: Sequence[str]) -> Command:
    """What comes after ``gate`` passed for the model at ``where``, which ``command`` ran.

    It is the model's next stage where its adaptation was begun, else the next gate of the runbook.
    """
    name = plain_name(where.rstrip("/").rpartition("/")[2])
    place = named_from_here(workspace)
    if name in models(workspace):
        step = next_step(walk(adaptation(workspace, name)))
        if step.stop is None and step.command:
            return step.command
        return adapt("next", name, *place)
    later = [number for number, run in enumerate(RUNS, 1) if run[1:] == (gate, load)]
    if later and later[0] < len(RUNS):
        return gate_command(*RUNS[later[0]][1:], where, command).adding(*place)
    return adapt("artifacts", where, "--tree", "DIR", *place)


def _before(one: Adaptation) -> list[str]:
    """The command of the newest run that passed; before there is one, the interpreter of the plan."""
    passed = [run.record.command for run in one.runs.counted if run.verdict == "PASS"]
    python = one.plan.get("python")
    return passed[-1] if passed else (["adapt.py", "plan", "--python", str(python)] if python else [])
