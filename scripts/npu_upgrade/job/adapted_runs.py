"""The runs of one model, and which of them are of the plan's code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.store import Store
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.planned_code import divided, planned_code


@dataclass(frozen=True)
class Ran:
    """One run: its ledger line and its ``result.json``."""

    record: Record
    result: dict[str, Any]

    def is_of(self, gate: str, load: str) -> bool:
        label = self.record.label.rpartition(" ")[2]
        return self.record.gate == gate and (self.result.get("load_format") or label) == load

    @property
    def id(self) -> str:
        return str(self.record.data["run"])

    @property
    def versions(self) -> dict[str, str]:
        """What was installed in the serving interpreter."""
        found = self.result.get("versions")
        return found if isinstance(found, dict) else {}

    @property
    def said(self) -> str:
        """How it ended, with the first root cause."""
        root = self.result.get("root") or {}
        cause = f"; root cause: {root.get('cause')}; {root.get('next')}" if root.get("cause") else ""
        return f"{self.record.label}: {self.record.verdict}: {self.record.summary}{cause}"


@dataclass(frozen=True)
class Runs:
    """``counted``: the runs of the plan's code, oldest first; ``others``: the rest, each with the reason."""

    counted: list[Ran] = field(default_factory=list)
    others: list[tuple[Ran, str]] = field(default_factory=list)

    def served(self) -> Ran | None:
        """The newest run that tells what is installed where real weights are served."""
        fits = [ran for ran in self.counted if ran.is_of("serve", "real") and ran.versions]
        return fits[-1] if fits else None


def runs_of(workspace: Path, where: str, name: str, plan: dict[str, Any]) -> Runs:
    """The runs of the model at ``where``; raises :class:`BadInput` when the ledger was edited."""
    found = {ran.record.id: ran for ran in _all(workspace, where, name)}
    if not found:
        return Runs()
    counted, others = divided([ran.record for ran in found.values()], planned_code(plan))
    return Runs([found[one.id] for one in counted], [(found[one.id], why) for one, why in others])


def _all(workspace: Path, where: str, name: str) -> Iterator[Ran]:
    store = Store(workspace / WORKSPACE_DIR / "evidence")
    if not store.folder.is_dir():
        return
    for id_, record in store.records().items():
        result = read_object(store.runs / id_ / "result.json")
        if where == str(result.get("model")) or result.get("model_name") == name:
            yield Ran(record, result)
