"""The stages of the adaptation of one model, and what comes next.

The state is ``.npu-upgrade/adapt/<model>/``, written by ``adapt.py analyze`` and ``adapt.py plan``; the runs
are those of the workspace's evidence that count for this model and the plan's code.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from npu_upgrade.checkpoint.analysis_file import BY_AN_ADAPTER, AnalysisFile, load_analysis, longest_of
from npu_upgrade.checkpoint.gate_commands import asked
from npu_upgrade.evidence.judged import judged
from npu_upgrade.evidence.redaction import MARK
from npu_upgrade.evidence.runs import Code, Run, Runs, mapping, runs_of, standing
from npu_upgrade.evidence.store import DRY_RUN, NPU_REAL, present_store
from npu_upgrade.gates.plugin import undecided
from npu_upgrade.gates.serving.device import npu_count
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.paths import WORK_DIR, models_folder
from npu_upgrade.ground.tables import shortened
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.journal import Continued, Halted, Journal
from npu_upgrade.job.requirements import Gap, Judged, Known, gaps, judge, on_two_ranks
from npu_upgrade.job.stages import Stage, State, Stop, Walk, brief, named_from_here, next_step
from npu_upgrade.job.tree_form import delivery_problem

REQUIREMENTS = "requirements"
ROUNDS = 5  # so many runs of a stage in a row that did not pass are for a person to look at
PACKAGES = {"vllm": "vllm", "ascend": "vllm_ascend"}


class Gate(NamedTuple):
    """A stage that a run proves: its gate, the load format, and whether the NPU is an emulated one."""

    stage: str
    gate: str
    load: str = "real"
    emulated: bool = False

    def shown_by(self, run: Run) -> bool:
        asked = (self.gate, self.load, self.emulated)
        return (run.gate, run.load, run.label == DRY_RUN) == asked


RUNS = (
    Gate("serve dummy", "serve", "dummy"),
    Gate("serve real", "serve"),
    Gate("features", "features"),
    Gate("capacity", "capacity"),
    Gate("performance", "performance"),
    Gate("accuracy", "accuracy"),
)
EMULATED = (
    Gate("serve emulated", "serve", emulated=True),
    Gate("features emulated", "features", emulated=True),
)
SKIPPABLE = (*(one.stage for one in (*RUNS[2:], *EMULATED)), REQUIREMENTS)
# what is written at the end
ARTIFACTS, DELIVERED = "artifacts.json", "delivered.json"
_NO_LM_EVAL = (
    "the serving Python has no lm_eval: --lm-eval own lets this project make one, --lm-eval PYTHON takes "
    "another; where neither can be, adapt.py next --skip accuracy --note WHY"
)
# the options that go from one gate's command to that of another
_CARRIED = (
    *("--python", "--omni", "--work-dir", "--port", "--env", "--expect-import", "--keep-pythonpath"),
    *("--generations", "--quiet", "--budget", "--still", "--answer"),
)
# what says where a result goes, which weights, or looks for a cause: no option of the gate itself
_PASSING = (
    "--output",
    "--format",
    "--workspace",
    "--load-format",
    "--ladder",
    "--emulated",
)
# options of vllm serve that a gate sets itself
_OWN = {"capacity": ("--max-model-len", "--max-num-seqs")}
_SHOWN = 8  # decisions


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

    @property
    def target(self) -> Mapping[str, Any]:
        """The plan's repository that gets the commit."""
        return _target(self.plan)

    @cached_property
    def to_name(self) -> set[str]:
        """The gaps that a delivery has to name, of requirements and documents, less those left out."""
        documents = read_object(self.folder / ARTIFACTS).get("gaps") or []
        return {*documents, *(gap.id for gap in gaps(self.judged) if not gap.refused)} - left_out(self)

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
            command = self.command(Gate(gate, gate))
            return command.adding(*(word for word in more if word not in command.arguments))

        return judge(Known(self.runs.counted, self.analysed, self.where, ask))

    def command(self, gate: Gate) -> Command:
        """The command of a gate, with the options that it was run with before, else those of the others."""
        command = gate_command(gate, self.where, self._before(gate), longest_of(self.analysed))
        named = any(word.partition("=")[0] == "--work-dir" for word in command.arguments)
        return command if named or WORK_DIR.is_dir() else command.adding("--work-dir", str(self.workspace))

    def _before(self, gate: Gate) -> list[str]:
        """The newest command of this gate, else of one that passed, else of any, of code that is another now
        too; else the plan's Python, or this machine's.
        """
        ran = [run for run in self.runs.counted if (run.label == DRY_RUN) == gate.emulated]
        own = [run for run in ran if gate.shown_by(run)]
        halted = [each for each in Journal(self.folder).of(Halted) if each.id == gate.stage]
        if halted and not own:
            return halted[-1].command
        passed = [run for run in ran if run.verdict == "PASS"]
        passed = [
            run for run in passed if run.gate == "serve"
        ] or passed  # others set some options themselves
        if gate.emulated and not ran:
            served = next((run for run in reversed(self.runs.counted) if run.verdict == "PASS"), None)
            words = served.record.command if served else []
            return ["adapt.py", gate.gate, *(words[words.index("--") :] if "--" in words else [])]
        before = [run for run, _ in self.runs.others if (run.label == DRY_RUN) == gate.emulated]
        alike = [run for run in before if gate.shown_by(run)]
        if newest := next((one[-1] for one in (own, passed, ran, alike, before) if one), None):
            return newest.record.command
        # without an NPU and an installed vLLM, one for the CPU is made
        python = self.plan.get("python") or ("" if shutil.which("vllm") or npu_count() else "cpu")
        return ["adapt.py", "plan", "--python", str(python)] if python else []

    def tried(self, command: Command) -> bool:
        """Whether ``command`` was run for this: it would say the same again."""
        wanted = _words(command.argv)
        made = [run.record.command for run in self.runs.counted]
        made += [one.command for one in Journal(self.folder).of(Halted)]
        return any(_words(one) == wanted for one in made)


def _target(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(plan.get("trees")).get("delivery"))


def plain_name(name: str) -> str:
    """What the folder of a model is called in the workspace."""
    return re.sub(r"[^\w.+-]+", "-", name).strip(".-") or "model"


def name_of(model: str) -> str:
    """What the folder of the model at a path, or of an id, is called in the workspace."""
    return plain_name(model.rstrip("/").rpartition("/")[2])


def open_models(workspace: Path) -> list[str]:
    """Those that were begun and not delivered, the one that was worked on last at the end."""
    states = models_folder(workspace)
    return [one for one in models(workspace) if not (states / one / DELIVERED).exists()]


def models(workspace: Path) -> list[str]:
    """The models with a state, the one that was worked on last at the end."""
    folders = [path for path in models_folder(workspace).glob("*") if path.is_dir()]
    newest = [max((file.stat().st_mtime for file in one.glob("*.json*")), default=0.0) for one in folders]
    return [path.name for _, path in sorted(zip(newest, folders, strict=True))]


def adaptation(workspace: Path, model: str | None = None) -> Adaptation:
    """What is known of a model; without a name of the one that is open, or was delivered last.

    Raises :class:`BadInput` when no such model was begun, and when several are open.
    """
    known = models(workspace)
    begun = open_models(workspace)
    if not model and len(begun) > 1:
        raise BadInput(
            f"{len(begun)} models are being adapted in {workspace}",
            expected=f"the name of one: {', '.join(begun)}",
            try_=adapt("next", begun[-1]).short,
        )
    name = Path(model).name if model else [*known, *begun][-1] if known else ""
    if name not in known:
        raise BadInput(
            f"no adaptation of {name!r} in {workspace}" if model else f"no adaptation in {workspace}",
            expected=f"one of: {', '.join(known)}" if known else "a model that was begun",
            try_="adapt.py analyze MODEL begins one",
        )
    folder = models_folder(workspace) / name
    if (folder / "skipped.json").exists():
        raise BadInput(
            f"{folder} was written by an older version: it holds skipped.json",
            expected="what was left out in its journal",
            try_=f"rm {folder / 'skipped.json'}, then adapt.py next --skip STAGE --note WHY for each of it",
        )
    plan, analysis = read_object(folder / "plan.json"), read_object(folder / "analysis.json")
    where = str(plan.get("model") or analysis.get("model") or name)
    if not Path(where).is_absolute() and (workspace / where).is_dir():
        where = str((workspace / where).absolute())  # as the gates name it, from any folder
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
        standing=[brief(run.record, run.id) for run in one.runs.counted],
        other=[brief(run.record, run.id) | {"why": why} for run, why in one.runs.others],
        facts={
            "checkpoint": one.where,
            "trees": one.plan.get("trees"),
            "requirements": [judged.as_json() for judged in one.judged],
        },
        heading=[f"{one.folder.name}  {one.where}", *_tree_lines(one.plan)],
    )


def _tree_lines(plan: dict[str, Any]) -> list[str]:
    trees = mapping(plan.get("trees"))
    return [
        f"  {name:<9}{mapping(one).get('spec') or mapping(one).get('root')}" for name, one in trees.items()
    ]


def stages(one: Adaptation) -> list[Stage]:
    """All stages of a model, in order; their commands name the workspace."""
    found = [
        _analysed(one),
        _planned(one),
        *_adapter(one),
    ]
    # accuracy comes last: it takes longest, and what it asks for is often not to be had
    gates = (*RUNS[:-1], *(EMULATED if _may_emulate(one) else ()), RUNS[-1])
    found += [_of_runs(one, gate) for gate in gates]
    found += [_requirements(one), _artifacts(one), _delivery(one)]
    here = named_from_here(one.workspace)
    return [
        replace(stage, command=stage.command.adding(*here)) if stage.command else stage for stage in found
    ]


def _analysed(one: Adaptation) -> Stage:
    """What the files say; with an error that no adapter corrects nothing is planned on them."""
    command, file = adapt("analyze", one.where), None if one.plan else one.analysed
    if file and file.judge(ignored=BY_AN_ADAPTER) is Verdict.FAIL:
        errors = (found for found in file.findings if found.severity == "error")
        error = next(found for found in errors if found.kind not in BY_AN_ADAPTER)
        said = f"{error.kind}: {error.what}; correct the checkpoint, and analyze it again"
        return Stage("analyze", State.FAILED, said, command, "FAIL", stuck=True)
    state = State.DONE if one.analysis else State.TODO
    return Stage("analyze", state, str(one.analysis.get("verdict", "")), command)


def _artifacts(one: Adaptation) -> Stage:
    """The pages, entries and reports; to be written again where a run came after them."""
    state = read_object(one.folder / ARTIFACTS)
    known = state.get("runs") or []
    newer = [run for run in standing(one.runs.counted).values() if known and run.id not in known]
    command = adapt("artifacts", one.where, "--tree", _place(one))
    if newer and not (one.folder / DELIVERED).is_file():
        gates = ", ".join(dict.fromkeys(run.gate for run in newer))
        return Stage("artifacts", State.TODO, f"they were written before the newest runs: {gates}", command)
    return Stage("artifacts", State.DONE if state else State.TODO, command=command)


def _delivery(one: Adaptation) -> Stage:
    """The commit, with all models of the same repository whose artifacts are written and that have none."""
    delivered = read_object(one.folder / DELIVERED)
    together, waiting = [one], []
    # what others wait for is of no use before this one is ready itself
    for name in models(one.workspace) if not delivered and (one.folder / ARTIFACTS).exists() else ():
        other = models_folder(one.workspace) / name
        # what a plan says of its state besides may be another by the time that the next one is made
        same_repository = _target(read_object(other / "plan.json")).get("root") == one.target.get("root")
        if other == one.folder or (other / DELIVERED).exists() or not same_repository:
            continue
        if (other / ARTIFACTS).exists():
            together.append(adaptation(one.workspace, name))
        else:
            waiting.append(name)
    together.sort(key=lambda each: each.folder.name)  # the same command, whichever of them is asked for it
    opened = sorted({gap for each in together for gap in each.to_name})
    command = adapt("deliver", *(each.where for each in together), "--repo", _place(one))
    command = command.adding(*(word for gap in opened for word in ("--open", gap)))
    said = ""
    if waiting:
        said = f"not ready yet: {', '.join(waiting)}; one commit for all, or without: {command.short}"
        command = adapt("next", waiting[0], "--run")
    state = State.DONE if (one.folder / DELIVERED).is_file() else State.TODO
    if commit := str(delivered.get("commit") or ""):
        said = f"commit {commit[:12]} on {delivered.get('branch')}"
    return Stage("deliver", state, said, command)


def _place(one: Adaptation) -> str:
    """The tree that gets the commit: where artifacts were written, else the plan's."""
    written = mapping(read_object(one.folder / ARTIFACTS).get("trees"))
    return next(iter(written), str(one.target["root"]) if one.target.get("there") else "DIR")


def left_out(one: Adaptation) -> set[str]:
    """The gaps that a skip with its note has named already: those of the gate, or all."""
    return set(notes_of(one.skipped, gaps(one.judged)))


def notes_of(skipped: Mapping[str, str], found: Iterable[Gap]) -> dict[str, str]:
    """Gap -> why a person left it out, by its own name, by its gate's, or with all of them."""
    names = {gap.id: (gap.id, gap.command.name, REQUIREMENTS) for gap in found if not gap.refused}
    notes = {id_: next((skipped[one] for one in known if one in skipped), "") for id_, known in names.items()}
    return {id_: note for id_, note in notes.items() if note}


def _planned(one: Adaptation) -> Stage:
    """The plan; while no repository can take the commit, it is to be made again with one that can."""
    strategy = str(mapping(one.plan.get("strategy")).get("name", ""))
    command = adapt("plan", one.where)
    if one.target and (problem := delivery_problem(Path(str(one.target["root"])), one.folder.name)):
        said = f"no repository can take the commit: {problem.what}; {problem.try_}"
        return Stage("plan", State.TODO, said, command.adding(*_sources(one), "--delivery", "DIR"))
    return Stage("plan", State.DONE if one.plan else State.TODO, strategy, command)


def _sources(one: Adaptation) -> list[str]:
    """The options of the plan that name its sources."""
    trees = mapping(one.plan.get("trees"))
    known = {name: mapping(trees.get(name)) for name in PACKAGES}
    places = {
        name: tree.get("spec") or (tree.get("there") and tree.get("root")) for name, tree in known.items()
    }
    found = [word for name, place in places.items() if place for word in (f"--{name}", str(place))]
    return found + (["--python", str(one.plan["python"])] if one.plan.get("python") else [])


def _adapter(one: Adaptation) -> list[Stage]:
    """The code that the model needs: written as a scaffold, and every decision in it taken."""
    trees = mapping(one.plan.get("trees"))
    plugin = mapping(trees.get("plugin"))
    is_new = mapping(one.plan.get("strategy")).get("name") == "native adapter"
    written = [Path(str(path)) for path in one.plan.get("scaffold") or []]
    if plugin:
        written = sorted(Path(str(plugin["root"]), str(plugin["package"])).rglob("*.py"))
    if not written and not is_new:
        return []
    if not written:
        root = Path(str(mapping(trees.get("delivery")).get("root") or one.workspace))
        command = adapt("plan", one.where, *_sources(one), "--delivery", str(root))
        questions = mapping(one.plan.get("likeness")).get("questions") or []
        if questions:
            asked = [f"{each['id']} ({each['ask']}): {' | '.join(each['options'])}" for each in questions]
            said = f"{len(asked)} questions are open: {'; '.join(asked[:_SHOWN])}"
            return [Stage("adapter", State.TODO, said, command.adding("--decide", "ID=ANSWER"), stuck=True)]
        command = command.adding("--scaffold", str(root / one.folder.name.lower()))
        return [Stage("adapter", State.TODO, "its code is not begun", command)]
    left = [place for path in written for place in undecided(path)]
    if not left:
        return [Stage("adapter", State.DONE, ", ".join(str(path) for path in written))]
    shown = shortened(left, _SHOWN, "; ")
    said = f"{len(left)} decisions are open, each to be taken in the file: {shown}"
    return [Stage("adapter", State.TODO, said, adapt("next", one.folder.name), stuck=True)]


def _requirements(one: Adaptation) -> Stage:
    """What a delivery would have to name as open: the first that a gate can still show is next."""
    found = gaps(one.judged)
    named = ", ".join(gap.id for gap in found)
    if not found:
        return Stage(REQUIREMENTS, State.DONE, "all are proven")
    refused = next((gap for gap in found if gap.refused), None)
    if refused:
        return Stage(REQUIREMENTS, State.FAILED, refused.what, refused.command, "FAIL", stuck=True)
    if REQUIREMENTS in one.skipped:
        return Stage(REQUIREMENTS, State.SKIPPED, f"{one.skipped[REQUIREMENTS]}; open: {named}")
    settled = left_out(one)
    left = [
        gap
        for gap in found
        if gap.id not in settled
        and not {"DIR", "FILE"}.intersection(gap.command.arguments)
        and not gap.elsewhere
        and not one.tried(gap.command)
        and not _closes_nothing(one, gap.command.name)
    ]
    if not left:
        return Stage(REQUIREMENTS, State.SKIPPED, f"nothing here can show more; open: {named}")
    said = f"{left[0].what}; open: {named}; what cannot be had here is named in the commit: "
    said += f"adapt.py next {one.folder.name} --skip {REQUIREMENTS} --note WHY"
    return Stage(REQUIREMENTS, State.TODO, said, left[0].command)


def _of_runs(one: Adaptation, gate: Gate) -> Stage:
    """A stage that a run proves: the newest one of its gate, weights and kind of device counts."""
    fits = [run for run in one.runs.counted if gate.shown_by(run)]
    command = one.command(gate)
    if gate.emulated and gate.gate == "features" and one.analysed and one.analysed.properties.experts > 1:
        command = on_two_ranks(command)
    newest, name = fits[-1] if fits else None, gate.stage
    if newest and newest.verdict == "PASS":
        said = f"{newest.label}: {newest.record.summary}"
        return Stage(name, State.DONE, said, command, "PASS", newest.record.started)
    if name in one.skipped:
        return Stage(name, State.SKIPPED, one.skipped[name], command)
    skip = f"; what cannot be had here: adapt.py next {one.folder.name} --skip '{name}' --note WHY"
    skip = skip if name in SKIPPABLE else ""
    if newest is None:
        if not gate.emulated and _closes_nothing(one, gate.gate):
            judged = "; the emulated run judges them" if gate.gate == "features" else ""
            return Stage(name, State.SKIPPED, f"without an NPU it would close nothing{judged}", command)
        command, said = _untried(one, gate, command)
        if (halted := _halted(one, gate, command)) and halted.verdict in ("BLOCKED", "FAIL"):
            command = command.adding(*halted.adding)
            return Stage(name, State.FAILED, f"{halted.why}{skip}", command, halted.verdict, stuck=True)
        if halted:
            said = f"{halted.verdict}: {halted.why}; nothing had to be started"
            return Stage(name, State.DONE, said, command, halted.verdict, halted.at)
        return Stage(name, State.TODO, said, command)
    passed = [number for number, run in enumerate(fits, 1) if run.verdict == "PASS"]
    failed = len(fits) - max(passed, default=0)
    found = Stage(name, State.FAILED, "", command, newest.verdict, newest.record.started, failed)
    said = f"{newest.label}: {newest.verdict}: {newest.record.summary}{_cause(newest)}"
    if not one.tried(command) or "interrupted" in newest.record.summary:
        return replace(found, said=said + (skip if newest.verdict != "FAIL" else ""))
    if name in SKIPPABLE and (newest.verdict == "INCONCLUSIVE" or newest.names_unsupported):
        said += "; it would say the same again, and the requirements name what is open"
        return replace(found, state=State.DONE, said=said)
    said += "; it would say the same again: change what it names, in the code, the options or around it"
    return replace(found, said=said + (skip if newest.verdict != "FAIL" else ""), stuck=True)


def _may_emulate(one: Adaptation) -> bool:
    """Whether real weights were served, on no NPU, for a vllm-ascend that can be emulated."""
    served = [run for run in one.runs.counted if RUNS[1].shown_by(run) and run.verdict == "PASS"]
    ascend = mapping(mapping(one.plan.get("trees")).get("ascend"))
    return bool(served) and served[-1].label != NPU_REAL and bool(ascend.get("spec") or ascend.get("there"))


def _closes_nothing(one: Adaptation, gate: str) -> bool:
    """Whether a gate would leave its gap open where the real weights were served on no NPU.

    That is the speed, and the features where an emulated NPU judges them: readers are told these alone.
    """
    if gate == "features":
        return (
            _may_emulate(one) and not {each.stage for each in EMULATED} & one.skipped.keys() and _emulates()
        )
    served = [run.label for run in one.runs.counted if RUNS[1].shown_by(run)]
    return gate == "performance" and bool(served) and served[-1] != NPU_REAL


def _emulates() -> bool:
    """Whether this machine has what the emulator needs."""
    from npu_upgrade.gates.emulation.environment import check_machine  # dear to import, and seldom needed

    try:
        check_machine()
    except Blocked:
        return False
    return True


def _cause(run: Run) -> str:
    root = run.root
    return f"; root cause: {root['cause']}; {root.get('next')}" if root.get("cause") else ""


def _halted(one: Adaptation, gate: Gate, command: Command) -> Halted | None:
    """The last time that ``command`` started nothing; None where something was started after it."""
    wanted = _words(command.argv)
    since = max((run.record.started for run, _ in one.runs.others if gate.shown_by(run)), default="")
    halted = [each for each in Journal(one.folder).of(Halted) if each.id == gate.stage and each.at > since]
    return halted[-1] if halted and _words(halted[-1].command) == wanted else None


def note_halt(
    workspace: Path,
    model: str,
    gate: Gate,
    command: list[str],
    why: str,
    verdict: str = "BLOCKED",
    adding: Sequence[str] = (),
) -> None:
    """Note that a gate of a model that is being adapted started nothing, so that it is not named again."""
    name = name_of(model)
    if name in models(workspace):
        Journal(models_folder(workspace) / name).add(
            Halted, id=gate.stage, command=command, why=why, verdict=verdict, adding=list(adding)
        )


def _untried(one: Adaptation, gate: Gate, command: Command) -> tuple[Command, str]:
    """What a stage without a run that counts needs, and why those that there are do not count."""
    others = [why for run, why in one.runs.others if gate.shown_by(run)]
    said = [f"{len(others)} runs do not count; the newest: {others[-1]}"] if others else []
    served = [run.map("versions") for run in one.runs.counted if RUNS[1].shown_by(run)]
    installed = next((versions for versions in reversed(served) if versions), {})
    if gate.gate == "accuracy" and installed and "lm-eval" not in installed:
        command = command if "--lm-eval" in command.arguments else command.adding("--lm-eval", "own")
        said.append(_NO_LM_EVAL)
    return command, "; ".join(said)


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


def gate_command(gate: Gate, where: str, before: Sequence[str], max_len: int = 0) -> Command:
    """The command of a gate, with the options that hold from the command that ran ``before``, for a model
    whose context has ``max_len`` tokens (0: unknown).
    """
    own, passed_on = carried(before, gate.gate, where)
    more = ["--load-format", "dummy"] if gate.load == "dummy" else []
    if before[1:2] != [gate.gate]:
        more += asked(gate.gate, max_len)
    more += ["--emulated"] if gate.emulated else []
    return replace(adapt(gate.gate, where, *more, *own), passed_on=tuple(passed_on))


def carried(command: Sequence[str], gate: str, where: str = "") -> tuple[list[str], list[str]]:
    """The options of ``command`` that hold for ``gate`` too, and what goes on to vllm serve.

    All hold for the same gate. A secret that the evidence does not hold is left out.
    """
    at = list(command).index("--") if "--" in command else len(command)
    same, found = command[1:2] == [gate], []
    for part in _options(command[2:at], where):
        name = part[0].partition("=")[0]
        if name not in _PASSING and (same or name in _CARRIED) and not any(MARK in word for word in part):
            found += part
    passed = []
    for part in _options(command[at + 1 :]):
        secret = [MARK in word for word in part]
        if part[0].partition("=")[0] not in _OWN.get(gate, ()) and not any(secret):
            passed += part
    return found, passed


def _options(words: Sequence[str], where: str = "") -> list[list[str]]:
    """Each option with its values; the model itself is none."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-"):
            found.append([word])
        elif found and word != where:
            found[-1].append(word)
    return found


def _words(command: Sequence[str]) -> tuple[str, ...]:
    """What a command asks for, whatever the order of its options, and wherever its result goes."""
    at = list(command).index("--") if "--" in command else len(command)
    left = set(_PASSING) - {"--emulated"}
    own = [part for part in _options(command[2:at]) if part[0].partition("=")[0] not in left]
    weights = [word for word in ("dummy",) if word in command[2:at]]
    asked = sorted(" ".join(part) for part in [*own, *_options(command[at + 1 :])])
    return (*command[1:2], *weights, *asked)


def after_gate(workspace: Path, where: str, gate: Gate, command: Sequence[str]) -> Command:
    """What comes after ``gate`` passed for the model at ``where``, which ``command`` ran.

    Where the model's adaptation was begun it is its next stage, and those after it where they need nobody;
    else the next gate of the runbook.
    """
    name = name_of(where)
    place = named_from_here(workspace)
    if name in models(workspace):
        return going_on(adaptation(workspace, name))
    later = [number for number, one in enumerate(RUNS, 1) if one == gate]
    if later and later[0] < len(RUNS):
        return gate_command(RUNS[later[0]], where, command).adding(*place)
    return adapt("artifacts", where, "--tree", "DIR", *place)


def going_on(one: Adaptation) -> Command:
    """What goes on with a model: all gates up to the next question, or the one command that comes now."""
    step = next_step(walk(one))
    asking = adapt("next", one.folder.name, *named_from_here(one.workspace))
    if step.needs_nobody:
        return asking.adding("--run")
    return step.command if step.stop is None and step.command else asking


def gate_of(gate: str, load: str, *, emulated: bool = False) -> Gate:
    """The stage that a run of ``gate`` with weights of ``load`` is for."""
    asked = (gate, load, emulated)
    return next((one for one in (*RUNS, *EMULATED) if one[1:] == asked), Gate(gate, *asked))
