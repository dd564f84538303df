"""The evidence of a job: an append-only, chained list of gate verdicts, each bound to a tree.

The format is described in ``references/evidence.md``; every gate writes through
:func:`record` and nothing else touches ``evidence.jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_upgrade.evidence import chain
from npu_upgrade.evidence.chain import Record, canonical
from npu_upgrade.evidence.pins import check_pins
from npu_upgrade.evidence.subject import ABSENT, Subject, file_digest
from npu_upgrade.evidence.surroundings import environment as this_environment
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Verdict

if TYPE_CHECKING:
    from npu_upgrade.job.job import Job

SCHEMA = "npu-upgrade/evidence/1"
LABELS = ("static", "emulated dry-run", "CPU dummy", "CPU real", "NPU dummy", "NPU real")
DATA_LIMIT = 64 * 1024  # bytes of one record's data; anything longer belongs in its log


def record(
    job: Job,
    *,
    gate: str,
    label: str,
    verdict: Verdict,
    subject: Subject,
    pins: Mapping[str, Mapping[str, Any]],
    command: Sequence[str],
    started: str,
    seconds: float,
    summary: str,
    log: Path | None = None,
    environment: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Record:
    """Append one verdict and return it; on return it is on disk.

    ``started`` is UTC ISO 8601; ``log`` is hashed as it is now. Raises :class:`BadInput` for a value the
    format does not allow or a ledger that was edited, :class:`Blocked` when the disk takes no more.
    """
    log_sha256 = file_digest(log) if log else None
    body = {
        "schema": SCHEMA,
        "gate": gate,
        "label": label,
        "verdict": verdict.value,
        "subject": subject.as_json(),
        "pins": pins,
        "command": list(command),
        "environment": environment if environment is not None else this_environment(),
        "log": {"path": str(log), "sha256": log_sha256} if log else None,
        "started": started,
        "seconds": round(seconds, 3),
        "summary": summary,
        "data": data or {},
    }
    _check(body)
    check_pins(pins)
    return chain.add(job.folder, body)


def read(job: Job) -> list[Record]:
    """The trusted records, oldest first; raises :class:`BadInput` when the chain was broken."""
    ledger = chain.trusted(job.folder)
    for number in ledger.torn:
        say(f"evidence line {number} is half a record (its writer died) and counts for nothing")
    return ledger.records


def latest(job: Job, gate: str, subject: Subject, label: str | None = None) -> Record | None:
    """The verdict of ``gate`` for exactly this content: its newest record, or None."""
    same = (r for r in reversed(read(job)) if r.gate == gate and r.tree == subject.tree)
    return next((r for r in same if label in (None, r.label)), None)


def standing(records: Iterable[Record], tree: str) -> list[Record]:
    """The newest record of every (gate, label) for ``tree``: labels never stand in for each other."""
    newest: dict[tuple[str, str], Record] = {}
    for one in records:
        if one.tree == tree:
            newest[one.gate, one.label] = one
    return sorted(newest.values(), key=lambda r: (LABELS.index(r.label), r.gate))


def _check(body: dict[str, Any]) -> None:
    wrong = []
    if body["label"] not in LABELS:
        wrong.append(f"label {body['label']!r} is none of {', '.join(LABELS)}")
    if not body["gate"] or not body["subject"]["files"]:
        wrong.append("a gate and at least one file are needed")
    if body["log"] and body["log"]["sha256"] == ABSENT:
        wrong.append(f"there is no log {body['log']['path']}")
    if not _is_utc(body["started"]):
        wrong.append(f"started {body['started']!r} is not UTC ISO 8601 (2026-01-31T12:00:00Z)")
    if "\n" in body["gate"] + body["summary"]:
        wrong.append("gate and summary are single lines")
    if len(canonical(body["data"])) > DATA_LIMIT:
        wrong.append(f"data is larger than {DATA_LIMIT} bytes (put it in the log)")
    if wrong:
        raise BadInput(
            f"not a record of evidence: {'; '.join(wrong)}",
            expected="the fields of references/evidence.md",
            try_="correct the gate that records it",
        )


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False
