"""The one thing to do next: a command to run, one question to answer, or a person to ask.

The first stage that is not done is next. Of an upgrade, conflicts, decisions on thin evidence, hunks to port
and findings are handed out, those of a method or feature together, with the texts of all sides, the
incidents that fit, and how they are answered. Of an adaptation, only runs of the planned code and today's
checkpoint count.
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
from npu_upgrade.job.ask import Ask
from npu_upgrade.job.journal import Continued, Skipped
from npu_upgrade.job.notes import notes_for
from npu_upgrade.job.stages import Stage, Step, Walk, next_step

EXAMPLES = """
--workspace ~/work
--continue --note "talked to the maintainers: keep our sampler" """
MOST_CHARACTERS = 5500  # of what is asked together, as JSON; the files have the rest


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
    if not step.asks:
        data |= {"step": "run", "stages": [stage.as_json() for stage in walk.stages]}
        return Result(Verdict.PASS, step.why, data, stage_table(walk.stages), step.command)
    shown = _asked(step.asks, walk)
    data |= {"step": "answer", "ask": shown[0]} | ({"with_it": shown[1:]} if shown[1:] else {})
    text = "\n\n".join(_text(one) for one in shown)
    command = step.command
    if shown[1:]:
        data["answers_file"] = _template(step.asks[: len(shown)])
        text += f"\n\nanswers of all, in one file:\n{data['answers_file']}"
        command = upgrade("resolve", "--from", "FILE", *walk.naming)
    return Result(Verdict.PASS, step.why, data, text, command)


def _asked(asks: Sequence[Ask], walk: Walk) -> list[dict[str, Any]]:
    """The first question and as many of those that belong to it as there is room for."""
    found: list[dict[str, Any]] = []
    room = MOST_CHARACTERS
    for ask in asks:
        place = f"{ask.path} lines {ask.first}-{ask.last}" if ask.path else "plan.md"
        shown = ask.as_json()
        shown = {key: value for key, value in shown.items() if value or key in ("base", "ours", "theirs")}
        size = _size(shown)
        if found and size > room:
            break
        if size > room:
            most = room // (len(ask.texts) + 1)
            shown |= {key: _cut(text, most, place) for key, text in ask.texts.items() if key in shown}
            size = _size(shown)
        found.append(shown)
        room -= size
    return _with_context(found, asks[0], walk, room)


def _with_context(found: list[dict[str, Any]], first: Ask, walk: Walk, room: int) -> list[dict[str, Any]]:
    """The questions; the first has the incidents that fit, and the lines as they stand where they fit."""
    seen = " ".join(" ".join(map(str, one.values())) for one in found)
    notes = [note.as_json() for note in notes_for(first.unit, seen)]
    while notes and _size(notes) > room:
        notes.pop()
    if notes:
        found[0]["incidents"] = notes
        room -= _size(notes)
    stands = "" if first.conflict else first.text_in(walk.root)
    if stands and len(stands) < room:
        found[0]["as_it_stands"] = stands
    return found


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _template(asks: Sequence[Ask]) -> str:
    """A file of answers to fill in, each with the first that fits; a text follows the answer `with`."""
    rows = []
    for ask in asks:
        options = [how[1] if how[0] == "--take" else how[0][2:] for how in ask.how if how[0] != "--import"]
        rows.append(
            f"- id: {ask.id}\n  answer: {options[0]}  # {', '.join(dict.fromkeys(options))}\n  note: WHY"
        )
    return "\n".join(rows)


def stage_table(stages: Sequence[Stage]) -> str:
    """The stages for people."""
    rows = [(one.name, one.state, one.verdict, one.at, one.said) for one in stages]
    return table(("stage", "state", "verdict", "at", "said"), rows)


def _cut(value: str, most: int, place: str) -> str:
    if len(value) <= most:
        return value
    return f"{value[:most]}\n... cut, {len(value) - most} characters more: {place}"


def _text(shown: dict[str, Any]) -> str:
    """A question for people."""
    parts = [shown["what"]]
    parts += [f"--- {n}\n{shown[n]}" for n in ("base", "ours", "theirs", "text") if n in shown]
    parts += [f"incident {note['incident']}: {note['note']}" for note in shown.get("incidents", [])]
    answers = [f"resolve {shown['id']} {how}" for how in shown["answer"]]
    return "\n\n".join([*parts, "\n".join(["answers:", *answers])])
