"""Name the one thing to do next: a command to run, a question to answer, or a person to ask.

The first stage that is not done is next. In an upgrade it asks about conflicts, decisions on thin evidence,
hunks to port and findings, those of a method or feature together, with the texts of all sides, matching
incidents and the possible answers. In an adaptation, only runs of the planned code and the current
checkpoint count.
Asking twice gives the same. A command that ran on exactly this code is not named again: FAIL and BLOCKED
say what to change first, and what to run then. INCONCLUSIVE means that a person is needed: rounds without
progress, changes without effect, or another architecture; --continue goes on, with the reason. --run runs
the named gates one after the other, until there is a question, a stuck stage or something to deliver; it
starts no gate after five minutes: call it again then. Where several models are open, a call without a NAME
is about all of them; --run then runs two at the same time on a machine without an NPU. In an upgrade the
emulated run begins in the background beside plan and audit, and goes on until the files are edited.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.asking import asked, meanwhile
from npu_upgrade.commands.job_arguments import (
    add_job_arguments,
    discovered_alone,
    named_job,
    named_walk,
    several_open,
)
from npu_upgrade.ground.command import ADAPT, answered, program, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.journal import Continued, Skipped
from npu_upgrade.job.stages import MOST_SECONDS, Stage, Step, Walk, next_step
from npu_upgrade.job.stops import PAIR

EXAMPLES = """
--run
--workspace ~/work
--continue --note "talked to the maintainers: keep our sampler" """
_DEFECT = "DEFECT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    how = parser.add_mutually_exclusive_group()
    option(how, "--continue", "go on after a stop (for a person; with --note)", dest="go_on")
    what = "a gate or the requirements" if program() == ADAPT else "look, port or emulate"
    option(how, "--skip STAGE", f"leave out {what} (with --note); the delivery names it as left out")
    option(how, "--run", "run the next gates until there is something to decide", dest="go")
    option(parser, "--note TEXT", "why, for the record", default="")


def run(args: argparse.Namespace) -> Result:
    """PASS with the command or question; FAIL or BLOCKED as the stage that is stuck; INCONCLUSIVE when a
    person is needed; exit 2 without a job."""
    if (args.go_on or args.skip) and not args.note.strip():
        option = "--continue" if args.go_on else "--skip"
        raise BadInput(f"{option} without --note", expected="the reason, for the record", try_="--note TEXT")
    if told := discovered_alone(args):
        return told
    if (several := several_open(args)) and not args.go_on:
        for one in several if args.skip else ():
            _leave_out(named_walk(argparse.Namespace(**vars(args) | {"model": one})), args)
        from npu_upgrade.commands.adapt.together import all_models

        together = all_models(several, args.workspace, run=args.go)
        if args.skip:
            for_all = {"left_out": {args.skip: args.note}, "left_out_for": several}
            together.data |= for_all
            together.brief = for_all | (together.brief or {})
        return together
    walk = named_walk(args)
    if args.skip:
        _leave_out(walk, args)
        walk = named_walk(args)
    step = next_step(walk)
    if args.go_on:
        if step.stop is None:
            raise BadInput(
                "nothing has stopped",
                expected="a job that waits for a person",
                try_=upgrade("next").short,
            )
        walk.journal.add(Continued, id=step.stop.key, note=args.note)
        if step.stop.rule == PAIR:  # the word of a person, which is an answer too
            answered(
                upgrade("resolve", step.stop.key, "--accept", "--note", args.note, *walk.naming), whole=False
            )
        walk = named_walk(args)
        step = next_step(walk)
    ran: dict[str, dict[str, Any]] = {}
    again: set[str] = set()
    last = behind = ""
    begun = time.monotonic()
    while args.go and step.needs_nobody and time.monotonic() - begun < MOST_SECONDS:
        called = str(step.command)
        # what another run made stale runs once more; what would say the same again does not
        if called == last or called in again:
            break
        again |= {called} & ran.keys()
        stage = step.stage.name if step.stage else ""
        if stage in ("plan", "audit") and not behind:
            behind = _begun_behind(walk) or behind
        with _beside(step, args):
            ran.pop(called, None)  # in the order of the last runs
            ran[called] = _run(step)
        last, behind = called, behind if stage != "emulate" else ""
        walk = named_walk(args)
        step = next_step(walk)
    result = _result(walk, step, again=not ran)
    broken = [row for row in ran.values() if row["verdict"] == _DEFECT][-1:]
    if broken:
        what = f"{broken[0]['stage']} ended in a defect of this program: {broken[0]['summary']}; "
        what += "stop here, and report it with the traceback that it printed"
        result = Result(Verdict.FAIL, what, result.data, result.text, None, {})
    if ran:
        for row in [*ran.values()][:-1]:  # what it said besides is told by what came after it
            row.pop("said", None)
        result.data["ran"] = [*ran.values()]
        told = {"ran": result.data["ran"]} | ({"emulate": behind} if behind else {})
        result.data |= told
        result.brief = told | (result.brief or {})
        if not broken and step.needs_nobody and str(step.command) != last:
            result.next = upgrade("next", "--run", *walk.naming)
    return result


def _leave_out(walk: Walk, args: argparse.Namespace) -> None:
    if args.skip not in walk.skippable:
        raise BadInput(
            f"{args.skip} cannot be left out",
            expected=f"one of {', '.join(walk.skippable)}",
            try_=f"--skip {walk.skippable[0]} --note WHY",
        )
    walk.journal.add(Skipped, id=args.skip, note=args.note)


def _begun_behind(walk: Walk) -> str:
    """Begin the emulated run while plan and audit look, and their questions are answered; what it says."""
    command = meanwhile(walk, beside_gates=True) if program() != ADAPT else None
    return str(answered(command, whole=False)[1].get("summary", "")) if command else ""


def _beside(step: Step, args: argparse.Namespace) -> AbstractContextManager[None]:
    """What the delivery needs and a run of minutes leaves time for."""
    if program() == ADAPT or not step.stage or step.stage.name != "emulate":
        return nullcontext()
    from npu_upgrade.commands.gains import listing_beside  # an upgrade's, and dear

    return listing_beside(named_job(args))


def _run(step: Step) -> dict[str, Any]:
    """What a gate said, in short; where it did not pass, also how it was called and what it answered."""
    begun = time.monotonic()
    assert step.stage
    assert step.command
    say(f"{step.stage.name}: {step.command.short}")
    code, said = answered(step.command, whole=False)
    row = {
        "stage": step.stage.name,
        "verdict": said.get("verdict") or _DEFECT,
        "seconds": round(time.monotonic() - begun),
        "summary": said.get("summary") or said.get("error") or f"exit code {code} and no result",
    }
    row |= {"taken": said["taken"]} if said.get("taken") else {}  # what a port wrote into the files
    more = {key: value for key, value in said.items() if key not in (*row, "error", "next") and value}
    return row if code == 0 else row | {"command": str(step.command), "said": more}


def _result(walk: Walk, step: Step, *, again: bool) -> Result:
    data: dict[str, Any] = {"job": walk.name, "why": step.why, "left": walk.left}
    if left_out := walk.journal.skipped():
        data["left_out"] = left_out
    if step.stage:
        data["stage"] = step.stage.name
    if step.stop:
        go_on = str(upgrade("next", "--continue", "--note", "WHY", *walk.naming))
        data |= {"step": "stop", "stop": msgspec.to_builtins(step.stop), "a_person_goes_on_with": go_on}
        text = "\n".join([*step.stop.tried, f"a person goes on with: {go_on}"])
        return Result(step.verdict, step.why, data, text, step.command)
    if step.stage and step.stage.stuck:
        brief = {"step": "change", "then": str(step.stage.command or "")}
        data |= brief | {"stages": [stage.as_json() for stage in walk.stages]}
        return Result(step.verdict, step.why, data, stage_table(walk.stages), brief=brief)
    if not step.asks:
        data |= {"step": "run", "stages": [stage.as_json() for stage in walk.stages]}
        return Result(step.verdict, step.why, data, stage_table(walk.stages), step.command, brief={})
    found = asked(walk, step, again=again)
    data |= {"step": "answer"} | found.data
    return Result(step.verdict, found.summary, data, found.text, found.command, found.brief)


def stage_table(stages: Sequence[Stage]) -> str:
    """The stages for people."""
    rows = [(one.name, one.state, one.verdict, one.at, one.said) for one in stages]
    return table(("stage", "state", "verdict", "at", "said"), rows)
