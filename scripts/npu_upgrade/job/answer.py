"""Takes an answer to something open: checks it, writes it into the file, and remembers it.

An answer that fails its checks changes nothing. Each function returns the journal's entry, or
the problems that kept it from being written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from npu_upgrade.code.formatting import formatted
from npu_upgrade.evidence.subject import file_digest
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import read_object, sha256, write_atomic
from npu_upgrade.job import answer_checks as checks
from npu_upgrade.job.answer_edits import class_for, with_changes, with_imports, with_methods
from npu_upgrade.job.ask import FINDING, ITEM, LOOK, PORT, Ask
from npu_upgrade.job.changes import base_of, changed_since
from npu_upgrade.job.check import before_merge, downstream, edited_unit, remembered
from npu_upgrade.job.conflicts import (
    FROM_PORT,
    OpenConflict,
    conflicts_in,
    indented,
    marked_text,
    without,
)
from npu_upgrade.job.job import Job, ruling
from npu_upgrade.job.journal import Answer, Journal, Undo
from npu_upgrade.job.plan_file import Plan, load_plan
from npu_upgrade.job.port_ledger import BY_HAND, OPEN, WAIVED
from npu_upgrade.job.port_ledger import Ledger as PortLedger
from npu_upgrade.lineage.imports import without_lost
from npu_upgrade.merge.conflict_identity import conflict_key
from npu_upgrade.merge.guards import GUARD, guarded
from npu_upgrade.merge.overridden import OVERRIDDEN
from npu_upgrade.merge.pinned import PIN, repinned
from npu_upgrade.sources.checkout import open_checkout

WAIVERS = "waivers.yaml"
NO_CHANGE = "the answer changes nothing"


@dataclass(frozen=True)
class Answered:
    """What became of an answer: written (``entry``), or not (``problems``)."""

    entry: Answer | Undo | None
    problems: list[str]


def to_conflict(
    job: Job, plan: Plan, ask: Ask, how: str, text: str, imports: Sequence[str], note: str
) -> Answered:
    """Put ``text`` in the place of a conflict."""
    conflict = ask.conflict
    assert conflict
    before = _read(job, plan, ask.path)
    problems = checks.of_answer(conflict, text) if how == "with" else []
    if how != "with" and conflict.reason == FROM_PORT:
        text = checks.with_marker(conflict.marked.ours, text)
    text = indented(text, conflict)
    after = with_imports(without(before, conflict, text), list(imports))
    problems += checks.problems(before, after, before_merge(job, ask.path))
    if problems:
        return Answered(None, problems)
    after = _tidy(job, ask.path, before, without_lost(ask.path, before, after, lambda: downstream(job)))
    marked = marked_text(before, conflict)
    place = {"units": [ask.unit], "text": text, "imports": list(imports), "note": note, "how": how}
    entry = _write(job, ask, before, after, place | {"marked": marked})
    _remember(job, plan, conflict, text)
    return Answered(entry, [])


def to_methods(job: Job, plan: Plan, ask: Ask, text: str, imports: Sequence[str], note: str) -> Answered:
    """Replace whole methods, or add them to the class, and add imports."""
    before = _read(job, plan, ask.path)
    after, units = with_methods(before, class_for(before, ask.owner, text), text) if text else (before, [])
    after = with_imports(after, list(imports))
    problems = checks.problems(before, after, before_merge(job, ask.path))
    if after == before:
        problems.append(NO_CHANGE)
    if problems:
        return Answered(None, problems)
    after = _tidy(job, ask.path, before, after)
    place = {"units": units, "text": text, "imports": list(imports), "note": note}
    return Answered(_write(job, ask, before, after, place | {"how": "with" if text else "import"}), [])


def to_edit(job: Job, plan: Plan, ask: Ask, note: str) -> Answered:
    """Make the edit that was proposed, of a file that becomes part of the upgrade by it."""
    path = job.root / ask.path
    if ask.path in plan.hashes:
        before = _read(job, plan, ask.path)
    else:
        before = path.read_bytes().decode("utf-8") if path.is_file() else ""
    if ask.edit == PIN:
        after, problems = repinned(before, ask.changes), []
    else:
        if ask.edit == OVERRIDDEN:
            after = with_changes(before, ask.unit, ask.changes, ask.imports)
        else:
            base = (plan.versions.get("base") or {}).get("spec")
            after = guarded(ask.path, before, base, job.inputs.ascend.spec, downstream(job))
        problems = checks.problems(before, after, before_merge(job, ask.path))
    if after == before:
        problems.append("it is not as it was any more: --by-hand if you edited it, or --waive")
    if problems:
        return Answered(None, problems)
    if ask.edit == GUARD:
        after = without_lost(ask.path, before, after, lambda: downstream(job))
    if ask.edit != PIN:
        after = _tidy(job, ask.path, before, after)
    return Answered(_write(job, ask, before, after, {"note": note, "how": "accept"}), [])


def _tidy(job: Job, path: str, before: str, after: str) -> str:
    """The file in the project's style, by what was changed since before the merge."""
    folder = Path(job.repo) if job.repo else downstream(job).root
    return formatted(folder, path, before_merge(job, path) or before, after) if folder else after


def by_word(job: Job, ask: Ask, how: str, note: str, until: str) -> Answered:
    """Accept, waive or leave something without touching a file."""
    if ask.stage == PORT and how == "by-hand" and (lacking := _not_written(job, ask)):
        what = f"none of what it brings is in the files: {', '.join(lacking[:6])}"
        return Answered(None, [f"{what}; write it first, or --leave or --waive it"])
    if ask.stage == FINDING and how == "accept" and not _corrected(job, ask):
        waivable = any(one[0] == "--waive" for one in ask.how)
        other = "--waive it" if waivable else f"stop and report it; {ruling()}"
        return Answered(None, [f"nothing was corrected since it was found: correct it, or {other}"])
    if ask.finding and how == "waive":
        _waive_finding(job, ask.finding, note, until or _next_minor(job))
    if ask.stage == PORT:
        set_hunk(job.workspace, ask.id, how, note)
    return Answered(_note(job, ask, how=how, note=note), [])


def keep_reasons(job: Job, explained: Sequence[Mapping[str, Any]]) -> None:
    """Keep why methods were written by hand, by the items that ask for it and have a note."""
    for item in explained:
        to_closed(job, Ask(ITEM, item["id"], item["title"], item["path"], edited_unit(item)), item["note"])


def to_closed(job: Job, ask: Ask, note: str) -> Answer:
    """Keep the reason that was given for what an edit had closed."""
    return _note(job, ask, how="accept", note=note)


def _corrected(job: Job, ask: Ask) -> bool:
    """Whether a file was changed since the gate that found it: by hand, or by an answer to the same gate."""
    record = next((one for one in job.records() if one.id == ask.evidence), None)
    if record is None or any(file_digest(job.root / p) != d for p, d in record.subject.files.items()):
        return True
    if load_plan(job).subject(job.root).files.keys() - record.subject.files.keys():
        return True
    return ask.path not in record.subject.files and _edited(job, ask.path)


def _edited(job: Job, path: str) -> bool:
    """Whether a file that no gate judged yet is another than before the upgrade."""
    if not path or not job.repo:
        return False
    checkout = open_checkout(Path(job.repo))
    return bool(changed_since(checkout, base_of(checkout, job.marker), [path]))


def _not_written(job: Job, ask: Ask) -> list[str]:
    """The words that a hunk is the first to bring, where the folders of the upgrade have none of them."""
    entry = PortLedger(job.workspace).entries.get(ask.id)
    if entry is None:
        return []
    paths = list(load_plan(job).hashes)
    folders = {(job.root / path).parent for path in paths}
    brought = _words(entry.new) - _words(entry.old, *(before_merge(job, path) for path in paths))
    texts = (path.read_text("utf-8", "replace") for folder in folders for path in folder.glob("*.py"))
    return [] if brought & _words(*texts) else sorted(brought)


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"[A-Za-z_]\w{2,}", text)} - {"self", "cls"}


def undo(job: Job, entry: Answer) -> Answered:
    """Take an answer back: the file's lines as they were, where nothing else touched them since."""
    if entry.after:
        problem = _undo_file(job, job.journal, entry)
        if problem:
            return Answered(None, [problem])
    elif entry.how == "waive" and entry.stage in (FINDING, ITEM, LOOK):
        found = {item["id"]: item.get("finding") for item in load_plan(job).items}
        _write_waivers(job, found.get(entry.id) or entry.id)
    elif entry.stage == PORT:
        set_hunk(job.workspace, entry.id)
    return Answered(job.journal.add(Undo, id=entry.id, undoes=entry.number), [])


def _undo_file(job: Job, journal: Journal, entry: Answer) -> str:
    path = job.root / entry.path
    now = path.read_bytes().decode("utf-8") if path.exists() else ""
    whole = journal.kept(entry.before)
    if sha256(now) == entry.after and whole is not None:
        write_atomic(path, whole)
    elif entry.marked and entry.text.strip() and now.count(entry.text.rstrip("\n") + "\n") == 1:
        write_atomic(path, now.replace(entry.text.rstrip("\n") + "\n", entry.marked))
    else:
        return f"{entry.path} was changed since: put the lines back by hand, then upgrade.py plan"
    for one in conflicts_in(entry.marked, entry.path, {}) if entry.marked else ():
        remembered(job).forget(conflict_key(*one.texts), {"path": entry.path, "method": entry.unit})
    return ""


def _read(job: Job, plan: Plan, path: str) -> str:
    """The file as it is; :class:`BadInput` when it is not as the last check or answer left it.

    How files beside the merged ones were left no check says.
    """
    file = job.root / path
    beside = bool(job.repo) and path.endswith(".py") and file.is_file()
    if path not in plan.files and not beside:
        raise BadInput(
            f"{path or 'that place'} is not a file of this upgrade",
            expected=f"one of {', '.join(plan.files)}, or a Python file of the checkout",
            try_="--in base, ar or generation; or correct the file by hand, and --accept with a note",
        )
    try:
        text = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot read {file}: {error}", expected="the runner file", try_="upgrade.py plan"
        ) from error
    if path in plan.hashes and sha256(text) not in _left(job, plan, path):
        raise BadInput(
            f"{file} was changed since it was last checked, and not by an answer",
            expected="the file as upgrade.py plan or resolve left it",
            try_="look at the change; `upgrade.py plan` takes the file as it is, then answer again",
        )
    return text


def edited_by_hand(job: Job, plan: Plan) -> bool:
    """Whether a merged file is not as the last check or answer left it."""
    return any(file_digest(job.root / path) not in _left(job, plan, path) for path in plan.hashes)


def _left(job: Job, plan: Plan, path: str) -> set[str]:
    """How the last check, the answers and a port that left conflicts have left a file."""
    ported = read_object(job.folder / "port.json").get("left", {}).get(path)
    answered = (entry.after for entry in job.journal.answers() if entry.path == path)
    return {plan.hashes[path], *answered} | ({str(ported)} if ported else set())


def _write(job: Job, ask: Ask, before: str, after: str, place: dict[str, Any]) -> Answer:
    digest = sha256(before)
    job.journal.keep(digest, before)
    write_atomic(job.root / ask.path, after)
    return _note(job, ask, before=digest, after=sha256(after), **place)


def _note(job: Job, ask: Ask, **more: Any) -> Answer:
    where = {"id": ask.id, "stage": ask.stage, "path": ask.path, "unit": ask.unit, "evidence": ask.evidence}
    return job.journal.add(Answer, **where, **more)


def _remember(job: Job, plan: Plan, conflict: OpenConflict, text: str) -> None:
    if not conflict.marked.has_base:
        return  # what it is the same as cannot be told
    base, ours, theirs = conflict.texts
    versions = {role: pin["spec"] for role, pin in plan.versions.items() if pin and "spec" in pin}
    where = {"path": conflict.path, "method": conflict.method, "job": job.id, "versions": versions}
    where |= {"labels": conflict.marked.labels}
    remembered(job).remember(conflict_key(base, ours, theirs), base, ours, theirs, text, where)


def set_hunk(workspace: Path, id_: str, how: str = "", note: str = "") -> bool:
    """Keep what was answered to a hunk that the port ledger knows; false when it knows none of that id."""
    ledger = PortLedger(workspace)
    if id_ not in ledger.entries:
        return False
    state = {"waive": WAIVED, "by-hand": BY_HAND}.get(how, OPEN)
    ledger.set(id_, state, note if state != OPEN else "")
    ledger.save()
    return True


def _waive_finding(job: Job, key: str, note: str, until: str) -> None:
    try:
        Version(until)
    except InvalidVersion as error:
        raise BadInput(
            f"--until {until!r} is no version", expected="a vllm-ascend version", try_="--until 0.31.0"
        ) from error
    _write_waivers(job, key, {"key": key, "reason": note, "until": until})


def _write_waivers(job: Job, key: str, *new: dict[str, str]) -> None:
    """Put what is ``new`` in the place of the waiver of a finding."""
    path = job.folder / WAIVERS
    known = yaml.safe_load(path.read_text("utf-8")) or [] if path.exists() else []
    entries = [entry for entry in known if entry["key"] != key]
    write_atomic(path, yaml.safe_dump([*entries, *new], sort_keys=False, allow_unicode=True))


def _next_minor(job: Job) -> str:
    """The first upstream of the next minor version: by then the finding is looked at again."""
    version = Version(str(job.inputs.ascend.identity.get("version") or "0"))
    return f"{version.major}.{version.minor + 1}.0"
