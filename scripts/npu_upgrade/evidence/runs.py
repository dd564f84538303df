"""The runs of one model that can be trusted, read from the evidence store.

A run counts when its folder is exactly what the ledger says. Nothing else is a source of a measured value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.store import Store
from npu_upgrade.ground.errors import BadInput

RESULT = "result.json"
SCHEMA = "npu-upgrade/serve/1"
# what signs off more comes first
REAL = ("NPU real", "CPU real")
LABELS = (*REAL, "NPU dummy", "CPU dummy")


@dataclass(frozen=True)
class Run:
    """One run: its ledger line, its folder and its ``result.json``."""

    id: str
    record: Record
    folder: Path
    result: dict[str, Any]

    def is_of(self, model: str) -> bool:
        """Whether ``model`` is its model's name, folder or id."""
        wanted = model.rstrip("/")
        return wanted in (self.result["model_name"], str(self.result.get("model", "")).rstrip("/"))

    def is_of_stage(self, gate: str, load: str) -> bool:
        """Whether it is a run of ``gate`` with dummy or real weights."""
        return self.gate == gate and (self.result.get("load_format") or self.label.rpartition(" ")[2]) == load

    @property
    def gate(self) -> str:
        return self.record.gate

    @property
    def label(self) -> str:
        return self.record.label

    @property
    def verdict(self) -> str:
        return self.record.verdict

    @property
    def checkpoint(self) -> str | None:
        """The digest of the checkpoint's files; None for a model by id."""
        return self.result.get("model_digest")

    @property
    def judged(self) -> dict[str, str]:
        """Package -> hash of the code that ran."""
        return self.record.subject["files"]

    @property
    def versions(self) -> dict[str, str]:
        """What was installed in the serving interpreter."""
        return self.map("versions")

    @property
    def root(self) -> dict[str, Any]:
        """The first root cause, empty when there is none."""
        return mapping(self.result.get("root"))

    def many(self, key: str) -> list[dict[str, Any]]:
        """A list of objects of the result, empty when the gate had nothing for it."""
        return [one for one in self.result.get(key) or [] if isinstance(one, dict)]

    def map(self, key: str) -> dict[str, Any]:
        """An object of the result, empty when the gate had nothing for it."""
        return mapping(self.result.get(key))

    def path(self, name: str = "") -> str:
        """Where a file of the run is, as a report names it: below the evidence folder."""
        return f"evidence/runs/{self.id}/{name}" if name else f"evidence/runs/{self.id}/{self.log_name()}"

    def log_name(self) -> str:
        """The log of the run's first start, else its result."""
        names = ("server.log", *sorted(p.relative_to(self.folder).as_posix() for p in self._started()))
        return next((name for name in names if (self.folder / name).is_file()), RESULT)

    def _started(self) -> Iterable[Path]:
        return self.folder.glob("start-*/server.log")


def mapping(value: Any) -> dict[str, Any]:
    """``value`` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def runs_of(store: Store, model: str) -> list[Run]:
    """All trusted runs of ``model`` (its name, folder or id as it was given to the gates), oldest first.

    Raises :class:`BadInput` when a run of this model is not as it was recorded, when there is none, and
    when the name stands for more than one checkpoint.
    """
    runs = list(trusted_runs(store))
    found = [run for run in runs if run.is_of(model)]
    if not found:
        known = ", ".join(sorted({str(run.result["model_name"]) for run in runs})) or "no model at all"
        raise BadInput(
            f"no evidence of {model!r} in {store.folder}",
            expected=f"runs of the serve gate for this model; there are runs of {known}",
            try_=f"adapt.py serve {model}",
        )
    return _of_one_checkpoint(found, model)


def trusted_runs(store: Store) -> Iterator[Run]:
    """The runs of all models, oldest first; raises :class:`BadInput` when one is not as it was recorded."""
    for id, record in store.records().items():
        if run := _read(store, id, record):
            yield run


def standing(runs: Iterable[Run]) -> dict[tuple[str, str], Run]:
    """The newest run of every (gate, label)."""
    return {(run.gate, run.label): run for run in runs}


def of_code(runs: Sequence[Run], code: Mapping[str, str] | None) -> list[Run]:
    """The runs that judged ``code`` (package -> hash), or what the newest run of their label judged."""
    newest = {run.label: run.judged for run in runs}
    wanted = [(run, newest[run.label] if code is None else code) for run in runs]
    return [run for run, files in wanted if all(run.judged.get(name) == files[name] for name in files)]


def _read(store: Store, id: str, record: Record) -> Run | None:
    """The run, or None when it is no run of a server or its folder is gone."""
    folder = store.runs / id
    if not folder.is_dir():
        return None
    # of any model: an edited result could say that it is another's
    problems = store.problems(id)
    if problems:
        raise _untrusted(id, "; ".join(problems[:3]))
    if not (folder / RESULT).is_file():
        return None
    try:
        result = json.loads((folder / RESULT).read_text("utf-8"))
        if result["schema"] != SCHEMA:
            raise ValueError(f"schema {result['schema']!r}")
        if not result["model_name"] or result["label"] != record.label or result["gate"] != record.gate:
            raise ValueError("it does not fit its ledger line")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _untrusted(id, f"{RESULT} cannot be used: {error}") from error
    return Run(id, record, folder, result)


def _untrusted(id: str, why: str) -> BadInput:
    return BadInput(
        f"the evidence of run {id} cannot be trusted: {why}",
        expected="the folder as the gate wrote it",
        try_=f"restore it (adapt.py evidence check {id}), or move it away and run the gate again",
    )


def newest_checkpoint(runs: Sequence[Run]) -> str | None:
    """The checkpoint as it is now: that of the newest run, of one with real weights if any."""
    return next((run for run in reversed(runs) if run.label in REAL), runs[-1]).checkpoint


def _of_one_checkpoint(found: list[Run], model: str) -> list[Run]:
    places = sorted({str(run.result.get("model")) for run in found})
    digests = {run.checkpoint for run in found}
    if len(places) > 1 and len(digests) > 1:
        raise BadInput(
            f"{model!r} stands for {len(places)} different checkpoints: {', '.join(places)}",
            expected="one checkpoint",
            try_=f"name it as the gates did: {places[-1]}",
        )
    newest = newest_checkpoint(found)
    return [run for run in found if run.checkpoint == newest]
