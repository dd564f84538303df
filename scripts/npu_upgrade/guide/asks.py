"""What is open in a job and needs an answer, in the order in which it is best answered.

Reads the plan, the files, the list of hunks to port and the findings of the gates. Decides
nothing and writes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npu_upgrade.deliver.chain import Record
from npu_upgrade.deliver.job import Job, naming
from npu_upgrade.deliver.plan_file import Plan
from npu_upgrade.deliver.subject import file_digest
from npu_upgrade.files import read_object
from npu_upgrade.guide.conflicts import OpenConflict, ids, open_conflicts
from npu_upgrade.guide.journal import Entry, Journal
from npu_upgrade.guide.notes import notes_for
from npu_upgrade.pycode.module import parse_module
from npu_upgrade.upgrade.conflict_text import split_lines
from npu_upgrade.upgrade.layout import RUNNERS

CONFLICT, ITEM, LOOK, PORT, FINDING = "conflict", "item", "look", "port", "finding"
STAGES = (CONFLICT, ITEM, LOOK, PORT, FINDING)


@dataclass(frozen=True)
class Ask:
    """One open thing: what it is about, where, its texts, and how it can be answered.

    ``texts`` are by role (base, ours, theirs, text); ``how`` the options of resolve that fit;
    ``evidence`` the record of the gate that found it.
    """

    stage: str
    id: str
    what: str
    path: str = ""
    unit: str = ""
    first: int = 0
    last: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    how: tuple[str, ...] = ()
    conflict: OpenConflict | None = None
    evidence: str = ""

    @property
    def owner(self) -> str:
        """The class of the method it is about; of the file where no method is known."""
        known = next((runner.class_name for runner in RUNNERS if runner.path == self.path), "")
        return self.unit.rpartition(".")[0] or known

    def commands(self, job: Job) -> list[str]:
        """The commands that answer it, ready to run but for FILE and WHY."""
        head = ["upgrade.py", "resolve", self.id]
        return [f"{shlex.join(head)} {how} {shlex.join(naming(job))}" for how in self.how]

    def as_json(self, job: Job) -> dict[str, Any]:
        """For agents: everything but the position in the list."""
        place = {"path": self.path, "unit": self.unit, "first_line": self.first, "last_line": self.last}
        return {
            "stage": self.stage,
            "id": self.id,
            "what": self.what,
            "place": {key: value for key, value in place.items() if value},
            **self.texts,
            "incidents": [note.as_json() for note in notes_for(self.unit)],
            "answer": self.commands(job),
        }


_WITH_NOTE = ('--accept --note "WHY"', '--waive --note "WHY"')
_EDIT = "--with FILE"


def asks(job: Job, plan: Plan, records: list[Record]) -> list[Ask]:
    """All that is open, in order; what was left out by ``next --skip`` is not among it."""
    root, journal = root_of(job), Journal(job.folder)
    conflicts = open_conflicts(root, plan)
    found = [_conflict(one) for one in conflicts]
    found += [_item(item, root) for item in plan.items if _open_item(item, conflicts)]
    found += list(_hunks(job, journal, root))
    found += list(_findings(job, journal, records, root))
    found += list(_failed_runs(job, journal, records, root))
    return [ask for ask in found if ask.stage not in job.skipped]


def root_of(job: Job) -> Path:
    """The folder with the files of the job."""
    return Path(job.repo or job.out or job.folder)


def _conflict(one: OpenConflict) -> Ask:
    texts = dict(zip(("base", "ours", "theirs"), one.texts, strict=True))
    how = ("--take theirs", "--take ours", "--take base", _EDIT)
    what = f"{one.path}:{one.first}: conflict in {one.method}: {one.reason}"
    return Ask(CONFLICT, one.id, what, one.path, one.method, one.first, one.last, texts, how, one)


def _open_item(item: dict[str, Any], conflicts: list[OpenConflict]) -> bool:
    return item.get("state") == "open" and item.get("kind") != "conflict" and item["id"] not in ids(conflicts)


def _item(item: dict[str, Any], root: Path) -> Ask:
    title, path = str(item.get("title") or item["id"]), str(item.get("path") or "")
    unit = unit_of(title, path)
    path = path if path.endswith(".py") else ""
    first, last = span(root, path, unit)
    how = _WITH_NOTE
    if path and unit:
        how = (*how, _EDIT)
    if item.get("kind") in ("unresolved-name", "missing-name"):
        how = (*how, '--import "from MODULE import NAME"')
    texts = {"text": str(item.get("detail") or "")}
    return Ask(ITEM if item.get("blocking") else LOOK, item["id"], title, path, unit, first, last, texts, how)


def unit_of(title: str, path: str) -> str:
    """The qualified name of the method that an item's title begins with, after its path."""
    found = re.match(r"([A-Za-z_]\w*\.\w+)(?=: | )", title.removeprefix(f"{path}: "))
    return found[1] if found else ""


def span(root: Path, path: str, unit: str) -> tuple[int, int]:
    """The 1-based lines of a method as it stands, (0, 0) where it cannot be told."""
    try:
        found = parse_module((root / path).read_text("utf-8")).units.get(unit) if path and unit else None
    except (OSError, SyntaxError, ValueError):
        return 0, 0
    return (found.start + 1, found.end) if found else (0, 0)


def _hunks(job: Job, journal: Journal, root: Path) -> Iterator[Ask]:
    """The hunks of the first tier that nobody decided on yet."""
    survey = port_survey(job)
    decided = {entry["id"] for entry in journal.active()} | {one["id"] for one in survey.get("refused", [])}
    for hunk in survey.get("hunks", []):
        if hunk["tier"] == 1 and hunk["id"] not in decided:
            first, last = span(root, hunk["path"], hunk["unit"])
            what = f"the GPU side gained this in {hunk['unit']} and the NPU side lacks it"
            texts = {"text": hunk.get("text") or ""}
            how = ("--accept", '--leave --note "WHY"', '--waive --note "WHY"')
            yield Ask(PORT, hunk["id"], what, hunk["path"], hunk["unit"], first, last, texts, how)


def accepted_hunks(job: Job) -> list[str]:
    """The hunks that were accepted and not taken yet."""
    survey = port_survey(job)
    refused = {one["id"] for one in survey.get("refused", [])}
    there = {hunk["id"] for hunk in survey.get("hunks", [])} - refused
    answers = Journal(job.folder).active()
    return [entry["id"] for entry in answers if entry["how"] == "accept" and entry["id"] in there]


def port_survey(job: Job) -> dict[str, Any]:
    """What the job's last `port` listed; empty before it ran."""
    survey = read_object(job.folder / "port.json")
    needed = {"id", "tier", "path", "unit"}
    for name, keys in (("hunks", needed), ("refused", {"id"})):
        rows = survey.get(name)
        good = (
            [row for row in rows if isinstance(row, dict) and keys <= set(row)]
            if isinstance(rows, list)
            else []
        )
        survey |= {name: good} if survey else {}
    return survey


def _findings(job: Job, journal: Journal, records: list[Record], root: Path) -> Iterator[Ask]:
    """The new findings of the newest audit, while nothing but answers changed the files since."""
    newest = next((record for record in reversed(records) if record.gate == "audit"), None)
    if newest is None or newest.verdict != "FAIL":
        return
    since = [entry for entry in journal.active() if entry.get("evidence") == newest.id]
    if not _only_answers(root, newest, since):
        return
    decided = {entry["id"] for entry in since}
    edited = {name for entry in since if entry.get("after") for name in entry.get("units", [])}
    for finding in read_object(job.folder / "audit.json").get("findings", []):
        if finding.get("state") != "NEW" or finding["key"] in decided:
            continue
        ask = replace(_finding(finding, root), evidence=newest.id)
        if not ask.unit or ask.unit not in edited:
            yield ask


def _failed_runs(job: Job, journal: Journal, records: list[Record], root: Path) -> Iterator[Ask]:
    """The first run that failed in the newest emulated run, while the files are as it judged them."""
    newest = next((record for record in reversed(records) if record.gate == "emulate"), None)
    if newest is None or newest.verdict != "FAIL" or not _only_answers(root, newest, []):
        return
    answered = {entry["id"] for entry in journal.active() if entry.get("evidence") == newest.id}
    for run in read_object(job.folder / "emulate.json").get("runs", []):
        name = "-".join(filter(None, ("emulate", run.get("tier"), run.get("scenario"))))
        if run.get("state") != "FAIL" or name in answered:
            continue
        lines = [str(run.get("why")), f"where: {run.get('where', '')}", *map(str, run.get("traceback", []))]
        lines += [f"log: {run.get('log', '')}"]
        how = ("--with FILE --in ar", '--accept --note "corrected by hand: WHAT"')
        what = f"{run.get('tier')} {run.get('scenario', '')} fails on the emulated NPU: {run.get('why')}"
        yield Ask(FINDING, name, what, texts={"text": "\n".join(lines)}, how=how, evidence=newest.id)
        return  # what comes after it often comes of it


def _finding(finding: dict[str, Any], root: Path) -> Ask:
    here, there = finding["here"], finding.get("there") or {}
    ours = here.get("project") == "vllm-omni"
    path = here["path"] if ours else ""
    unit = _unit_at(root, path, int(here.get("line") or 0)) or f"{finding['owner']}."
    first, last = span(root, path, unit)
    lines = [finding["what"], f"why: {finding['why']}", f"do: {finding['todo']}"]
    lines += [f"here: {here.get('project')} {here['path']}:{here.get('line')}: {here.get('text')}"]
    if there:
        lines += [
            f"there: {there.get('project')} {there.get('path')}:{there.get('line')}: {there.get('text')}"
        ]
    how = ('--waive --note "WHY"',)
    if path in {runner.path for runner in RUNNERS}:
        how = (_EDIT, '--accept --note "corrected by hand: WHAT"', *how)
    what = f"{here['path']}:{here.get('line')}: {finding['check']}: {finding['what']}"
    return Ask(FINDING, finding["key"], what, path, unit, first, last, {"text": "\n".join(lines)}, how)


def _unit_at(root: Path, path: str, line: int) -> str:
    try:
        units = parse_module((root / path).read_text("utf-8")).units.values() if path else ()
    except (OSError, SyntaxError, ValueError):
        return ""
    return next((unit.qualname for unit in units if unit.start < line <= unit.end), "")


def _only_answers(root: Path, record: Record, since: list[Entry]) -> bool:
    """Whether the files are as the gate judged them, but for what was answered since."""
    expected = dict(record.subject["files"])
    expected |= {entry["path"]: entry["after"] for entry in since if entry.get("after")}
    return all(file_digest(root / path) == digest for path, digest in expected.items())


def text_at(root: Path, ask: Ask) -> str:
    """The lines that an ask is about, as they stand."""
    if not (ask.path and ask.first):
        return ""
    lines = split_lines((root / ask.path).read_text("utf-8"))
    return "".join(lines[ask.first - 1 : ask.last])
