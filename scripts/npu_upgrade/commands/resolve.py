"""Answer what `next` asks: check the answer, write it into the runner file, and say what has to run again.

A conflict is answered with one side (--take) or with the lines that replace it (--with FILE, - for
stdin). Everything else is answered with whole methods (--with), with an import (--import), or in a
word: --accept (it was looked at, the hunk is taken), --waive (not to be done, ever) or --leave (a
hunk for the next upgrade), with a --note. An answer that would break the file, use a name that
nothing defines, lose a method or an Omni-new marker is refused and nothing is written.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job import answer
from npu_upgrade.job.answer import Answered
from npu_upgrade.job.ask import CONFLICT, ITEM, KINDS, LOOK, PORT, Ask, asks
from npu_upgrade.job.check import check
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.journal import Answer
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.port_ledger import OPEN, WAIVED
from npu_upgrade.job.stages import find_workspace

EXAMPLES = """--list
conflict-1a2b3c4d --take theirs
conflict-1a2b3c4d --with answer.py --import "from vllm.utils import cdiv"
flag-both-added-1a2b3c4d --accept --note "order checked against vllm-ascend"
port-1a2b3c4d --accept
parity-hooks-1a2b3c4d5e --with method.py
arity-1a2b3c4d5e --waive --note "never taken on NPU" --until 0.31.0
--undo conflict-1a2b3c4d"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="what `next` asks about")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--list", action="store_true", help="list what is open and what was answered")
    how.add_argument("--undo", action="store_true", help="take the newest answer to ID back")
    how.add_argument("--take", choices=("ours", "theirs", "base"), help="answer a conflict with one side")
    how.add_argument(
        "--with", dest="given", metavar="FILE", help="answer with the text of FILE (- for stdin)"
    )
    for name, about in (
        ("accept", "it was looked at and is right; a hunk: take it"),
        ("waive", "nothing is to be done about it (with --note)"),
        ("leave", "a hunk: leave it for the next upgrade (with --note)"),
    ):
        how.add_argument(f"--{name}", action="store_const", const=name, dest="word", help=about)
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="LINE", help="an import to add"
    )
    parser.add_argument(
        "--in",
        dest="runner",
        metavar="RUNNER",
        help="with --with: the runner that the methods belong to: base, ar, ... (default: where ID is)",
    )
    parser.add_argument(
        "--until", default="", metavar="VERSION", help="with --waive: when a finding counts again"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the record")
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when the answer is taken, FAIL with what is wrong with it; exit 2 for what is not open."""
    try:
        job = named_job(args)
    except BadInput:
        if result := _hunk_by_word(args, args.workspace or find_workspace(Path.cwd())):
            return result
        raise
    with locked(job.folder / "resolve.lock"):
        return _run(args, job)


def _hunk_by_word(args: argparse.Namespace, workspace: Path) -> Result | None:
    """Waive or leave a hunk that no job asks about: of a lower tier, or listed by `port` alone."""
    if not (args.id and args.word in ("waive", "leave") and args.note.strip()):
        return None
    state = (WAIVED, args.note) if args.word == "waive" else (OPEN,)
    if not answer.set_hunk(workspace, args.id, *state):
        return None
    return Result(Verdict.PASS, f"{args.id}: {args.word}", {"id": args.id, "stage": PORT, "written": False})


def _run(args: argparse.Namespace, job: Job) -> Result:
    plan = load_plan(job)
    found = asks(job, plan, job.records())
    if args.list:
        return _listed(job, found)
    if not args.id:
        raise BadInput("no ID", expected="the id that `next` asks about", try_="upgrade.py resolve --list")
    if args.undo:
        return _undone(job, args.id)
    unasked = job.journal.answer(args.id) is None and all(ask.id != args.id for ask in found)
    if unasked and (result := _hunk_by_word(args, job.workspace)):
        return result
    ask = _open(job, found, args.id)
    _check_usage(args, ask)
    return _result(job, ask, _answer(args, job, plan, ask), args)


def _open(job: Job, found: list[Ask], id_: str) -> Ask:
    """The open question of that id; :class:`BadInput` says whether it was answered or never asked."""
    ask = next((ask for ask in found if ask.id == id_), None)
    if ask:
        return ask
    done = job.journal.answer(id_)
    what = f"{id_} was answered already ({done.how}, {done.at})" if done else f"nothing open is called {id_}"
    raise BadInput(
        what,
        expected="the id of something open; a conflict whose markers or sides were edited has another one",
        try_=f"upgrade.py resolve --undo {id_}" if done else "upgrade.py resolve --list",
    )


def _check_usage(args: argparse.Namespace, ask: Ask) -> None:
    given = bool(args.take or args.given or args.imports)
    wrong = ""
    if not given and not args.word:
        wrong = "no answer is given"
    elif args.word and args.imports:
        wrong = "--import goes with --with or stands alone"
    elif ask.stage == CONFLICT and not (args.take or args.given):
        wrong = "a conflict cannot be answered in a word"
    elif args.take == "base" and ask.conflict and not ask.conflict.marked.has_base:
        wrong = f"the markers of {ask.id} hold no base"
    elif ask.stage != CONFLICT and args.take:
        wrong = f"--take answers conflicts, and {ask.id} is none"
    elif args.word and not any(how[0] == f"--{args.word}" for how in ask.how):
        wrong = f"--{args.word} does not fit {ask.id}"
    elif args.word == "leave" and ask.stage != PORT:
        wrong = "--leave is for hunks to port"
    elif ask.stage == PORT and given:
        wrong = "a hunk is accepted, left or waived"
    elif args.word in ("waive", "leave") and not args.note.strip():
        wrong = f"--{args.word} without --note"
    if wrong:
        raise BadInput(
            wrong, expected="one of: " + "; ".join(map(shlex.join, ask.how)), try_="upgrade.py resolve --help"
        )


def _answer(args: argparse.Namespace, job: Job, plan: Plan, ask: Ask) -> Answered:
    if ask.conflict:
        sides = dict(zip(("base", "ours", "theirs"), ask.conflict.texts, strict=True))
        text = sides[args.take] if args.take else _given(args.given)
        return answer.to_conflict(job, plan, ask, args.take or "with", text, args.imports, args.note)
    if args.given or args.imports:
        place = _in_runner(ask, plan, args.runner) if args.runner else ask
        text = _given(args.given) if args.given else ""
        return answer.to_methods(job, plan, place, text, args.imports, args.note)
    return answer.by_word(job, ask, args.word, args.note, args.until)


def _in_runner(ask: Ask, plan: Plan, kind: str) -> Ask:
    runner = plan.runners.get(kind)
    if runner is None:
        raise BadInput(
            f"--in {kind}: the upgrade has no such runner",
            expected="one of: " + ", ".join(plan.runners),
            try_="leave --in out to answer where the finding is",
        )
    return msgspec.structs.replace(ask, path=runner["path"], unit=f"{runner['class']}.")


def _given(name: str) -> str:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot read {name}: {error}", expected="a text file, or - for stdin", try_="--with FILE"
        ) from error
    return text.replace("\r\n", "\n")


def _result(job: Job, ask: Ask, done: Answered, args: argparse.Namespace) -> Result:
    data: dict[str, Any] = {"job": job.id, "id": ask.id, "stage": ask.stage}
    if done.entry is None:
        data |= {"problems": done.problems, "written": False}
        advice = "correct the answer, or add what it needs with --import"
        text = "\n".join([*done.problems, advice])
        return Result(Verdict.FAIL, f"not written: {'; '.join(done.problems)}", data, text, _next(job))
    state = ("waived" if args.word == "waive" else "done") if ask.stage in (ITEM, LOOK) else ""
    entry = done.entry
    assert isinstance(entry, Answer)
    return _recheck(job, data | {"written": bool(entry.after)}, _brief(entry), state, args.note)


def _recheck(job: Job, data: dict[str, Any], answered: dict[str, Any], state: str, note: str) -> Result:
    """Judge the files again where the answer touched them or the plan, and say which gates are to run.

    ``state`` is the new one of the item, empty when the plan has no such item.
    """
    checked = check(job, data["id"], state, note) if state else check(job) if data["written"] else None
    again = gates_to_run(job)
    data |= {"answered": answered, "gates_to_run": again}
    parts = [f"{data['id']}: {answered['how']}"]
    if checked:
        data["plan"] = {"verdict": checked.verdict.value, "summary": checked.summary}
        parts.append(f"plan {checked.verdict.value}: {checked.summary}")
    parts += [f"to run again: {', '.join(again)}"] if again else []
    return Result(Verdict.PASS, "; ".join(parts), data, next=_next(job))


def gates_to_run(job: Job) -> list[str]:
    """The gates that have evidence, and none for the files as they are now."""
    records, subject = job.ledger().records, load_plan(job).subject(job.root)
    current = {record.gate for record in records if record.tree == subject.tree}
    stale = [name for name in dict.fromkeys(record.gate for record in records) if name not in current]
    newest = next((record for record in reversed(records) if record.gate == "audit"), None)
    waived = [e for e in job.journal.answers() if newest and e.evidence == newest.id]
    if newest and newest.verdict == "FAIL" and waived and "audit" not in stale:
        stale.append("audit")
    return stale


def _undone(job: Job, id_: str) -> Result:
    entry = job.journal.answer(id_)
    if entry is None:
        raise BadInput(
            f"no answer to {id_} is kept", expected="the id of an answer", try_="upgrade.py resolve --list"
        )
    done = answer.undo(job, entry)
    data: dict[str, Any] = {"job": job.id, "id": id_, "written": bool(entry.after)}
    if done.entry is None:
        data |= {"problems": done.problems, "written": False}
        return Result(Verdict.FAIL, "; ".join(done.problems), data, next=None)
    state = "open" if entry.stage in (ITEM, LOOK) else ""
    return _recheck(job, data, {"how": f"undone: {entry.how}"}, state, "")


def _listed(job: Job, found: list[Ask]) -> Result:
    answered = [_brief(entry) for entry in job.journal.answers()]
    rows = [{"stage": ask.stage, "id": ask.id, "what": ask.what} for ask in found]
    text = [f"{row['stage']:<9} {row['id']}  {row['what']}" for row in rows]
    text += [
        f"answered  {one['id']}  {one['how']}{': ' + one['note'] if one['note'] else ''}" for one in answered
    ]
    counts = {kind: sum(ask.stage == kind for ask in found) for kind in KINDS}
    data = {"job": job.id, "open": rows, "answered": answered, "counts": counts}
    return Result(
        Verdict.PASS, f"{len(found)} open, {len(answered)} answered", data, "\n".join(text), _next(job)
    )


def _brief(entry: Answer) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("id", "at", "how", "note", "path", "unit")}


def _next(job: Job) -> Command:
    return upgrade("next", *naming(job))
