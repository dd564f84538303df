"""The one thing to do next in the current job: a command to run, one question to answer, or a person to ask.

Conflicts, decisions on thin evidence, hunks to port and findings are handed out one at a time,
with the texts of all sides, the incidents known of that method, and the commands that answer
it. Asking twice gives the same. INCONCLUSIVE means that a person is needed: rounds without
progress, changes without effect, or another architecture; --continue goes on, with the reason.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground import invocation
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.ask import Ask, root_of, text_at
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.journal import CONTINUE, SKIP, Journal
from npu_upgrade.job.steer import SKIPPABLE, Step, next_step

EXAMPLES = """  upgrade.py next
  upgrade.py next --workspace ~/work --job upgrade-omni-0.22.0-ascend-0.23.0
  upgrade.py next --continue --note "talked to the maintainers: keep our sampler"
  upgrade.py next --skip emulate --note "no room for the environment on this machine" """
MOST_CHARACTERS = 5000  # of one text; the file has the rest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--continue", action="store_true", dest="go_on", help="go on after a stop (for a person; with --note)"
    )
    how.add_argument(
        "--skip",
        choices=SKIPPABLE,
        help="leave out a kind of question or the emulated run (with --note); the commit names it",
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the record")


def run(args: argparse.Namespace) -> Result:
    """PASS with the command or question; INCONCLUSIVE when a person is needed; exit 2 without a job."""
    if (args.go_on or args.skip) and not args.note.strip():
        option = "--continue" if args.go_on else "--skip"
        raise BadInput(f"{option} without --note", expected="the reason, for the record", try_="--note TEXT")
    job = named_job(args)
    if args.skip:
        job.skip(args.skip, args.note)
        Journal(job.folder).add(SKIP, args.skip, note=args.note)
    step = next_step(job)
    if args.go_on:
        if step.stop is None:
            raise BadInput(
                "nothing has stopped", expected="a job that waits for a person", try_="upgrade.py next"
            )
        Journal(job.folder).add(CONTINUE, step.stop.key, note=args.note)
        step = next_step(job)
    return _result(job, step)


def _result(job: Job, step: Step) -> Result:
    data: dict[str, Any] = {"job": job.id, "why": step.why, "left": step.left}
    if job.skipped:
        data["left_out"] = job.skipped
    if step.stop:
        go_on = shlex.join(["upgrade.py", "next", "--continue", "--note", "WHY", *naming(job)])
        go_on = invocation.runnable(go_on, "upgrade.py")
        data |= {"step": "stop", "stop": step.stop.as_json(), "a_person_goes_on_with": go_on}
        text = "\n".join([*step.stop.tried, f"a person goes on with: {go_on}"])
        return Result(Verdict.INCONCLUSIVE, step.why, data, text, step.command)
    if step.ask is None:
        return Result(Verdict.PASS, step.why, data | {"step": "run"}, next=step.command)
    shown = {key: _cut(value, step.ask) for key, value in step.ask.as_json(job).items()}
    shown["answer"] = [invocation.runnable(command, "upgrade.py") for command in shown["answer"]]
    shown["as_it_stands"] = (
        _cut(text_at(root_of(job), step.ask), step.ask) if step.ask.conflict is None else ""
    )
    shown = {key: value for key, value in shown.items() if value or key in ("base", "ours", "theirs")}
    return Result(
        Verdict.PASS, step.why, data | {"step": "answer", "ask": shown}, _text(step.ask, shown), step.command
    )


def _cut(value: Any, ask: Ask) -> Any:
    if not isinstance(value, str) or len(value) <= MOST_CHARACTERS:
        return value
    place = f"{ask.path} lines {ask.first}-{ask.last}" if ask.path else "plan.md"
    return f"{value[:MOST_CHARACTERS]}\n... cut, {len(value) - MOST_CHARACTERS} characters more: {place}"


def _text(ask: Ask, shown: dict[str, Any]) -> str:
    """The question for people."""
    parts = [ask.what]
    for name in ("base", "ours", "theirs", "text"):
        if name in shown:
            parts.append(f"--- {name}\n{shown[name]}")
    parts += [f"incident {note['incident']}: {note['note']}" for note in shown.get("incidents", [])]
    return "\n\n".join([*parts, "\n".join(["answers:", *shown["answer"]])])
