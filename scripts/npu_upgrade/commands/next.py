"""The one thing to do next: a command to run, one question to answer, or a person to ask.

The first stage that is not done is next. Of an upgrade, conflicts, decisions on thin evidence, hunks to port
and findings are handed out one at a time, with the texts of all sides, the incidents known of that method,
and the commands that answer it. Of an adaptation, only runs of the planned code and today's checkpoint count.
Asking twice gives the same. INCONCLUSIVE means that a person is needed: rounds without progress, changes
without effect, or another architecture; --continue goes on, with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from npu_upgrade.commands.job_arguments import add_job_arguments, named_walk
from npu_upgrade.ground.command import ADAPT, program, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.journal import Continued, Skipped
from npu_upgrade.job.stages import Stage, Step, Walk, next_step

EXAMPLES = """
--workspace ~/work
--continue --note "talked to the maintainers: keep our sampler" """
MOST_CHARACTERS = 5000  # of one text; the file has the rest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--continue", action="store_true", dest="go_on", help="go on after a stop (for a person; with --note)"
    )
    what = "features, capacity, accuracy or requirements" if program() == ADAPT else "look, port or emulate"
    how.add_argument(
        "--skip", metavar="STAGE", help=f"leave out {what} (with --note); the delivery names it as left out"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the record")


def run(args: argparse.Namespace) -> Result:
    """PASS with the command or question; INCONCLUSIVE when a person is needed; exit 2 without a job."""
    if (args.go_on or args.skip) and not args.note.strip():
        option = "--continue" if args.go_on else "--skip"
        raise BadInput(f"{option} without --note", expected="the reason, for the record", try_="--note TEXT")
    walk = named_walk(args)
    if args.skip:
        if args.skip not in walk.skippable:
            raise BadInput(
                f"{args.skip} cannot be left out",
                expected=f"one of {', '.join(walk.skippable)}",
                try_=f"--skip {walk.skippable[0]} --note WHY",
            )
        walk.journal.add(Skipped, id=args.skip, note=args.note)
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
        walk = named_walk(args)
        step = next_step(walk)
    return _result(walk, step)


def _result(walk: Walk, step: Step) -> Result:
    data: dict[str, Any] = {"job": walk.name, "why": step.why, "left": walk.left}
    if left_out := walk.journal.skipped():
        data["left_out"] = left_out
    if step.stage:
        data["stage"] = step.stage.name
    if step.stop:
        go_on = str(upgrade("next", "--continue", "--note", "WHY", *walk.naming))
        data |= {"step": "stop", "stop": msgspec.to_builtins(step.stop), "a_person_goes_on_with": go_on}
        text = "\n".join([*step.stop.tried, f"a person goes on with: {go_on}"])
        return Result(Verdict.INCONCLUSIVE, step.why, data, text, step.command)
    if step.ask is None:
        data |= {"step": "run", "stages": [stage.as_json() for stage in walk.stages]}
        return Result(Verdict.PASS, step.why, data, stage_table(walk.stages), step.command)
    place = f"{step.ask.path} lines {step.ask.first}-{step.ask.last}" if step.ask.path else "plan.md"
    shown = step.ask.as_json(walk.naming)
    shown["as_it_stands"] = "" if step.ask.conflict else step.ask.text_in(walk.root)
    shown = {key: _cut(value, place) for key, value in shown.items()}
    shown = {key: value for key, value in shown.items() if value or key in ("base", "ours", "theirs")}
    text = _text(step.ask.what, shown)
    return Result(Verdict.PASS, step.why, data | {"step": "answer", "ask": shown}, text, step.command)


def stage_table(stages: Sequence[Stage]) -> str:
    """The stages for people."""
    rows = [(one.name, one.state, one.verdict, one.at, one.said) for one in stages]
    return table(("stage", "state", "verdict", "at", "said"), rows)


def _cut(value: Any, place: str) -> Any:
    if not isinstance(value, str) or len(value) <= MOST_CHARACTERS:
        return value
    return f"{value[:MOST_CHARACTERS]}\n... cut, {len(value) - MOST_CHARACTERS} characters more: {place}"


def _text(what: str, shown: dict[str, Any]) -> str:
    """The question for people."""
    parts = [what, *(f"--- {n}\n{shown[n]}" for n in ("base", "ours", "theirs", "text") if n in shown)]
    parts += [f"incident {note['incident']}: {note['note']}" for note in shown.get("incidents", [])]
    return "\n\n".join([*parts, "\n".join(["answers:", *shown["answer"]])])
