"""The runs of one model, and the one rule of which of them count.

A run counts when its folder is exactly what the chain says, its checkpoint is the one of today, and its
code is what was planned or is delivered. Nothing else is a source of a measured value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.chain import Record, finished, trusted
from npu_upgrade.evidence.judged import model_digest
from npu_upgrade.evidence.store import DRY_RUN, NPU_REAL, Store
from npu_upgrade.ground.errors import BadInput

RESULT = "result.json"
SCHEMA = "npu-upgrade/serve/1"
# what signs off more comes first
REAL = (NPU_REAL, "CPU real")
LABELS = (*REAL, "NPU dummy", "CPU dummy")
# what a reader with an NPU learns from it comes first
FOR_READERS = (NPU_REAL, "NPU dummy", DRY_RUN, "CPU real", "CPU dummy")
_DISTRIBUTIONS = {"vllm": "vllm", "vllm_ascend": "vllm-ascend"}


@dataclass(frozen=True)
class Run:
    """One run: its record, its folder and its ``result.json``."""

    id: str
    record: Record
    folder: Path
    result: dict[str, Any]

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
    def load(self) -> str:
        """The load format of its weights: dummy or real."""
        return str(self.result.get("load_format") or self.label.rpartition(" ")[2])

    @property
    def judged(self) -> dict[str, str]:
        """Package -> hash of the code that ran."""
        return self.record.subject.files

    @property
    def root(self) -> dict[str, Any]:
        """The first root cause, empty when there is none."""
        return self.map("root")

    @property
    def names_unsupported(self) -> bool:
        """Whether a feature does not work, which is a requirement of its own."""
        return any(row.get("status") == "unsupported" for row in self.many("features"))

    def many(self, key: str) -> list[dict[str, Any]]:
        """A list of objects of the result, empty when the gate had nothing for it."""
        return [one for one in self.result.get(key) or [] if isinstance(one, dict)]

    def map(self, key: str) -> dict[str, Any]:
        """An object of the result, empty when the gate had nothing for it."""
        return mapping(self.result.get(key))

    def path(self, name: str = "") -> str:
        """Where a file of the run (default: the log of its first start, else its result) is, for a report."""
        started = sorted(
            p.relative_to(self.folder).as_posix() for p in self.folder.glob("start-*/server.log")
        )
        logs = (log for log in ("server.log", *started) if (self.folder / log).is_file())
        return f"evidence/runs/{self.id}/{name or next(logs, RESULT)}"


def mapping(value: Any) -> dict[str, Any]:
    """``value`` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Code:
    """The packages that a run has to have judged. ``hashes``: package -> hash of its code as it is now.

    ``folders``: where each lies; ``versions``: package -> its release, where only that is known.
    """

    hashes: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def objection(self, record: Record) -> str:
        """Why a run is not of this code; empty when it is."""
        ran = record.subject.files
        for package, wanted in self.hashes.items():
            folder = self.folders.get(package)
            needless = package == "vllm_ascend" and record.label.startswith("CPU")  # it takes no part there
            if package not in ran and not needless:
                return f"{package}{f' of {folder}' if folder else ''} did not run"
            if package in ran and ran[package] != wanted:
                return f"it ran another {package} than {f'{folder} holds now' if folder else 'is delivered'}"
        for package, version in self.versions.items():
            pinned = record.pins.get(_DISTRIBUTIONS[package], {}).get("version")
            if package in ran and pinned and _public(pinned) != _public(version):
                return f"it ran {package} {pinned}, the plan is for {version}"
        return ""


@dataclass(frozen=True)
class Runs:
    """``counted``: the runs that count, oldest first; ``others``: the rest, each with the reason.

    ``of_checkpoint``: those of today's checkpoint, whatever code they ran.
    """

    counted: list[Run] = field(default_factory=list)
    others: list[tuple[Run, str]] = field(default_factory=list)
    of_checkpoint: list[Run] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[Run, str]]:
        """All runs in the order they were made, each with the reason why it does not count, if any."""
        return sorted([*((run, "") for run in self.counted), *self.others], key=lambda pair: pair[0].id)


def runs_of(store: Store, model: str, code: Code | None = None, name: str | None = None) -> Runs:
    """The runs of ``model`` (its folder or id, or its name), divided by the one rule.

    Raises :class:`BadInput` when the chain was edited.
    """
    names = [model, name] if name else [model]
    mine = [
        (run, why) for run, why in _read(store, store.records()) if any(_is_of(run, one) for one in names)
    ]
    return _divided(mine, code)


def _divided(runs: Iterable[tuple[Run, str]], code: Code | None) -> Runs:
    found, whole = Runs(), []
    for run, problem in runs:
        if problem:
            found.others.append((run, f"it is not as it was recorded: {problem}"))
        else:
            whole.append(run)
    digest = _digest_of_today(whole)
    for run in whole:
        if run.result.get("model_digest") == digest:
            found.of_checkpoint.append(run)
        else:
            found.others.append((run, "it served another checkpoint"))
    objections = [(run, code.objection(run.record) if code else "") for run in found.of_checkpoint]
    newest = {run.label: run.judged for run, why in objections if not why}
    for run, why in objections:
        if why := why or _unlike(run, newest[run.label]):
            found.others.append((run, why))
        else:
            found.counted.append(run)
    return found


def trusted_runs_of(store: Store, model: str, code: Code | None = None) -> Runs:
    """The runs of ``model`` for what is written down and delivered.

    Raises :class:`BadInput` when any run is not as it was recorded (an edited result could say that it is
    another model's), when the newest record is half-written, when there is none, and when the name stands
    for more than one checkpoint.
    """
    finished(trusted(store.folder))
    known = list(_read(store, store.records()))
    for run, problem in known:
        if problem:
            raise BadInput(
                f"the evidence of run {run.id} cannot be trusted: {problem}",
                expected="the folder as the gate wrote it",
                try_=f"restore it (adapt.py evidence check {run.id}), or move it away and run the gate again",
            )
    runs = [run for run, _ in known if _is_of(run, model)]
    if not runs:
        others = ", ".join(sorted({str(run.result.get("model_name")) for run, _ in known})) or "no model"
        unfinished = "; a run was not finished: " + store.incomplete()[-1] if store.incomplete() else ""
        raise BadInput(
            f"no evidence of {model!r} in {store.folder}{unfinished}",
            expected=f"runs of the serve gate for this model; there are runs of {others}",
            try_=f"adapt.py serve {model}",
        )
    places = sorted({str(run.result.get("model")) for run in runs})
    if len(places) > 1 and len({run.result.get("model_digest") for run in runs}) > 1:
        raise BadInput(
            f"{model!r} stands for {len(places)} different checkpoints: {', '.join(places)}",
            expected="one checkpoint",
            try_=f"name it as the gates did: {places[-1]}",
        )
    found = _divided([(run, "") for run in runs], code)
    if not found.of_checkpoint:
        raise BadInput(
            f"every run of {model!r} served another checkpoint than {places[-1]} holds now",
            expected="runs of the checkpoint as it is",
            try_=f"adapt.py serve {model}",
        )
    return found


def standing(runs: Iterable[Run]) -> dict[tuple[str, str], Run]:
    """The newest run of every (gate, label)."""
    return {(run.gate, run.label): run for run in runs}


def features_of(runs: Sequence[Run], label: str) -> dict[str, tuple[Run, dict[str, Any]]]:
    """Feature -> its newest row and the run that has it; a run may have tried a few of them only.

    What the features gate said counts before what a server said.
    """
    found: dict[str, tuple[Run, dict[str, Any]]] = {}
    for gate in ("serve", "features"):
        for run in (one for one in runs if (one.gate, one.label) == (gate, label)):
            found |= {str(row.get("feature")): (run, row) for row in run.many("features")}
    return found


def _read(store: Store, records: Mapping[str, Record]) -> Iterator[tuple[Run, str]]:
    """Every run of a server whose folder is there, with what is wrong with it."""
    for id, record in records.items():
        folder = store.runs / id
        problem = "; ".join(store.problems(record)[:3]) if folder.is_dir() else ""
        result: dict[str, Any] = {}
        if (folder / RESULT).is_file():
            try:
                result = mapping(json.loads((folder / RESULT).read_text("utf-8")))
            except (OSError, ValueError) as error:
                problem = problem or f"{RESULT} cannot be used: {error}"
            fits = (SCHEMA, record.label, record.gate) == tuple(map(result.get, ("schema", "label", "gate")))
            if not (fits and result.get("model_name")):
                problem = problem or f"{RESULT} does not fit its record"
        if result or problem:
            yield Run(id, record, folder, result), problem


def _is_of(run: Run, model: str) -> bool:
    wanted, served = model.rstrip("/"), str(run.result.get("model", "")).rstrip("/")
    if wanted in (run.result.get("model_name"), served):
        return True
    return Path(wanted).is_dir() and str(Path(wanted).resolve()) == served  # as a folder from here


def _digest_of_today(runs: list[Run]) -> Any:
    """The checkpoint as it is now; where it is not here, that of the newest run, of real weights if any."""
    if not runs:
        return None
    newest = next((run for run in reversed(runs) if run.label in REAL), runs[-1])
    return model_digest(str(newest.result.get("model"))) or newest.result.get("model_digest")


def _unlike(run: Run, newest: Mapping[str, str]) -> str:
    """What the code leaves open has to be the same as in the newest run of the same label."""
    other = next((name for name, digest in newest.items() if run.judged.get(name) != digest), None)
    return f"it ran another {other} than the newest {run.label} run" if other else ""


def _public(version: str) -> str:
    """A version without its local part, as in ``0.30.0+cpu``."""
    return version.partition("+")[0]
