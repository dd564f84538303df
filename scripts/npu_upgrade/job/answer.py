"""Takes an answer to something open: checks it, writes it into the file, and remembers it.

An answer that fails its checks changes nothing. Each function returns the journal's entry, or
the problems that kept it from being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import workspace_root
from npu_upgrade.job import answer_checks as checks
from npu_upgrade.job.answer_edits import main_class, with_imports, with_methods
from npu_upgrade.job.ask import FINDING, PORT, Ask, root_of
from npu_upgrade.job.conflicts import OpenConflict, conflicts_in, marked_text, without
from npu_upgrade.job.job import Job
from npu_upgrade.job.journal import ANSWER, UNDO, Entry, Journal
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.job.port_ledger import OPEN, WAIVED
from npu_upgrade.job.port_ledger import Ledger as PortLedger
from npu_upgrade.merge.answers import Answers
from npu_upgrade.merge.conflict_identity import conflict_key

WAIVERS = "waivers.yaml"


@dataclass(frozen=True)
class Answered:
    """What became of an answer: written (``entry``), or not (``problems``)."""

    entry: Entry | None
    problems: list[str]


def to_conflict(
    job: Job, plan: Plan, ask: Ask, how: str, text: str, imports: Sequence[str], note: str
) -> Answered:
    """Put ``text`` in the place of a conflict."""
    conflict = ask.conflict
    assert conflict
    before = _read(job, plan, ask.path)
    after = with_imports(without(before, conflict, text), list(imports))
    problems = checks.of_answer(conflict, text) if how == "with" else []
    problems += checks.problems(before, after)
    if problems:
        return Answered(None, problems)
    place = {"path": ask.path, "unit": ask.unit, "units": [ask.unit], "text": text, "note": note, "how": how}
    place |= {"marked": marked_text(before, conflict), "imports": list(imports)}
    entry = _write(job, ask, before, after, place)
    _remember(job, plan, conflict, text)
    return Answered(entry, [])


def to_methods(job: Job, plan: Plan, ask: Ask, text: str, imports: Sequence[str], note: str) -> Answered:
    """Replace whole methods, or add them to the class, and add imports."""
    before = _read(job, plan, ask.path)
    after, units = with_methods(before, ask.owner or main_class(before), text) if text else (before, [])
    after = with_imports(after, list(imports))
    problems = checks.problems(before, after)
    if after == before:
        problems.append("the answer changes nothing")
    if problems:
        return Answered(None, problems)
    place = {"path": ask.path, "unit": ask.unit, "units": units, "text": text, "note": note}
    place |= {"how": "with" if text else "import", "imports": list(imports), "evidence": ask.evidence}
    return Answered(_write(job, ask, before, after, place), [])


def by_word(job: Job, ask: Ask, how: str, note: str, until: str) -> Answered:
    """Accept, waive or leave something without touching a file."""
    if ask.stage == FINDING and how == "waive":
        _waive_finding(job, ask.id, note, until or _next_minor(job))
    if ask.stage == PORT:
        _set_hunk(job, ask.id, WAIVED if how == "waive" else OPEN, note if how == "waive" else "")
    more = {
        "path": ask.path,
        "unit": ask.unit,
        "how": how,
        "note": note,
        "evidence": ask.evidence,
        "stage": ask.stage,
    }
    return Answered(Journal(job.folder).add(ANSWER, ask.id, before="", after="", text="", **more), [])


def undo(job: Job, plan: Plan, entry: Entry) -> Answered:
    """Take an answer back: the file's lines as they were, where nothing else touched them since."""
    journal = Journal(job.folder)
    if entry.get("after"):
        problem = _undo_file(job, plan, journal, entry)
        if problem:
            return Answered(None, [problem])
    elif entry.get("stage") == FINDING:
        _unwaive_finding(job, entry["id"])
    elif entry.get("stage") == PORT:
        _set_hunk(job, entry["id"], OPEN, "")
    return Answered(journal.add(UNDO, entry["id"], undoes=entry["number"]), [])


def _undo_file(job: Job, plan: Plan, journal: Journal, entry: Entry) -> str:
    path = root_of(job) / entry["path"]
    now = path.read_bytes().decode("utf-8") if path.exists() else ""
    whole = journal.kept(entry["before"])
    if sha256(now) == entry["after"] and whole is not None:
        write_atomic(path, whole)
    elif entry.get("marked") and entry["text"].strip() and now.count(entry["text"].rstrip("\n") + "\n") == 1:
        write_atomic(path, now.replace(entry["text"].rstrip("\n") + "\n", entry["marked"]))
    else:
        return f"{entry['path']} was changed since: put the lines back by hand, then upgrade.py plan"
    if entry.get("marked"):
        _forget(job, entry)
    return ""


def _read(job: Job, plan: Plan, path: str) -> str:
    """The file as it is; :class:`BadInput` when it is not as the last check or answer left it."""
    if path not in plan.files:
        raise BadInput(
            f"{path or 'that place'} is not a file of this upgrade",
            expected=f"one of {', '.join(plan.files)}",
            try_="--in base, ar or generation; other files are corrected by hand, in a commit of their own",
        )
    file = root_of(job) / path
    try:
        text = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot read {file}: {error}", expected="the runner file", try_="upgrade.py plan"
        ) from error
    known = {plan.hashes.get(path, "")}
    known |= {entry["after"] for entry in Journal(job.folder).active() if entry.get("path") == path}
    if sha256(text) not in known:
        raise BadInput(
            f"{file} was changed since it was last checked, and not by an answer",
            expected="the file as upgrade.py plan or resolve left it",
            try_="look at the change; `upgrade.py plan` takes the file as it is, then answer again",
        )
    return text


def _write(job: Job, ask: Ask, before: str, after: str, place: dict[str, Any]) -> Entry:
    journal, digest = Journal(job.folder), sha256(before)
    journal.keep(digest, before)
    write_atomic(root_of(job) / ask.path, after)
    return journal.add(ANSWER, ask.id, stage=ask.stage, before=digest, after=sha256(after), **place)


def _remember(job: Job, plan: Plan, conflict: OpenConflict, text: str) -> None:
    base, ours, theirs = conflict.texts
    versions = {role: pin["spec"] for role, pin in plan.versions.items() if pin and "spec" in pin}
    where = {"path": conflict.path, "method": conflict.method, "job": job.id, "versions": versions}
    where |= {"labels": conflict.marked.labels}
    _answers(job).remember(conflict_key(base, ours, theirs), base, ours, theirs, text, where)


def _forget(job: Job, entry: Entry) -> None:
    for one in conflicts_in(entry["marked"], entry["path"], {}):
        key = conflict_key(*one.texts)
        _answers(job).forget(key, {"path": entry["path"], "method": entry["unit"]})


def _answers(job: Job) -> Answers:
    return Answers(workspace_root(job.workspace) / "answers")


def _set_hunk(job: Job, id_: str, state: str, note: str) -> None:
    ledger = PortLedger(job.workspace)
    if id_ in ledger.entries:
        ledger.set(id_, state, note)
        ledger.save()


def waived_findings(job: Job) -> list[dict[str, str]]:
    """The audit's findings that were waived in this job, as the waiver file has them."""
    path = job.folder / WAIVERS
    return yaml.safe_load(path.read_text("utf-8")) or [] if path.exists() else []


def _waive_finding(job: Job, key: str, note: str, until: str) -> None:
    try:
        Version(until)
    except InvalidVersion as error:
        raise BadInput(
            f"--until {until!r} is no version", expected="a vllm-ascend version", try_="--until 0.31.0"
        ) from error
    entries = [entry for entry in waived_findings(job) if entry["key"] != key]
    entries.append({"key": key, "reason": note, "until": until})
    write_atomic(job.folder / WAIVERS, yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))


def _unwaive_finding(job: Job, key: str) -> None:
    entries = [entry for entry in waived_findings(job) if entry["key"] != key]
    write_atomic(job.folder / WAIVERS, yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))


def _next_minor(job: Job) -> str:
    """The first vllm-ascend of the next minor version: by then the finding is looked at again."""
    version = Version(str(job.inputs["ascend"]["identity"].get("version") or "0"))
    return f"{version.major}.{version.minor + 1}.0"
