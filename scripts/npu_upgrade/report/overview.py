"""What a reviewer asks first of a job: what changed and why, what is proven, what is open and for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.evidence.store import DRY_RUN, LABELS, NPU_REAL
from npu_upgrade.job.stages import Stage, State, Step, Walk, next_step

MEANS = dict(
    zip(
        LABELS,
        (
            "the sources fit each other; nothing ran",
            "the real Python ran on an emulated NPU; no kernel did",
            "a server starts and answers, without weights or an NPU",
            "the weights load and answer, without an NPU",
            "it runs on the device; weights are not looked at",
            "it works on the device: this alone signs off",
        ),
        strict=True,
    )
)
DRIVER = "who drives the job"
REVIEWER = "a reviewer"
MAINTAINER = "a maintainer"
HARDWARE = "who has an NPU"


@dataclass(frozen=True)
class Change:
    """A file or a part of the work, how large its change is, and what became of it."""

    what: str
    size: str
    how: str


@dataclass(frozen=True)
class Proof:
    """A verdict that counts for exactly the present files; without a ``verdict`` nothing has that label."""

    label: str
    gate: str
    verdict: str
    said: str
    record: str = ""

    @property
    def means(self) -> str:
        return MEANS.get(self.label, "")


@dataclass(frozen=True)
class Open:
    """Something that ``who`` has to decide or to do. ``command`` does it, ``items`` are its parts."""

    who: str
    what: str
    items: Sequence[str] = ()
    command: str = ""


@dataclass(frozen=True)
class Overview:
    """The first screen. ``state`` says in a sentence where the job is; ``verdict`` colours it.

    ``heading`` says whether ``changed`` is done or planned.
    """

    title: str
    heading: str
    why: str
    state: str
    verdict: str
    changed: Sequence[Change]
    proven: Sequence[Proof]
    open: Sequence[Open]


def overview(
    walk: Walk,
    title: str,
    why: str,
    changed: Sequence[Change],
    more: Sequence[Open],
    broken: str | None = None,
    *,
    planned: bool = False,
) -> Overview:
    """The first screen of a walk; ``more`` is what only this kind of job leaves open.

    ``planned``: until the delivery, ``changed`` is what is to be done.
    """
    step = next_step(walk)
    delivered = next((one for one in walk.stages if one.name == "deliver" and one.state == State.DONE), None)
    if broken:
        state, verdict = f"The evidence cannot be trusted: {broken}", "FAIL"
    elif step.stop:
        state, verdict = f"A person is needed: {step.stop.why}", "FAIL"
    elif delivered:
        on_npu = any(one["label"] == NPU_REAL and one["verdict"] == "PASS" for one in walk.standing)
        state, verdict = f"Delivered: {delivered.said}", "PASS" if on_npu else "INCONCLUSIVE"
        state += "" if on_npu else "; nothing that counts ran on an NPU"
    else:
        state, verdict = f"Not delivered yet. Next: {step.why}", "INCONCLUSIVE"
    skipped = [Open(REVIEWER, f"{name} was left out: {why}") for name, why in walk.journal.skipped().items()]
    left = [*_stopped(step), *_stages(walk, step), *skipped, *more]
    heading = f"What {'is to change' if planned and not delivered else 'changed'}, and why"
    return Overview(title, heading, why, state, verdict, changed, _proven(walk), left)


def _proven(walk: Walk) -> list[Proof]:
    """The newest verdict of each gate and label, weakest label first, and which labels have none."""
    newest = {(one["label"], one["gate"]): one for one in walk.standing}
    known = [one for one in newest.values() if one["label"] in LABELS]
    rows = [
        Proof(one["label"], one["gate"], one["verdict"], one["summary"], _short(one["id"])) for one in known
    ]
    emulated = next((stage for stage in walk.stages if stage.name == "emulate"), None)
    for label in (LABELS[0], DRY_RUN, NPU_REAL) if emulated else (NPU_REAL,):
        if not any(row.label == label for row in rows):
            skipped = label == DRY_RUN and emulated and emulated.state == State.SKIPPED
            said = f"left out: {emulated.said}" if skipped else "no verdict counts"
            rows.append(Proof(label, "", "", said))
    return sorted(rows, key=lambda row: LABELS.index(row.label))


def _short(record: str) -> str:
    """A record of the evidence by the beginning of its hash; a run has a name."""
    return record[:12] if len(record) == 64 else record


def _stopped(step: Step) -> Iterator[Open]:
    if step.stop:
        yield Open("a person", step.stop.why, step.stop.tried, str(step.command or ""))


def _stages(walk: Walk, step: Step) -> Iterator[Open]:
    """What is not done: the questions, what failed, and the rest in one line."""
    later = []
    for stage in walk.stages:
        if stage.asks:
            yield Open(DRIVER, _asked(stage), [ask.what for ask in stage.asks], _command(stage, step))
        elif stage.open and stage.state != State.TODO:
            yield Open(DRIVER, f"{stage.name}: {stage.said}", (), _command(stage, step))
        elif stage.open:
            later.append(stage)
    if [stage.name for stage in later] == ["publish"]:
        yield Open(MAINTAINER, "the commit is not published", (), str(later[0].command or ""))
    elif later:
        command = _command(later[0], step)
        yield Open(DRIVER, f"not done yet: {', '.join(stage.name for stage in later)}", (), command)


def _asked(stage: Stage) -> str:
    kinds = {ask.stage: sum(one.stage == ask.stage for one in stage.asks) for ask in stage.asks}
    said = ", ".join(f"{number} of kind {kind}" for kind, number in kinds.items())
    return f"{stage.name}: questions to answer ({said})"


def _command(stage: Stage, step: Step) -> str:
    """The command of a stage where it is what comes next."""
    command = step.command if stage == step.stage else None
    return str(command) if command and not step.stop else ""
