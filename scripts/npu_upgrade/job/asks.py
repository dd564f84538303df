"""What is open in a job and needs an answer, in the order in which it is best answered.

Reads the plan, the files, the list of hunks to port and the findings of the gates. Decides
nothing and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.chain import Record
from npu_upgrade.ground.files import read_object
from npu_upgrade.job.ask import CONFLICT, EDIT, ITEM, LOOK, PORT, Ask, root_of, span
from npu_upgrade.job.conflicts import OpenConflict, ids, open_conflicts
from npu_upgrade.job.findings import failed_runs, findings
from npu_upgrade.job.job import Job
from npu_upgrade.job.journal import Journal
from npu_upgrade.job.plan_file import Plan

_WITH_NOTE = ('--accept --note "WHY"', '--waive --note "WHY"')


def asks(job: Job, plan: Plan, records: list[Record]) -> list[Ask]:
    """All that is open, in order; what was left out by ``next --skip`` is not among it."""
    root, journal = root_of(job), Journal(job.folder)
    conflicts = open_conflicts(root, plan)
    found = [_conflict(one) for one in conflicts]
    found += [_item(item, root) for item in plan.items if _open_item(item, conflicts)]
    found += list(_hunks(job, journal, root))
    found += list(findings(job, journal, records, root))
    found += list(failed_runs(job, journal, records, root))
    return [ask for ask in found if ask.stage not in job.skipped]


def _conflict(one: OpenConflict) -> Ask:
    roles = [role for role in ("base", "ours", "theirs") if role in one.marked.labels]
    texts = {role: getattr(one.marked, role) for role in roles}
    how = (*(f"--take {role}" for role in reversed(roles)), EDIT)
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
        how = (*how, EDIT)
    if item.get("kind") in ("unresolved-name", "missing-name"):
        how = (*how, '--import "from MODULE import NAME"')
    texts = {"text": str(item.get("detail") or "")}
    return Ask(ITEM if item.get("blocking") else LOOK, item["id"], title, path, unit, first, last, texts, how)


def unit_of(title: str, path: str) -> str:
    """The qualified name of the method that an item's title begins with, after its path."""
    found = re.match(r"([A-Za-z_]\w*\.[\w@]+)(?=: | )", title.removeprefix(f"{path}: "))
    return found[1] if found else ""


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
