"""The evidence of a workspace: one chain of records, and the folders that runs of servers leave.

The format is described in ``references/evidence.md``. Every gate writes through :meth:`Store.record`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from npu_upgrade.evidence import chain, manifest, run_folder
from npu_upgrade.evidence.chain import SCHEMA, Ledger, OfJob, Record, canonical
from npu_upgrade.evidence.pins import check_pins
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.run_folder import PARTIAL, RunFolder
from npu_upgrade.evidence.subject import ABSENT, Subject, file_digest
from npu_upgrade.evidence.surroundings import environment as this_environment
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.ground.verdict import Verdict

DRY_RUN, NPU_REAL = "emulated dry-run", "NPU real"
LABELS = ("static", DRY_RUN, "CPU dummy", "CPU real", "NPU dummy", NPU_REAL)
DATA_LIMIT = 64 * 1024  # bytes of one record's data; anything longer belongs in its log
_LOG = "server.log"


class Outcome(Struct, frozen=True, kw_only=True):
    """What a gate has to say about one run of it.

    ``started`` is UTC ISO 8601; ``job`` the upgrade it is about, if any; ``log`` is hashed as it is now;
    ``root`` the first root cause; ``environment`` that of the interpreter that was judged, where it is
    not this one.
    """

    gate: str
    label: str
    verdict: Verdict
    subject: Subject
    pins: Mapping[str, Mapping[str, Any]]
    command: Sequence[str]
    started: str
    seconds: float
    summary: str
    job: OfJob | None = None
    log: Path | None = None
    root: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Store:
    """``folder`` holds the chain, ``evidence.jsonl``, and ``runs/<id>/``."""

    folder: Path

    @property
    def workspace(self) -> Path:
        """The folder whose ``.npu-upgrade`` holds this store."""
        return self.folder.parents[1]

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def begin(self, gate: str, redactor: Redactor) -> RunFolder:
        return run_folder.begin(self.runs, gate, redactor)

    def record(self, outcome: Outcome, run: RunFolder | None = None) -> Record:
        """Close the run's folder, if there is one, and append the record; on return both are on disk.

        Raises :class:`BadInput` for a value the format does not allow or a chain that was edited,
        :class:`Blocked` when the disk takes no more.
        """
        digest = file_digest(outcome.log) if outcome.log else None
        _check(outcome, digest, of_run=run is not None)
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "job": msgspec.to_builtins(outcome.job),
            "gate": outcome.gate,
            "label": outcome.label,
            "verdict": outcome.verdict.value,
            "subject": msgspec.to_builtins(outcome.subject),
            "pins": outcome.pins,
            "command": list(outcome.command),
            "environment": outcome.environment or this_environment(),
            "log": {"path": str(outcome.log), "sha256": digest} if outcome.log else None,
            "started": outcome.started,
            "seconds": float(round(outcome.seconds, 3)),
            "summary": " ".join(outcome.summary.split()),
            "data": dict(outcome.data) | ({"root": outcome.root} if outcome.root else {}),
        }
        if run is None:
            check_pins(outcome.pins)  # a run is bound to the code that ran, whatever its version is called
        else:
            body = self._close(run, body)
        self.folder.mkdir(parents=True, exist_ok=True)
        return chain.add(self.folder, body)

    def _close(self, run: RunFolder, body: dict[str, Any]) -> dict[str, Any]:
        """The record of a run: redacted, and bound to the folder as it is now."""
        body = run.redactor.value(body) | {"command": run.redactor.argv(body["command"])}
        data = body.pop("data")
        run.json("verdict.json", {key: body[key] for key in body if key not in ("job", "log")} | data)
        final = run.close()
        log = final / _LOG
        if log.exists():
            body["log"] = {"path": f"runs/{run.id}/{_LOG}", "sha256": manifest.file_sha256(log)}
        bound = {"run": run.id, "manifest": manifest.file_sha256(final / manifest.NAME)}
        return body | {"data": data | bound}

    def of_job(self, id: str) -> Ledger:
        """The ledger of a job: its records, oldest first, and whether the chain can be trusted."""
        ledger = chain.load(self.folder)
        ledger.records = [record for record in ledger.records if record.job and record.job.id == id]
        return ledger

    def records(self) -> dict[str, Record]:
        """Run id -> record, oldest first; raises :class:`BadInput` when the chain was edited."""
        return {one.run: one for one in chain.trusted(self.folder).records if one.run}

    def standing(self, records: Iterable[Record], tree: str) -> list[Record]:
        """The newest record of every (gate, label) for ``tree``: labels never stand in for each other.

        A run counts only while its folder is what the chain says; an older one does not replace it. A device
        and its weights are shown by a run, so a PASS of them without one does not count.
        """
        newest = {(one.gate, one.label): one for one in records if one.tree == tree}
        counts = (
            one for one in newest.values() if one.run or one.label in LABELS[:2] or one.verdict != "PASS"
        )
        found = [one for one in counts if not (one.run and self.problems(one))]
        return sorted(found, key=lambda one: (LABELS.index(one.label), one.gate))

    def incomplete(self) -> list[str]:
        """Folders that their writer never finished."""
        return sorted(path.name for path in self.runs.glob(f"*{PARTIAL}") if path.is_dir())

    def find(self, id: str) -> tuple[Record, Path]:
        """The record and the folder of a run, by its id or the beginning of it."""
        records = self.records()
        fits = [name for name in records if name == id or name.startswith(id)]
        if len(fits) != 1:
            known = ", ".join(list(records)[-5:]) or "none is recorded"
            what = f"{len(fits)} runs begin with {id!r}" if fits else f"no run {id!r} in {self.folder}"
            raise BadInput(
                what, expected=f"the id of one run: {known}", try_=upgrade("evidence", "list").short
            )
        return records[fits[0]], self.runs / fits[0]

    def problems(self, record: Record) -> list[str]:
        """What is wrong with the folder of a run; empty when it is as it was recorded."""
        folder = self.runs / str(record.run)
        if not folder.is_dir():
            return ["its folder is missing"]
        wrong = manifest.differences(folder)
        named = folder / manifest.NAME
        if named.is_file() and manifest.file_sha256(named) != record.data["manifest"]:
            wrong.append(f"{manifest.NAME} is not the one that the ledger names")
        return wrong

    def unrecorded(self) -> list[str]:
        """Whole folders without a record: their writer died between the two."""
        known = self.records()
        whole = (path.parent.name for path in self.runs.glob(f"*/{manifest.NAME}"))
        return sorted(name for name in whole if not name.endswith(PARTIAL) and name not in known)


def workspace_store(workspace: Path) -> Store:
    """The store of a workspace, made on first use."""
    folder = workspace_root(workspace.absolute()) / "evidence"
    folder.mkdir(exist_ok=True)
    return Store(folder)


def present_store(workspace: Path) -> Store:
    """The store of a workspace to read from; nothing is made, so it may be empty."""
    return Store(workspace.absolute() / WORKSPACE_DIR / "evidence")


def _check(outcome: Outcome, digest: str | None, *, of_run: bool) -> None:
    wrong = []
    if outcome.label not in LABELS:
        wrong.append(f"label {outcome.label!r} is none of {', '.join(LABELS)}")
    if not outcome.gate or "\n" in outcome.gate or not (outcome.subject.files or of_run):
        wrong.append("a gate (one line) and at least one file are needed")
    if digest == ABSENT:
        wrong.append(f"there is no log {outcome.log}")
    if not _is_utc(outcome.started):
        wrong.append(f"started {outcome.started!r} is not UTC ISO 8601 (2026-01-31T12:00:00Z)")
    if len(canonical(outcome.data)) > DATA_LIMIT:
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
