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
import difflib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from npu_upgrade.commands.job_arguments import add_job_arguments, discovered_alone, named_walk
from npu_upgrade.ground.command import ADAPT, program, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.ask import FINDING, Ask
from npu_upgrade.job.journal import Continued, Skipped
from npu_upgrade.job.notes import Note, notes_for
from npu_upgrade.job.stages import Stage, Step, Walk, next_step

EXAMPLES = """
--workspace ~/work
--continue --note "talked to the maintainers: keep our sampler" """
MOST_CHARACTERS = 5000
MOST_OF_ONE = 1200
"""So much is shown of what is asked together, and of the texts of one question; the files have the rest."""
_FORM = "one entry for each id; where no answer is told, those of the one before it:"
_SAID = re.compile(r"why: |do: |The override calls it ")
_SIDE = re.compile(r"^--- (base|ours|theirs)\n", re.MULTILINE)


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
    if told := discovered_alone(args):
        return told
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
    brief: dict[str, Any] = {"left": walk.left} | ({"left_out": left_out} if left_out else {})
    if not step.asks:
        data |= {"step": "run", "stages": [stage.as_json() for stage in walk.stages]}
        text = stage_table(walk.stages)
        return Result(Verdict.PASS, step.why, data, text, step.command, {"step": "run"} | brief)
    asked = _asked(step, walk)
    whole = [_whole(ask) for ask, _ in asked]
    data |= {"step": "answer", "ask": whole[0]} | ({"with_it": whole[1:]} if whole[1:] else {})
    brief |= {"step": "answer", "asks": _once([shown for _, shown in asked])}
    text = "\n\n".join(_text(one) for one in whole)
    command, summary = step.command, step.why
    if whole[1:]:
        data["answers_file"] = _template([ask for ask, _ in asked])
        text += f"\n\nanswers of all, in one file:\n{data['answers_file']}"
        command = upgrade("resolve", "--from", "FILE", *walk.naming)
        brief["answers_file"] = f"{_FORM}\n{_template([asked[0][0]])}"
        summary = f"{len(asked)} questions of {walk.left[step.asks[0].stage]} ({step.asks[0].stage})"
    return Result(Verdict.PASS, summary, data, text, command, brief)


def _asked(step: Step, walk: Walk) -> list[tuple[Ask, dict[str, Any]]]:
    """The first question, those that belong to it, and others of its kind, while there is room."""
    assert step.stage
    kind = [ask for ask in step.stage.asks if ask.stage == step.asks[0].stage and ask not in step.asks]
    found: list[tuple[Ask, dict[str, Any]]] = []
    room = MOST_CHARACTERS
    for ask in [*step.asks, *kind]:
        shown = _shown(ask)
        if not found and (notes := _notes(ask)):
            shown["incidents"] = [f"{note.incident}: {note.note}" for note in notes]
        if found and _size(shown) > room:
            break
        found.append((ask, shown))
        room -= _size(shown)
    return found


def _shown(ask: Ask) -> dict[str, Any]:
    """A question as an agent is asked it: of long texts what differs, as far as there is room."""
    lines = f"{ask.first}-{ask.last}" if ask.first else ""
    place = f"{ask.path}:{lines}" if lines else "plan.md"
    at = {"at": place} if lines and ask.path not in ask.what else {}
    texts = {role: text for role, text in ask.texts.items() if text or role != "text"}
    told = [line for line in texts.get("text", "").splitlines() if line not in ask.what]
    if ask.stage == FINDING:
        texts["text"] = "\n".join(line for line in told if not line.startswith("here: "))
    if sum(map(len, texts.values())) > MOST_OF_ONE:
        sides = _SIDE.split(texts.get("text", ""))[1:]
        texts = dict(zip(sides[::2], sides[1::2], strict=True)) or texts
        base = texts.pop("base", "")
        texts = {f"{role} against base": _diff(base, text) for role, text in texts.items()} if base else texts
    most = MOST_OF_ONE // max(1, len(texts))
    texts = {role: _cut(text, most, place) for role, text in texts.items()}
    return {"id": ask.id, "what": ask.what} | at | texts | {"answer": " | ".join(_options(ask))}


def _once(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The questions, in which nothing is said that the one before them said too."""
    for before, one in reversed(list(pairwise(shown))):
        if one["answer"] == before["answer"]:
            del one["answer"]
        said = [line for line in before.get("text", "").splitlines() if _SAID.match(line)]
        kept = [line for line in one.get("text", "").splitlines() if line not in said]
        one |= {"text": "\n".join(kept)} if said and "text" in one else {}
    return list(shown)


def _options(ask: Ask) -> list[str]:
    """The words that answer it in a file of answers."""
    return list(dict.fromkeys(how[1] if how[0] == "--take" else how[0][2:] for how in ask.how))


def _diff(base: str, text: str) -> str:
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])


def _notes(ask: Ask) -> list[Note]:
    return notes_for(ask.unit, " ".join([ask.what, *ask.texts.values()]))


def _whole(ask: Ask) -> dict[str, Any]:
    """A question with all its texts and the incidents that fit."""
    shown = {key: value for key, value in ask.as_json().items() if value or key in ("base", "ours", "theirs")}
    if notes := _notes(ask):
        shown["incidents"] = [note.as_json() for note in notes]
    return shown


def _size(value: Mapping[str, Any]) -> int:
    return len(msgspec.json.encode(value))


def _template(asks: Sequence[Ask]) -> str:
    """A file of answers to fill in, each with the first that fits; a text follows the answer `with`."""
    rows = []
    for ask in asks:
        words = [word for word in _options(ask) if word != "import"]
        rows.append(f"- id: {ask.id}\n  answer: {words[0]}  # {', '.join(words)}\n  note: WHY")
    return "\n".join(rows)


def stage_table(stages: Sequence[Stage]) -> str:
    """The stages for people."""
    rows = [(one.name, one.state, one.verdict, one.at, one.said) for one in stages]
    return table(("stage", "state", "verdict", "at", "said"), rows)


def _cut(value: str, most: int, place: str) -> str:
    if len(value) <= most:
        return value
    return f"{value[:most]}\n... {len(value) - most} characters more: {place}"


def _text(shown: dict[str, Any]) -> str:
    """A question for people."""
    parts = [shown["what"]]
    parts += [f"--- {n}\n{shown[n]}" for n in ("base", "ours", "theirs", "text") if n in shown]
    parts += [f"incident {note['incident']}: {note['note']}" for note in shown.get("incidents", [])]
    answers = [f"resolve {shown['id']} {how}" for how in shown["answer"]]
    return "\n\n".join([*parts, "\n".join(["answers:", *answers])])
