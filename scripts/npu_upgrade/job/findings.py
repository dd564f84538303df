"""What the gates found in a job's files: the audit's new findings, and the runs that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_upgrade.code.module import parse_module
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.subject import file_digest
from npu_upgrade.ground.files import read_object
from npu_upgrade.job.ask import EDIT, FINDING, Ask, span
from npu_upgrade.job.job import Job
from npu_upgrade.job.journal import Entry, Journal


def findings(job: Job, journal: Journal, records: list[Record], root: Path) -> Iterator[Ask]:
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
        ask = replace(_finding(finding, root, job.folder / "merged"), evidence=newest.id)
        if not ask.unit or ask.unit not in edited:
            yield ask


def failed_runs(job: Job, journal: Journal, records: list[Record], root: Path) -> Iterator[Ask]:
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


def _finding(finding: dict[str, Any], root: Path, merged: Path) -> Ask:
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
    if path and (merged / path).exists():
        how = (EDIT, '--accept --note "corrected by hand: WHAT"', *how)
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
