"""The file of the evidence: one canonical JSON record per line, each naming the one before.

It knows nothing of what a record means; see ``references/evidence.md`` for the format.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256, sync_folder, write_atomic
from npu_upgrade.ground.locks import locked

SCHEMA = "npu-upgrade/evidence/2"
TORN = b"#torn"  # closes the line of a writer that died in it


class OfJob(Struct, frozen=True):
    """The upgrade job that a record is about, and the tree of that job's files when it was made."""

    id: str
    tree: str


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One verdict of one gate; the fields are those of the JSON line."""

    id: str
    schema: str
    previous: str | None
    job: OfJob | None
    gate: str
    label: str
    verdict: str
    subject: Subject
    pins: dict[str, dict[str, Any]]
    command: list[str]
    environment: dict[str, Any]
    log: dict[str, str] | None
    started: str
    seconds: float
    summary: str
    data: dict[str, Any]

    @property
    def tree(self) -> str:
        """The content it is about: the job's files for a record of a job, else what was judged."""
        return self.job.tree if self.job else self.subject.tree

    @property
    def run(self) -> str | None:
        """The id of the run's folder, None for a gate that leaves none."""
        return self.data.get("run")


@dataclass
class Ledger:
    """A ledger as read: the records to trust, the numbers of torn lines, and what breaks the chain."""

    records: list[Record] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)
    unfinished: bool = False  # the newest line is torn: a gate ended without a readable verdict
    broken: str | None = None
    older: str | None = None  # the schema of an older version


def canonical(value: Any) -> bytes:
    """The one JSON spelling of ``value``: ASCII, sorted keys, no spaces; raises ValueError on NaN."""
    # Read back first: keys that are not text become text, and must be sorted as text.
    plain = json.loads(json.dumps(value, allow_nan=False))
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def add(folder: Path, body: dict[str, Any]) -> Record:
    """Append a record after the newest one, under a lock; on return it is on disk."""
    with locked(folder / "evidence.lock"):
        records = trusted(folder).records
        body = body | {"previous": records[-1].id if records else None}
        line = canonical(body | {"id": sha256(canonical(body))})
        _append(ledger_path(folder), line + b"\n")
        new = msgspec.convert(json.loads(line), Record)
        write_atomic(_head_path(folder), new.id + "\n")
    return new


def trusted(folder: Path) -> Ledger:
    """The records in a folder; raises :class:`BadInput` when the chain is broken or of an older version."""
    ledger = load(folder)
    if ledger.older:
        raise BadInput(
            f"{ledger_path(folder)} was written by an older version ({ledger.older})",
            expected=f"records of {SCHEMA}",
            try_=f"finish with that version, or move {folder} away and run the gates again",
        )
    if ledger.broken:
        raise BadInput(
            f"the evidence in {ledger_path(folder)} cannot be trusted: {ledger.broken}",
            expected="the records as the gates wrote them",
            try_="restore it, or move it and evidence.head out of that folder and run the gates again",
        )
    return ledger


def finished(ledger: Ledger) -> None:
    """Raise :class:`BadInput` when the newest record is torn: it may be the verdict that counts."""
    if ledger.unfinished:
        raise BadInput(
            "the newest record of evidence is half-written: a gate died while it ended",
            expected="the verdict of every gate that ran",
            try_="run that gate again",
        )


def load(folder: Path) -> Ledger:
    """Read the ledger and check its chain, without refusing anything."""
    path, head, ledger = ledger_path(folder), _head_path(folder), Ledger()
    newest = head.read_text("utf-8").strip() if head.exists() else None  # read first: a writer moves it last
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    unended = lines.pop()  # what stands after the last newline: nothing, or half a record
    for number, line in enumerate(lines, start=1):
        _take(ledger, number, line)
    if unended:
        _take(ledger, len(lines) + 1, unended + TORN)
    if newest and not ledger.broken and newest not in {entry.id for entry in ledger.records}:
        ledger.broken = "its newest records were removed"
    return ledger


def files(folder: Path) -> list[Path]:
    """The files of a chain that are there."""
    return [path for path in (ledger_path(folder), _head_path(folder)) if path.exists()]


def ledger_path(folder: Path) -> Path:
    return folder / "evidence.jsonl"


def _head_path(folder: Path) -> Path:
    # A chain alone does not show that its last lines were cut off; this names the newest record.
    return folder / "evidence.head"


def _take(ledger: Ledger, number: int, line: bytes) -> None:
    if ledger.broken:
        return
    if line.endswith(TORN):
        ledger.torn.append(number)
        ledger.unfinished = True
        return
    try:
        value = json.loads(line)
        digest = sha256(canonical({key: value[key] for key in value if key != "id"}))
        if value["schema"] != SCHEMA:
            ledger.older = str(value["schema"])
            ledger.broken = f"line {number} is of another version ({ledger.older}, not {SCHEMA})"
            return
        entry = msgspec.convert(value, Record)
    except (ValueError, TypeError, KeyError):
        ledger.broken = f"line {number} is not a record"
        return
    before = ledger.records[-1].id if ledger.records else None
    if entry.id != digest:
        ledger.broken = f"line {number} was changed after it was written"
    elif entry.previous != before:
        ledger.broken = f"a record before line {number} was changed, moved or removed"
    else:
        ledger.records.append(entry)
        ledger.unfinished = False


def _append(path: Path, line: bytes) -> None:
    try:
        with open(path, "ab+", buffering=0) as stream:
            if stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    line = TORN + b"\n" + line  # close the torn line for good: it may lack its newline only
            if stream.write(line) != len(line):
                raise OSError("the disk took only a part")
            os.fsync(stream.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise Blocked(
            f"cannot append to {path}: {error.strerror or error}",
            expected="room for one more line",
            try_="free some space and run the gate again",
        ) from error
