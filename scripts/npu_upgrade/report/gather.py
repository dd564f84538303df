"""Everything the page shows of a job, read from its files; what is missing or damaged is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.module import parse_module, split_lines
from npu_upgrade.evidence.pins import short_pin
from npu_upgrade.evidence.store import present_store
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import read_object
from npu_upgrade.job.conflicts import BY_HAND
from npu_upgrade.job.job import Job
from npu_upgrade.job.journal import Answer, Continued, Skipped, Undo
from npu_upgrade.job.plan_file import plan_path
from npu_upgrade.job.stages import Walk, next_step
from npu_upgrade.report.sides import compare

MOST_ROWS = 300
MOST_TEXT = 3000
MOST_DIFF_ROWS = 6000  # on the whole page
PAIRS = (
    ("base", "theirs", "what vllm-ascend changed"),
    ("ours", "result", "what became of vllm-omni's"),
    ("theirs", "result", "vllm-ascend's beside the result"),
)


def gather(job: Job, walk: Walk) -> dict[str, Any]:
    """The data of an upgrade's page: plain lists and dictionaries of text and numbers."""
    plan = read_object(plan_path(job))
    return {
        "job": job,
        "versions": _versions(job, plan),
        "broken": walk.facts["evidence_problem"],
        "validation": walk.facts["npu_validation"],
        "emulated": walk.facts["emulated"],
        "methods": _methods(job, plan),
        "items": bounded(rows_of(plan, "items")),
        "audit": _audit(job),
        "port": _port(job),
        "emulate": _emulated(job),
        "runs": bounded(_runs(job.workspace)),
    }


def shared(walk: Walk) -> dict[str, Any]:
    """What every page has: what is next, the stages, and what happened."""
    step = next_step(walk)
    return {
        "next": {"why": step.why, "command": step.command and str(step.command), "stop": step.stop},
        "stages": [stage.as_json() for stage in walk.stages],
        "timeline": bounded(_timeline(walk)),
        "skipped": walk.journal.skipped(),
    }


def _versions(job: Job, plan: dict[str, Any]) -> list[tuple[str, str]]:
    known = plan.get("versions") or {role: source.identity for role, source in job.inputs.named().items()}
    names = (("vllm-omni", "omni"), ("copied from vllm-ascend", "base"), ("to vllm-ascend", "ascend"))
    pins: list[tuple[str, dict[str, Any]]] = [(name, known.get(role) or {}) for name, role in names]
    return [(name, f"{short_pin(pin)} {pin.get('spec', '')}") for name, pin in pins if pin]


def _timeline(walk: Walk) -> list[dict[str, Any]]:
    """Gates and what people said, in the order they happened; ``why`` a gate's verdict does not count."""
    rows = [
        one | {"at": one["started"], "what": one["gate"], "said": one["summary"]}
        for one in (*walk.standing, *walk.other)
    ]
    for kind in (Answer, Undo, Continued, Skipped):
        for entry in walk.journal.of(kind):
            parts = (entry.id, getattr(entry, "how", ""), getattr(entry, "note", ""))
            said = " ".join(filter(None, parts))[:MOST_TEXT]
            rows.append({"at": entry.at, "what": kind.__struct_config__.tag, "said": said})
    return sorted(rows, key=lambda row: row["at"])


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


def rows_of(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list; a page can be made of a file that another version wrote."""
    rows = value.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


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
