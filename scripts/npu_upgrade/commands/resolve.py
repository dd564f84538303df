"""Answer what `next` asks: check the answer, write it into the runner file, and say what must run again.

Answer a conflict with one side (--take) or with the lines that replace it (--with FILE, - for stdin).
Answer anything else with whole methods (--with; below a line `class NAME(BASES):` if the class needs more
bases), with an import (--import), or with a word: --accept (reviewed and right; takes a hunk, and makes an
edit that is proposed), --by-hand (the NPU side has the hunk, or the edit, in its own form), --waive (never
do it) or --leave (a hunk for the next upgrade), with a --note. An answer that would break the file, use an
undefined name, or lose a method or an Omni-new marker is refused and nothing is written.

--from FILE takes all answers that `next` asks for at once: a YAML list of entries with `id` (one, or a list
that shares the answer), `answer` (ours, theirs, base, with, accept, by-hand, waive or leave) and, where they
apply, `text`, `imports`, `note`, `until`, `in` and, with a side of a conflict, or with `with` in place of
`text`, `replace` (a mapping from what stands once in that side, or in the method asked about, to what takes
its place; of several lines easier as a list of pairs: `- [BEFORE, AFTER]`; whole lines may stand at any
indentation). It takes all of them, or none. An `id` that is a method (Class.method), with `accept` and a
`note`, gives the reason for what was written by hand there.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import msgspec

from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput, ChangedError
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job import answer
from npu_upgrade.job.answer import Answered
from npu_upgrade.job.ask import (
    ACCEPT,
    CONFLICT,
    EDITED,
    FINDING,
    ITEM,
    KINDS,
    LOOK,
    PORT,
    Ask,
    asks,
    closed_by_edit,
    edited_finding,
    failed_besides,
    hunks_to_take,
    unasked_hunk,
    units_at,
)
from npu_upgrade.job.check import check, edited_unit
from npu_upgrade.job.job import ALL, Job, naming
from npu_upgrade.job.journal import Answer
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.stages import find_workspace

EXAMPLES = """--list
conflict-1a2b3c4d --take theirs
conflict-1a2b3c4d --with answer.py --import "from vllm.utils import cdiv"
flag-both-added-1a2b3c4d --accept --note "order checked against vllm-ascend"
port-1a2b3c4d --accept
parity-hooks-1a2b3c4d5e --with method.py
arity-1a2b3c4d5e --waive --note "never taken on NPU" --until 0.31.0
--from answers.yaml
--undo conflict-1a2b3c4d"""

_MOST, _WIDEST = 60, 120
_SHOWN = 8  # ids of hunks in a command


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer to one question or to several alike, from the command line or a file of answers."""

    id: str | list[str]
    answer: Literal["ours", "theirs", "base", "with", "accept", "by-hand", "waive", "leave"]
    text: str = ""
    replace: dict[str, str] | list[tuple[str, str]] = {}
    imports: list[str] = []
    note: str = ""
    until: str = ""
    runner: str = msgspec.field(default="", name="in")

    @property
    def side(self) -> str:
        return self.answer if self.answer in ("ours", "theirs", "base") else ""

    @property
    def word(self) -> str:
        return self.answer if self.answer in ("accept", "by-hand", "waive", "leave") else ""

    @property
    def changes(self) -> dict[str, str]:
        """What stands there -> what takes its place."""
        return dict(self.replace)

    @property
    def ids(self) -> list[str]:
        """The questions it answers."""
        return [self.id] if isinstance(self.id, str) else self.id


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="what `next` asks about")
    how = parser.add_mutually_exclusive_group()
    option(how, "--from FILE", "take all answers in FILE, or none", dest="file")
    option(how, "--list", "list what is open and what was answered")
    option(how, "--undo", "take back the newest answer to ID")
    option(how, "--take", "answer a conflict with one side", choices=("ours", "theirs", "base"))
    option(how, "--with FILE", "answer with the text of FILE (- for stdin)", dest="given")
    for name, about in (
        ("accept", "reviewed and right; a hunk: take it; an edit that is proposed: make it"),
        ("by-hand", "a hunk or a proposed edit: the NPU side has it in its own form (with --note)"),
        ("waive", "do nothing about it (with --note)"),
        ("leave", "a hunk: leave it for the next upgrade (with --note)"),
    ):
        option(how, f"--{name}", about, action="store_const", const=name, dest="word")
    option(parser, "--import LINE", "an import to add", dest="imports", **REPEATED)
    option(
        parser,
        "--in RUNNER",
        "with --with: the runner that the methods belong to: base, ar, ... (default: where ID is)",
        dest="runner",
    )
    option(parser, "--until VERSION", "with --waive: when a finding counts again", default="")
    option(parser, "--note TEXT", "why, for the record", default="")
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
    """Answer a hunk of the ledger in a word, outside of any job."""
    if not (args.id and args.word in ("by-hand", "waive", "leave") and args.note.strip()):
        return None
    if not answer.set_hunk(workspace, args.id, args.word, args.note):
        return None
    return Result(Verdict.PASS, f"{args.id}: {args.word}", {"id": args.id, "stage": PORT, "written": False})


def _run(args: argparse.Namespace, job: Job) -> Result:
    if args.file:
        return _all_of(job, [(id_, one) for one in _entries(args.file) for id_ in one.ids])
    found = asks(job, load_plan(job), job.records())
    if args.list:
        return _listed(job, found)
    if not args.id:
        raise BadInput("no ID", expected="the id that `next` asks about", try_="upgrade.py resolve --list")
    if args.undo:
        return _undone(job, args.id)
    if args.word in ("accept", "waive"):
        accepted, waived = ({args.id} if args.word == one else set() for one in ("accept", "waive"))
        found = _after_edits(job, found, accepted, waived, writes=False)
    closed = all(one.id != args.id for one in found) and closed_by_edit(job, load_plan(job), args.id)
    ask = closed or _open(job, found, args.id)
    answer_ = args.take or args.word or ("with" if args.given or args.imports else "")
    if not answer_:
        raise _unfit("no answer is given", ask)
    if args.word and args.imports:
        raise _unfit("--import goes with --with or alone", ask)
    text = _text_of(args.given) if args.given else ""
    given = Given(
        id=args.id,
        answer=answer_,
        text=text,
        imports=args.imports,
        note=args.note,
        until=args.until,
        runner=args.runner or "",
    )
    if closed:
        return _all_of(job, [(args.id, given)])
    return _result(job, ask, given, _answer(job, load_plan(job), given, ask))


def _entries(name: str) -> list[Given]:
    try:
        return msgspec.yaml.decode(_text_of(name), type=list[Given])
    except msgspec.MsgspecError as error:
        block = "; a block whose first line stands deeper than the next begins with `text: |2`"
        raise BadInput(
            f"{name} holds no answers: {error}",
            expected="a YAML list of entries with id, answer and note or text",
            try_=f"the template that `next` shows{block if 'while parsing' in str(error) else ''}",
        ) from error


def _all_of(job: Job, entries: list[tuple[str, Given]]) -> Result:
    """Take all answers, one after the other; the first that is refused takes those before it back.

    What is waived or left comes first: a text changes the files, and their findings then wait for an audit.
    """
    accepted = {id_ for id_, given in entries if given.answer == "accept"}
    waived = {id_ for id_, given in entries if given.answer == "waive"}
    named = {id_: given.note for id_, given in entries if _is_reason(id_, given)}
    places = _places_of(job, named)
    entries = [entry for entry in entries if entry[0] not in named]
    entries.sort(key=lambda entry: entry[1].answer not in ("waive", "leave"))
    taken: list[tuple[Ask, Answer]] = []
    dropped: list[str] = []
    refused: dict[str, list[str]] = {}
    closed: dict[str, bool] = {}  # id -> whether its note is kept
    plan = load_plan(job)
    found = asks(job, plan, job.records())
    writes = any(given.answer not in ("accept", "waive", "leave") for _, given in entries)
    found = _after_edits(job, found, accepted, waived, writes=writes)
    plan = load_plan(job)
    asked = {ask.id for ask in found}
    try:
        for id_, given in entries:
            if taken and taken[-1][1].after and taken[-1][1].path not in plan.files:
                plan = load_plan(job)  # it has one more file
            found = asks(job, plan, job.records()) if taken else found
            if id_ in asked and all(ask.id != id_ for ask in found):
                dropped.append(id_)  # an answer before it closed it too, or changed its file
                continue
            if id_ not in asked and (before := closed_by_edit(job, plan, id_)):
                # a waiver is no reason for what was written
                closed[id_] = bool(given.note.strip()) and given.answer != "waive"
                if closed[id_]:
                    taken.append((before, answer.to_closed(job, before, given.note)))
                continue
            ask = _open(job, found, id_)
            if given.answer == "with" and id_ != given.ids[0] and ask.stage != CONFLICT:
                here = any((one.path, one.unit) == (ask.path, ask.unit) for one, _ in taken)
                if given.text or here or not ask.unit:
                    continue  # one text, written once: the audit tells whether it closes the others
            done = _answer(job, plan, given, ask)
            if done.problems == [answer.NO_CHANGE] and any(one.path == ask.path for one, _ in taken):
                continue  # an answer before it wrote the same: the audit tells whether that closes it
            if done.entry is None:
                refused[id_] = done.problems
                break
            assert isinstance(done.entry, Answer)
            taken.append((ask, done.entry))
    except BadInput as error:
        _take_back(job, taken)
        here = [id_ for id_, _ in entries].index(id_) + 1
        others = [] if isinstance(error, ChangedError) else entries[here:]
        if wrong := _wrong_too(job, asks(job, plan, job.records()), others):
            raise BadInput(
                "\n".join([error.what, *wrong]), expected=error.expected, try_=error.try_
            ) from error
        raise
    data: dict[str, Any] = {"job": job.id, "ids": [id_ for id_, _ in entries]}
    data |= {"closed_by_edits": list(closed)} if closed else {}
    if refused:
        _take_back(job, taken)
        text = "; ".join(f"{id_}: {'; '.join(problems)}" for id_, problems in refused.items())
        data |= {"problems": refused, "written": False}
        summary, brief = f"none of {len(entries)} answers is taken", {"problems": refused}
        return Result(Verdict.FAIL, summary, data, text, _next(job), brief)
    states = _states(taken)
    data["written"] = any(entry.after for _, entry in taken)
    notes = {ask.id: entry.note for ask, entry in taken}
    # where all that was written another side has too, nothing asks about it
    unasked = {unit: {"id": unit, "title": f"{unit}: was written by hand"} for unit in named}
    edits = {edited_unit(one): one for one in plan.items if one["kind"] == EDITED}
    given = [(unasked | edits)[unit] | {"path": places[unit], "note": note} for unit, note in named.items()]
    answer.keep_reasons(job, given)
    states |= {one["id"]: "done" for one in given}
    notes |= {one["id"]: one["note"] for one in given}
    said = f"{len(taken) - sum(closed.values())} answers"
    said += f"; the reason is kept for {', '.join(named)}" if named else ""
    said += f"; not needed, an edit has closed it: {', '.join(closed)}" if closed else ""
    said += " (the note is kept as the reason)" if any(closed.values()) else ""
    said += (
        f"; closed by another answer, or asked again by the next gate: {', '.join(dropped)}"
        if dropped
        else ""
    )
    return _recheck(job, data, said, states, notes, reasons=[*named.items(), *_reasons(taken)])


def _wrong_too(job: Job, found: list[Ask], entries: Sequence[tuple[str, Given]]) -> list[str]:
    """What is wrong with the changes of other answers, so that all of them are corrected at once."""
    open_ones = {ask.id: ask for ask in found}
    wrong: list[str] = []
    for id_, given in entries:
        try:
            if given.changes and id_ in open_ones:
                _text(job, given, open_ones[id_])
        except BadInput as error:
            wrong.append(error.what)
    return wrong


def _after_edits(
    job: Job, found: list[Ask], accepted: Collection[str], waived: Collection[str], *, writes: bool
) -> list[Ask]:
    """What is open when the files are looked at again.

    An edit may have closed what is accepted, or waived, which then needs no waiver; and where something is
    accepted that stands there by an edit, the others may be written into the file as it is.
    """
    closable = {ask.id for ask in found if ask.stage == ITEM and ACCEPT not in ask.how}
    waits = not closable.isdisjoint(accepted)
    if not waits and (not closable.isdisjoint(waived) or (accepted and writes)):
        waits = answer.edited_by_hand(job, load_plan(job))
    if not waits:
        return found
    check(job)
    return asks(job, load_plan(job), job.records())


def _is_reason(id_: str, given: Given) -> bool:
    """Whether an entry gives the reason of what was written by hand in a method, and answers no question."""
    return bool(re.fullmatch(r"\w+\.\w+", id_)) and given.answer == "accept" and bool(given.note.strip())


def _places_of(job: Job, named: Collection[str]) -> dict[str, str]:
    """The file of each method that a reason is given for; refuses one that is in none of the job's."""
    paths = load_plan(job).files if named else ()
    there = {unit: path for path in paths for unit in units_at(job.root, path)}
    if wrong := next((name for name in named if name not in there), ""):
        raise BadInput(
            f"no method {wrong} in the files of the job",
            expected="a method as Class.method, or the id of a question",
            try_="upgrade.py resolve --list names what is open",
        )
    return there


def _reasons(taken: list[tuple[Ask, Answer]]) -> list[tuple[str, str]]:
    """Why the files were edited by hand: the methods of the findings that this corrects, and the notes."""
    corrected = [(ask, entry) for ask, entry in taken if ask.stage == FINDING and entry.how == "accept"]
    return [(ask.unit, entry.note) for ask, entry in corrected if entry.note]


def _take_back(job: Job, taken: list[tuple[Ask, Answer]]) -> None:
    for _, entry in reversed(taken):
        answer.undo(job, entry)


def _states(taken: list[tuple[Ask, Answer]]) -> dict[str, str]:
    """The new states of the plan's items, by id."""
    items = [(ask.id, entry.how) for ask, entry in taken if ask.stage in (ITEM, LOOK)]
    return {id_: "waived" if how == "waive" else "done" for id_, how in items}


def _open(job: Job, found: list[Ask], id_: str) -> Ask:
    """The open question of that id; :class:`BadInput` says whether it was answered or never asked."""
    done = job.journal.answer(id_)
    ask = next((ask for ask in found if ask.id == id_), None)
    if ask or (not done and (ask := unasked_hunk(job, id_) or edited_finding(job, id_))):
        return ask
    what = f"{id_} was answered already ({done.how}, {done.at})" if done else f"nothing open is called {id_}"
    raise BadInput(
        what,
        expected="the id of something open; a conflict gets a new id when its markers or sides are edited; "
        "findings in files edited since are open again after upgrade.py audit",
        try_=f"upgrade.py resolve --undo {id_}" if done else "upgrade.py resolve --list",
    )


def _unfit(what: str, ask: Ask) -> BadInput:
    return BadInput(
        what, expected="one of: " + "; ".join(map(shlex.join, ask.how)), try_="upgrade.py resolve --help"
    )


def _asks_why(given: Given, ask: Ask) -> bool:
    """Whether the reason is all that is asked for."""
    return given.word == "accept" and ask.asks_why


def _check_fit(given: Given, ask: Ask) -> None:
    wrong = ""
    if ask.stage == CONFLICT and not (given.side or given.text or given.answer == "with"):
        wrong = "a conflict cannot be answered in a word"
    elif given.side == "base" and ask.conflict and not ask.conflict.marked.has_base:
        wrong = f"the markers of {ask.id} hold no base"
    elif given.changes and not given.side and (ask.stage == CONFLICT or given.answer != "with"):
        wrong = (
            "`replace` changes a side of a conflict (ours, theirs, base), or the method asked about (with)"
        )
    elif given.changes and given.text:
        wrong = "`replace` beside `text`"
    elif ask.stage != CONFLICT and given.side:
        wrong = f"--take answers conflicts only, not {ask.id}"
    elif given.word and not any(how[0] == f"--{given.word}" for how in ask.how):
        wrong = f"--{given.word} does not fit {ask.id}"
        if given.word == "accept" and ask.stage == ITEM:
            wrong += f": it is for what an edit has closed, and the files still have it: {ask.what}"
    elif ask.stage == PORT and given.answer == "with":
        wrong = "a hunk is accepted, written by hand, left or waived"
    elif (given.word in ("by-hand", "waive", "leave") or _asks_why(given, ask)) and not given.note.strip():
        wrong = f"--{given.word} without --note"
    if wrong:
        raise _unfit(wrong, ask)


def _answer(job: Job, plan: Plan, given: Given, ask: Ask) -> Answered:
    _check_fit(given, ask)
    if ask.conflict:
        text = _text(job, given, ask)
        return answer.to_conflict(job, plan, ask, given.answer, text, given.imports, given.note)
    if given.answer == "with":
        place = _in_runner(ask, plan, given.runner) if given.runner else ask
        return answer.to_methods(job, plan, place, _text(job, given, ask), given.imports, given.note)
    if ask.edit and given.word == "accept":
        return answer.to_edit(job, plan, ask, given.note)
    return answer.by_word(job, ask, given.word, given.note, given.until)


def _text(job: Job, given: Given, ask: Ask) -> str:
    """The text that is answered: as it is given, or a side or a method with changes."""
    if ask.conflict and given.side:
        sides = dict(zip(("base", "ours", "theirs"), ask.conflict.texts, strict=True))
        return _changed(sides[given.side], given.side, given, ask)
    if given.changes:
        return _changed(_method(job, ask, given.changes), ask.unit or ask.path, given, ask)
    return given.text


def _method(job: Job, ask: Ask, changes: Mapping[str, str]) -> str:
    """The method that is asked about, as the file has it.

    What is asked may name a caller in another file: then it is the one method that has all that is replaced.
    """
    units = units_at(job.root, ask.path)
    having = [one for one in units.values() if all(part.rstrip("\n") in one.source for part in changes)]
    unit = units.get(ask.unit) or (having[0] if len(having) == 1 else None)
    if unit is None:
        raise _unfit(f"`replace`: {ask.id} is about no method, and {len(having)} have these lines", ask)
    return unit.source


def _changed(side: str, where: str, given: Given, ask: Ask) -> str:
    """A side of a conflict, or a method, with the changes that an answer asks for; each stands in it once."""
    for before, after in given.changes.items():
        if not side.count(before) and side.endswith(before.rstrip("\n")):  # a last line without its end
            before, after = before.rstrip("\n"), after.rstrip("\n")
        if not side.count(before) or not before[:1].isspace():  # a block of YAML begins at the first column
            before, after = _indented_as_in(side, before, after)
        if side.count(before) != 1:
            near = "" if side.count(before) else _nearest(side, before)
            raise BadInput(
                f"{ask.id}: `replace`: it stands {side.count(before)} times in {where}: {before!r}",
                expected=f"lines, or parts of them, that stand there once{near}",
                try_=f"copy them from the file at {ask.path}:{ask.first}, as they stand there",
            )
        side = side.replace(before, after)
    return side


def _nearest(side: str, before: str) -> str:
    """The first line of what is looked for that is not there, beside the line that is most like it."""
    there = [line.strip() for line in side.split("\n")]
    missing = next((line for line in map(str.strip, before.split("\n")) if line not in there), "")
    if not missing:
        return "; each line is there, and not one after the other like that"
    alike = get_close_matches(missing, there, n=1, cutoff=0.5)
    return f"; {missing!r} is not there" + (f", and {alike[0]!r} is" if alike else "")


def _indented_as_in(side: str, before: str, after: str) -> tuple[str, str]:
    """Whole lines and what takes their place, as deep as they stand in ``side``, where they do so once.

    How much deeper one is than another, and empty lines, do not count where no block is that like.
    """
    wanted, lines = dedent(before).strip("\n").split("\n"), side.split("\n")
    windows = [lines[at : at + len(wanted)] for at in range(len(lines) - len(wanted) + 1)]
    found = ["\n".join(one) for one in windows if dedent("\n".join(one)).split("\n") == wanted]
    found = found or _with_other_gaps(lines, wanted)
    depths = _depths(wanted, found[0].split("\n")) if len(found) == 1 else None
    if depths is None:
        return before, after
    if not after.strip() and f"{found[0]}\n" in side:  # the lines go whole
        return f"{found[0]}\n", ""
    return found[0], "\n".join(_as_deep(line, depths) for line in dedent(after).strip("\n").split("\n"))


def _with_other_gaps(lines: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Where the same code stands, whatever its depths and its empty lines."""
    full = [number for number, line in enumerate(lines) if line.strip()]
    words = [line.strip() for line in wanted if line.strip()]
    windows = (full[at : at + len(words)] for at in range(len(full) - len(words) + 1))
    same = (one for one in windows if words and [lines[n].strip() for n in one] == words)
    return ["\n".join(lines[one[0] : one[-1] + 1]) for one in same]


def _depths(wanted: Sequence[str], there: Sequence[str]) -> dict[int, int] | None:
    """How deep lines stand by how deep they were written; None where one depth stands for several."""
    pairs = zip(*([_depth(line) for line in side if line.strip()] for side in (wanted, there)), strict=True)
    found: dict[int, int] = {}
    alike = all(found.setdefault(one, other) == other for one, other in pairs)
    return found if alike else None


def _as_deep(line: str, depths: Mapping[int, int]) -> str:
    """A line as deep as its depth stands for, or as the next lesser one, and what it is deeper than that."""
    own = _depth(line)
    near = max((depth for depth in depths if depth <= own), default=min(depths))
    return " " * max(0, depths[near] + own - near) + line.lstrip() if line.strip() else ""


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _in_runner(ask: Ask, plan: Plan, kind: str) -> Ask:
    runner = plan.runners.get(kind)
    if runner is None:
        raise BadInput(
            f"--in {kind}: the upgrade has no such runner",
            expected="one of: " + ", ".join(plan.runners),
            try_="leave --in out to answer where the finding is",
        )
    return msgspec.structs.replace(ask, path=runner["path"], unit=f"{runner['class']}.")


def _text_of(name: str) -> str:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot read {name}: {error}", expected="a text file, or - for stdin", try_="--with FILE"
        ) from error
    return text.replace("\r\n", "\n")


def _result(job: Job, ask: Ask, given: Given, done: Answered) -> Result:
    data: dict[str, Any] = {"job": job.id, "id": ask.id, "stage": ask.stage}
    if done.entry is None:
        data |= {"problems": done.problems, "written": False}
        advice = "correct the answer, or add what it needs with --import"
        text = "\n".join([*done.problems, advice])
        brief = {"problems": done.problems}
        return Result(Verdict.FAIL, f"not written; {advice}", data, text, _next(job), brief)
    entry = done.entry
    assert isinstance(entry, Answer)
    data |= {"written": bool(entry.after), "answered": _brief(entry)}
    notes, taken = {ask.id: given.note}, [(ask, entry)]
    return _recheck(job, data, f"{ask.id}: {entry.how}", _states(taken), notes, _reasons(taken))


def _recheck(
    job: Job,
    data: dict[str, Any],
    said: str,
    states: Mapping[str, str],
    notes: Mapping[str, str],
    reasons: Sequence[tuple[str, str]] = (),
) -> Result:
    """Judge the files again where answers touched them or the plan, and say which gates are to run.

    ``states`` are the new ones of items of the plan, by id; ``reasons`` why the files were edited by hand:
    then nobody asks why once more.
    """
    checked = check(job, states, notes, reasons) if states or data["written"] or reasons else None
    answer.keep_reasons(job, checked.explained if checked else ())
    again = gates_to_run(job)
    data |= {"gates_to_run": again}
    parts = [said]
    if checked:
        data["plan"] = {"verdict": checked.verdict.value, "summary": checked.summary}
        passed = checked.verdict is Verdict.PASS
        parts.append("plan PASS" if passed else f"plan {checked.verdict.value}: {checked.summary}")
        if units := [edited_unit(item) for item in checked.explained]:
            parts.append(f"the note is kept as the reason for {', '.join(units)}")
    parts += [f"to run again: {', '.join(again)}"] if again else []
    if others := failed_besides(job):
        parts.append(f"before this edit these failed, too: {'; '.join(others)}")
    if accepted := hunks_to_take(job) if job.scope == ALL else []:
        now = upgrade("port", "--apply", *(accepted if len(accepted) <= _SHOWN else ["ID..."])).short
        parts.append(f"{len(accepted)} accepted and not in the files yet: `next --run` writes that, or {now}")
    return ending(Result(Verdict.PASS, "; ".join(parts), data, brief={}), job)


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
    states = {id_: "open"} if entry.stage in (ITEM, LOOK) else {}
    data["answered"] = {"how": f"undone: {entry.how}"}
    return _recheck(job, data, f"{id_}: undone: {entry.how}", states, {})


def _listed(job: Job, found: list[Ask]) -> Result:
    answered = [_brief(entry) for entry in job.journal.answers()]
    rows = [{"stage": ask.stage, "id": ask.id, "what": ask.what} for ask in found]
    text = [f"{row['stage']:<9} {row['id']}  {row['what']}" for row in rows]
    text += [
        f"answered  {one['id']}  {one['how']}{': ' + one['note'] if one['note'] else ''}" for one in answered
    ]
    counts = {kind: sum(ask.stage == kind for ask in found) for kind in KINDS}
    data = {"job": job.id, "open": rows, "answered": answered, "counts": counts}
    summary = f"{len(found)} open, {len(answered)} answered"
    shown = [f"{ask.id}: {ask.what[:_WIDEST]}" for ask in found[:_MOST]]
    brief = {"counts": counts, "open": shown, "more": len(found) - len(shown)}
    return Result(Verdict.PASS, summary, data, "\n".join(text), _next(job), brief)


def _brief(entry: Answer) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("id", "at", "how", "note", "path", "unit")}


def _next(job: Job) -> Command:
    return upgrade("next", *naming(job))
