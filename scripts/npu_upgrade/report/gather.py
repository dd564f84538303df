"""Everything the page shows of a job, read from its files; what is missing or damaged is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.module import parse_module, split_lines
from npu_upgrade.delivery.upgrade import written_by_hand
from npu_upgrade.evidence.pins import short_pin
from npu_upgrade.evidence.store import present_store
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import read_object, rows_of
from npu_upgrade.ground.tables import count
from npu_upgrade.job.ask import LOOK, PORT
from npu_upgrade.job.conflicts import BY_HAND
from npu_upgrade.job.job import Job
from npu_upgrade.job.journal import Answer, Continued, Skipped, Undo
from npu_upgrade.job.plan_file import load_plan, plan_path
from npu_upgrade.job.stages import State, Walk
from npu_upgrade.report.overview import HARDWARE, MAINTAINER, REVIEWER, Change, Open, Overview, overview
from npu_upgrade.report.sides import compare, differences
from npu_upgrade.sources.git import clone_at

MOST_ROWS = 300
MOST_TEXT = 3000
MOST_DIFF_ROWS = 6000  # on the whole page
PAIRS = (
    ("base", "theirs", "what upstream changed"),
    ("ours", "result", "what became of ours"),
    ("theirs", "result", "upstream's beside the result"),
)


def gather(job: Job, walk: Walk) -> dict[str, Any]:
    """The data of an upgrade's page: its first screen, then plain lists and dictionaries."""
    plan, audit, port = read_object(plan_path(job)), _audit(job), _port(job)
    return {
        "first": _first(job, walk, plan, [*_undecided(walk, plan, audit, port), *_hardware(walk)]),
        "about": f"{job.id}, started {job.created}" + (f", branch {job.branch}" if job.branch else ""),
        "emulated": walk.facts["emulated"],
        "methods": _methods(job, plan),
        "items": bounded(sorted(rows_of(plan, "items"), key=lambda one: one.get("state") != "open")),
        "audit": audit,
        "port": port,
        "emulate": _emulated(job),
        "runs": bounded(_runs(job.workspace)),
    }


def _first(job: Job, walk: Walk, plan: dict[str, Any], more: list[Open]) -> Overview:
    known = plan.get("versions") or {role: source.identity for role, source in job.inputs.named().items()}
    omni, base, ascend = (short_pin(known.get(role) or {}) for role in ("omni", "base", "ascend"))
    merged, beside = [str(one.get("path")) for one in rows_of(plan, "files")], walk.facts["further_files"]
    came_from = f"{base} to " if known.get("base") else ""
    methods, problem = rows_of(plan, "methods"), walk.facts["evidence_problem"]
    moved = sum(one.get("outcome") != "unchanged" for one in methods)
    verb = "was" if len(methods) == 1 else "were"
    said = f"{count(len(methods), 'method')} {verb} copied from {job.upstream} {base}"
    why = f"{said}, which has changed {moved} of them since."
    return overview(
        walk,
        f"{job.project} {omni}: {job.upstream} {came_from}{ascend}",
        why if methods else "Nothing is merged yet.",
        [
            *(Change(path, _size(job, path), _how(path, methods, rows_of(plan, "items"))) for path in merged),
            *(Change(path, _size(job, path), "edited beside the merge") for path in beside),
        ],
        more,
        f"The evidence cannot be trusted: {problem}" if problem else None,
        by_hand=_by_hand(job),
    )


def _size(job: Job, path: str) -> str:
    """The lines that a file has more and less than before the upgrade; empty where that is not known."""
    try:
        kept, now = job.folder / "before" / path, (job.root / path).read_text("utf-8")
        sha = str(job.inputs.omni.identity.get("sha") or "")
        before = kept.read_text("utf-8") if kept.is_file() or not sha else clone_at(job.root).read(sha, path)
    except (OSError, ValueError, UpgradeError):
        return ""
    rows = [row.kind for row in differences(before.split("\n"), now.split("\n"))]
    added, dropped = (sum(row in (kind, "changed") for row in rows) for kind in ("added", "dropped"))
    return f"+{added} -{dropped}"


def _how(path: str, methods: list[dict[str, Any]], items: list[dict[str, Any]]) -> str:
    """What became of the copied methods of a file."""
    mine = [one for one in methods if one.get("path") == path and one.get("outcome") != "unchanged"]
    return (
        "; ".join(f"{one.get('name')} ({_became(one, items)})" for one in mine) or "no copy in it has changed"
    )


def _became(method: dict[str, Any], items: list[dict[str, Any]]) -> str:
    """``merged, 2 conflicts answered, 3 flags, 1 of them not looked at``."""
    said, where = ["merged"], f"{method.get('path')}: {method.get('name')}: "
    for noun, done, left in (("conflict", "answered", "open"), ("flag", "looked at", "not looked at")):
        if number := len(rows_of(method, f"{noun}s")):
            mine = [one for one in items if str(one.get("kind")).partition("-")[0] == noun]
            mine = [one for one in mine if str(one.get("title")).startswith(where)]
            still = sum(one.get("state") == "open" for one in mine)
            all_alike = done if not still else left if still >= number else ""
            said.append(f"{count(number, noun)} {all_alike}".strip())
            said += [] if all_alike else [f"{still} of them {left}"]
    return ", ".join(said)


def _by_hand(job: Job) -> list[str]:
    try:
        return written_by_hand(job, load_plan(job))
    except UpgradeError:
        return []


def _undecided(
    walk: Walk, plan: dict[str, Any], audit: dict[str, Any], port: dict[str, Any]
) -> Iterator[Open]:
    """What is left to others: items nobody looked at, waivers, hunks not taken; not what is still asked."""
    items = [one for one in rows_of(plan, "items") if not one.get("blocking")]
    open_ = [str(one.get("title")) for one in items if one.get("state") == "open"]
    waived = [
        ": ".join(filter(None, (str(one.get("title")), str(one.get("note") or ""))))
        for one in items
        if one.get("state") == "waived"
    ]
    findings = [f"{one.get('what')}: {one.get('waiver')}" for one in audit["findings"] if one.get("waiver")]
    left = [f"{one.get('unit')}: {one.get('id')}" for one in port["hunks"] if not one.get("answer")]
    rows = (
        (REVIEWER, "decision", "on thin evidence or beside the merge not looked at", open_, LOOK),
        (REVIEWER, "decision", "on thin evidence or beside the merge waived", waived, ""),
        (REVIEWER, "finding", "of the audit waived", findings, ""),
        (MAINTAINER, "hunk", "that the GPU side gained and the NPU side lacks", left, PORT),
    )
    for who, noun, what, found, asked in rows:
        if found and not walk.left.get(asked):
            yield Open(who, f"{count(len(found), noun)} {what}", found)


def _hardware(walk: Walk) -> Iterator[Open]:
    serve = next(stage for stage in walk.stages if stage.name == "serve")
    if serve.state == State.SKIPPED:
        yield Open(HARDWARE, serve.said)


def timeline(walk: Walk) -> list[dict[str, Any]]:
    """Gates and what people said, in the order they happened; ``why`` a gate's verdict does not count."""
    rows = [
        one | {"at": one["started"], "what": one["gate"], "said": one["summary"]}
        for one in (*walk.standing, *walk.other)
    ]
    gates = {row["what"] for row in rows}
    rows += [
        {"at": one.at, "what": one.name, "verdict": one.verdict, "said": one.said}
        for one in walk.stages
        if one.at and one.name.partition(" ")[0] not in gates
    ]
    for kind in (Answer, Undo, Continued, Skipped):
        for entry in walk.journal.of(kind):
            parts = (entry.id, getattr(entry, "how", ""), getattr(entry, "note", ""))
            said = " ".join(filter(None, parts))[:MOST_TEXT]
            rows.append({"at": entry.at, "what": kind.__struct_config__.tag, "said": said})
    return bounded(sorted(rows, key=lambda row: row["at"]))


def _methods(job: Job, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The merged methods with their comparisons, until the page has enough rows."""
    texts = {
        (one.get("path"), one.get("name")): one
        for one in rows_of(read_object(job.folder / "methods.json"), "methods")
    }
    found, rows = [], 0
    for method in rows_of(plan, "methods"):
        sides = dict(texts.get((method.get("path"), method.get("name")), {}))
        sides["result"] = _result(job.root / str(method.get("path")), str(method.get("name")))
        pairs = []
        for left, right, title in PAIRS:
            if sides.get(left) and sides.get(right) and rows < MOST_DIFF_ROWS:
                compared = compare(sides[left], sides[right])
                rows += len(compared.rows)
                pairs.append({"left": left, "right": right, "title": title, "sides": compared})
        found.append(method | {"pairs": pairs, "cut": rows >= MOST_DIFF_ROWS, "by_hand": BY_HAND})
    return found


def _result(file: Path, name: str) -> str:
    """A method as it stands now, conflict markers included; empty where it cannot be told."""
    try:
        text = file.read_text("utf-8")
        reading = answers(text)[0]
        unit = parse_module(reading.text).units[name]
    except (OSError, SyntaxError, ValueError, KeyError, UpgradeError):
        return ""
    first, last = reading.rows[unit.start], reading.rows[unit.end - 1]
    return "".join(split_lines(text)[first : last + 1]).rstrip("\n")


def _audit(job: Job) -> dict[str, Any]:
    audit = read_object(job.folder / "audit.json")
    findings = sorted(
        rows_of(audit, "findings"),
        key=lambda one: (
            ("NEW", "WAIVED", "LAG").index(one.get("state"))
            if one.get("state") in ("NEW", "WAIVED", "LAG")
            else 3
        ),
    )
    return audit | {"findings": bounded(findings), "all": len(findings)}


def _port(job: Job) -> dict[str, Any]:
    port = read_object(job.folder / "port.json")
    how = {entry.id: entry.how for entry in job.journal.answers()}
    hunks = [one | {"answer": how.get(str(one.get("id")), "")} for one in rows_of(port, "hunks")]
    return port | {"hunks": bounded(hunks)}


def _emulated(job: Job) -> dict[str, Any]:
    emulate = read_object(job.folder / "emulate.json")
    names = ("runs", "hardware_or_review_only")
    return emulate | {name: bounded(rows_of(emulate, name)) for name in names}


def _runs(workspace: Path) -> list[dict[str, Any]]:
    """The runs of servers in the workspace, newest first, as each run's folder tells."""
    folder = present_store(workspace).runs
    return [run_of(path.parent) for path in sorted(folder.glob("*/verdict.json"), reverse=True)]


def run_of(folder: Path) -> dict[str, Any]:
    """The run of a server in ``folder``, as its files tell."""
    said, result = read_object(folder / "verdict.json"), read_object(folder / "result.json")
    names = ("gate", "label", "verdict", "summary", "started")
    return {"id": folder.name, "result": result} | {key: said.get(key) or result.get(key) for key in names}


def bounded(rows: list[Any]) -> list[Any]:
    """The first rows, with their long texts cut."""
    return [_short(row) for row in rows[:MOST_ROWS]]


def _short(value: Any) -> Any:
    """A value with its long texts cut."""
    if isinstance(value, str):
        return (
            value if len(value) <= MOST_TEXT else f"{value[:MOST_TEXT]} ... ({len(value) - MOST_TEXT} more)"
        )
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value[:MOST_ROWS]] if isinstance(value, list) else value
