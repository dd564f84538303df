"""The one next step of a job: a command to run, a question to answer, or a person to ask."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field

from npu_upgrade.evidence import chain
from npu_upgrade.job.advice import Action, Outlook, look, next_action
from npu_upgrade.job.ask import CONFLICT, ITEM, LOOK, PORT, Ask
from npu_upgrade.job.asks import accepted_hunks, asks, port_survey
from npu_upgrade.job.job import STEPS, Job, naming
from npu_upgrade.job.stops import Stop, find_stop

SKIPPABLE = (LOOK, PORT, "emulate")


@dataclass(frozen=True)
class Step:
    """``command`` is ready to run, but for FILE and WHY of an ``ask``; ``left`` counts by stage."""

    why: str
    command: str
    ask: Ask | None = None
    stop: Stop | None = None
    left: dict[str, int] = field(default_factory=dict)


def next_step(job: Job) -> Step:
    """The same answer as long as nothing happens in the job; changes nothing."""
    action, outlook = next_action(job), look(job)
    stop = find_stop(job, outlook.plan, chain.load(job.folder).records)
    if stop and not _running(job):
        return Step(f"a person is needed: {stop.why}", _status(job), stop=stop)
    if outlook.plan is None or outlook.broken or outlook.unfinished or _unsettled(job):
        return Step(action.why, action.command)
    return _merged(job, outlook, action)


def _merged(job: Job, outlook: Outlook, action: Action) -> Step:
    assert outlook.plan
    found = asks(job, outlook.plan, chain.load(job.folder).records)
    left = dict(Counter(ask.stage for ask in found))
    first = next((ask for ask in found if ask.stage in (CONFLICT, ITEM)), None)
    if first:
        return _asked(job, first, left)
    if not any((r.gate, r.label, r.verdict) == ("plan", "static", "PASS") for r in outlook.standing):
        return Step(action.why, action.command, left=left)
    if job.steps["deliver"].status == "done":  # the commit lists what was left open
        found = [ask for ask in found if ask.stage not in (LOOK, PORT)]
    port = _port(job)
    for stage in (LOOK, PORT):
        first = next((ask for ask in found if ask.stage == stage), None)
        if stage == PORT and port and first is None:
            return Step(port.why, port.command, left=left)
        if first:
            return _asked(job, first, left)
    if found:
        return _asked(job, found[0], left)
    return Step(action.why, action.command)


def _asked(job: Job, ask: Ask, left: dict[str, int]) -> Step:
    more = f"; {left[ask.stage] - 1} more of these" if left[ask.stage] > 1 else ""
    command = next((text for text in ask.commands(job) if "--with FILE" in text), ask.commands(job)[0])
    if ask.stage != CONFLICT:
        command = ask.commands(job)[0]
    return Step(f"{ask.what}{more}", command, ask, left=left)


def _port(job: Job) -> Action | None:
    """What is to be done about the GPU side's gains, None when nothing is."""
    if not job.repo or PORT in job.skipped or job.steps["deliver"].status == "done":
        return None
    survey, ascend = port_survey(job), job.inputs["ascend"]["spec"]
    sources = ["upgrade.py", "port", "--omni", f"dir:{job.repo}", "--ascend", ascend]
    sources += ["--workspace", str(job.workspace)]
    if not survey:
        return Action(shlex.join(sources), "what the GPU side gained is not listed yet")
    accepted = accepted_hunks(job)
    if accepted:
        command = shlex.join([*sources, "--apply", *accepted])
        return Action(command, f"{len(accepted)} hunks were accepted and are not taken yet")
    return None


def _running(job: Job) -> bool:
    return any(step.status == "running" and step.alive for step in job.steps.values())


def _unsettled(job: Job) -> bool:
    """Whether a step was broken off or still runs, or merge is still to come."""
    return any(job.steps[name].status == "running" for name in STEPS) or job.steps["merge"].status == "todo"


def _status(job: Job) -> str:
    return shlex.join(["upgrade.py", "status", *naming(job)])
