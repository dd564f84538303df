"""The runs of a workspace: their folders, and the one ledger that says which of them count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.evidence import chain, manifest, run_folder
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.ledger import LABELS
from npu_upgrade.evidence.ledger import SCHEMA as RECORD_SCHEMA
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.run_folder import PARTIAL, RunFolder
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.evidence.surroundings import environment as this_environment
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.ground.verdict import Verdict

_LOG = "server.log"


@dataclass(frozen=True)
class Store:
    """``folder`` holds ``runs/<id>/`` and the ledger, ``evidence.jsonl`` (see references/evidence.md)."""

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

    def record(
        self,
        run: RunFolder,
        *,
        label: str,
        verdict: Verdict,
        subject: Subject,
        pins: Mapping[str, Any],
        command: Sequence[str],
        started: str,
        seconds: float,
        summary: str,
        root: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Record:
        """Close the run's folder and add its ledger line; on return both are on disk.

        ``started`` is UTC ISO 8601, ``root`` the first root cause, ``environment`` that of the interpreter
        that was judged, where it is not this one. Raises :class:`BadInput` for an unknown
        label, :class:`Blocked` when the disk takes no more.
        """
        if label not in LABELS:
            raise BadInput(
                f"no label is called {label!r}",
                expected=", ".join(LABELS),
                try_="correct the gate that records it",
            )
        said = {
            "schema": RECORD_SCHEMA,
            "gate": run.gate,
            "label": label,
            "verdict": verdict.value,
            "subject": subject.as_json(),
            "pins": pins,
            "environment": environment or this_environment(),
            "started": started,
            "seconds": round(seconds, 3),
            "summary": " ".join(summary.split()),
        }
        body = run.redactor.value(said) | {"command": run.redactor.argv(command)}
        found = {"root": run.redactor.value(root)} if root else {}
        run.json("verdict.json", body | found)
        final = run.close()
        log = final / _LOG
        body["log"] = (
            {"path": f"runs/{run.id}/{_LOG}", "sha256": manifest.file_sha256(log)} if log.exists() else None
        )
        body["data"] = found | {"run": run.id, "manifest": manifest.file_sha256(final / manifest.NAME)}
        return chain.add(self.folder, body)

    def records(self) -> dict[str, Record]:
        """Run id -> ledger line, oldest first; raises :class:`BadInput` when the ledger was edited."""
        return {one.data["run"]: one for one in chain.trusted(self.folder).records if "run" in one.data}

    def incomplete(self) -> list[str]:
        """Folders that their writer never finished."""
        return sorted(path.name for path in self.runs.glob(f"*{PARTIAL}") if path.is_dir())

    def find(self, id: str) -> tuple[Record, Path]:
        """The ledger line and the folder of a run, by its id or the beginning of it."""
        records = self.records()
        fits = [name for name in records if name == id or name.startswith(id)]
        if len(fits) != 1:
            known = ", ".join(list(records)[-5:]) or "none is recorded"
            what = f"{len(fits)} runs begin with {id!r}" if fits else f"no run {id!r} in {self.folder}"
            raise BadInput(what, expected=f"the id of one run: {known}", try_="upgrade.py evidence list")
        return records[fits[0]], self.runs / fits[0]

    def problems(self, id: str) -> list[str]:
        """What is wrong with the evidence of one run; empty when it can be trusted."""
        record, folder = self.find(id)
        if not folder.is_dir():
            return ["its folder is missing"]
        wrong = manifest.differences(folder)
        named = folder / manifest.NAME
        if named.is_file() and manifest.file_sha256(named) != record.data["manifest"]:
            wrong.append(f"{manifest.NAME} is not the one that the ledger names")
        return wrong

    def unrecorded(self) -> list[str]:
        """Whole folders without a ledger line: their writer died between the two."""
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
