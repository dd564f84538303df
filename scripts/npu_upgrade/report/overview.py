"""What a reviewer asks first of a job: what changed and why, what is proven, what is open and for whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from npu_upgrade.evidence.store import DRY_RUN, LABELS, NPU_REAL
from npu_upgrade.ground.tables import count
from npu_upgrade.job.ask import CONFLICT, FINDING, ITEM, LOOK, PORT
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
WORDS = {
    "conflict": "the merge did not decide, somebody has to",
    "flag": "the merge decided on thin evidence",
    "lag": "the versions before have it too",
    "note": "advice that does not count",
    "waived": "it stays as it is, for a reason that somebody gave",
    "pending": "not run yet",
    "absent": "this release does not have it",
    "inconclusive": "it could not be told",
}
"""Words of this tool that its verdicts use."""

ASKED = {
    CONFLICT: "conflict",
    ITEM: "blocking item",
    LOOK: "uncertain decision",
    PORT: "hunk of the GPU side",
    FINDING: "finding",
}
"""The kinds of questions in words."""

DRIVER = "who drives the job"
REVIEWER = "a reviewer"
MAINTAINER = "a maintainer"
HARDWARE = "who has an NPU"
PERSON = "a person"
ORDER = (PERSON, DRIVER, REVIEWER, MAINTAINER, HARDWARE)


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

    ``heading`` says whether ``changed`` is done or planned; ``by_hand`` is what somebody wrote, with the
    reason. ``subject`` is what the verdicts are of.
    """

    title: str
    heading: str
    why: str
    state: str
    verdict: str
    subject: str
    changed: Sequence[Change]
    by_hand: Sequence[str]
    proven: Sequence[Proof]
    open: Sequence[Open]

    @property
    def whom(self) -> str:
        """Who has to decide or to do something."""
        return ", ".join(dict.fromkeys(one.who for one in self.open))

    @property
    def words(self) -> dict[str, str]:
        """What the words of this tool mean that are used here."""
        said = " ".join(
            [*(one.how for one in self.changed), *(f"{one.verdict} {one.said}" for one in self.proven)]
        )
        return {
            word: means
            for word, means in WORDS.items()
            if re.search(rf"(?<!\b0 )\b{word}s?\b", said, re.IGNORECASE)
        }


def overview(
    walk: Walk,
    title: str,
    why: str,
    changed: Sequence[Change],
    more: Sequence[Open],
    broken: str | None = None,
    *,
    by_hand: Sequence[str] = (),
    subject: str = "these files",
    planned: bool = False,
) -> Overview:
    """The first screen of a walk; ``more`` is what only this kind of job leaves open.

    ``broken`` is a sentence that makes all others of no use.
    ``planned``: until the delivery, ``changed`` is what is to be done.
    """
    step = next_step(walk)
    delivered = next((one for one in walk.stages if one.name == "deliver" and one.state == State.DONE), None)
    if broken:
        state, verdict = broken, "FAIL"
    elif step.stop:
        state, verdict = f"A person is needed: {step.stop.why}", "FAIL"
    elif delivered:
        on_npu = any(one["label"] == NPU_REAL and one["verdict"] == "PASS" for one in walk.standing)
        state, verdict = f"Delivered: {delivered.said}", "PASS" if on_npu else "INCONCLUSIVE"
        state += "" if on_npu else "; nothing that counts ran on an NPU"
    else:
        state, verdict = f"Not delivered yet. Next: {_next(step)}", "INCONCLUSIVE"
    skipped = [Open(REVIEWER, f"{name} was left out: {why}") for name, why in walk.journal.skipped().items()]
    left = [*_stopped(step), *_stages(walk, step, delivered), *_untold(walk), *skipped, *more]
    left.sort(key=lambda one: ORDER.index(one.who))
    heading = f"What {'is to change' if planned and not delivered else 'changed'}, and why"
    return Overview(title, heading, why, state, verdict, subject, changed, by_hand, _proven(walk), left)


def _next(step: Step) -> str:
    """The next stage by its name, with what is known of it."""
    stage = step.stage
    if stage is None or stage.state != State.TODO or stage.asks:
        return step.why
    return f"{stage.name}: {stage.said}" if stage.said else stage.name


def _proven(walk: Walk) -> list[Proof]:
    """The newest verdict of each gate and label, weakest label first, and which labels have none."""
    known = _newest(walk)
    rows = [
        Proof(one["label"], one["gate"], one["verdict"], one["summary"], _short(one["id"])) for one in known
    ]
    emulated = next((stage for stage in walk.stages if stage.name == "emulate"), None)
    for label in (LABELS[0], DRY_RUN, NPU_REAL) if emulated else (NPU_REAL,):
        if not any(row.label == label for row in rows):
            skipped = label == DRY_RUN and emulated and emulated.state == State.SKIPPED
            said = f"left out: {emulated.said}" if skipped else "nothing ran that counts"
            rows.append(Proof(label, "", "", said))
    return sorted(rows, key=lambda row: LABELS.index(row.label))


def _newest(walk: Walk) -> list[dict[str, Any]]:
    newest = {(one["label"], one["gate"]): one for one in walk.standing}
    return [one for one in newest.values() if one["label"] in LABELS]


def _untold(walk: Walk) -> Iterator[Open]:
    """The gates that could not tell everything, and that nobody is asked to run again."""
    done = {stage.name.partition(" ")[0] for stage in walk.stages if not stage.open}
    for one in _newest(walk):
        if one["verdict"] == "INCONCLUSIVE" and one["gate"] in done:
            yield Open(REVIEWER, f"whether what {one['gate']} ({one['label']}) could not tell may stay so")


def _short(record: str) -> str:
    """A record of the evidence by the beginning of its hash; a run has a name."""
    return record[:12] if len(record) == 64 else record


def _stopped(step: Step) -> Iterator[Open]:
    if step.stop:
        yield Open(PERSON, step.stop.why, step.stop.tried, str(step.command or ""))


def _stages(walk: Walk, step: Step, delivered: Stage | None) -> Iterator[Open]:
    """What is not done: the questions, what failed, and the rest in one line."""
    later = []
    for stage in walk.stages:
        if stage.asks:
            yield Open(DRIVER, _asked(stage), [ask.what for ask in stage.asks], _command(stage, step))
        elif stage.open and stage.state != State.TODO:
            yield Open(DRIVER, f"{stage.name}: {stage.said}", (), _command(stage, step))
        elif stage.open:
            later.append(stage)
    if delivered and [stage.name for stage in later] == ["publish"]:
        yield Open(MAINTAINER, "the commit is not published", (), str(later[0].command or ""))
    elif later:
        command = _command(later[0], step)
        yield Open(DRIVER, f"not done yet: {', '.join(stage.name for stage in later)}", (), command)


def _asked(stage: Stage) -> str:
    kinds = {ask.stage: sum(one.stage == ask.stage for one in stage.asks) for ask in stage.asks}
    said = ", ".join(count(number, ASKED.get(kind, kind)) for kind, number in kinds.items())
    return f"{stage.name}: to answer: {said}"


def _command(stage: Stage, step: Step) -> str:
    """The command of a stage where it is what comes next."""
    command = step.command if stage == step.stage else None
    return str(command) if command and not step.stop else ""
