"""What is known about one model, gathered from its runs and its analysis; every gap is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.artifacts.naming import Source, check_name, hf_id_of
from npu_upgrade.checkpoint.analysis_file import AnalysisFile, load_analysis
from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.evidence.runs import LABELS, REAL, Code, Run, mapping, standing, trusted_runs_of
from npu_upgrade.evidence.store import Store
from npu_upgrade.ground.command import Command, adapt

# the features every adaptation has to try and report, in the order of the report
EXPECTED = ("graph", "expert_parallel", "flashcomm1", "mtp", "multimodal")
STATUSES = ("verified", "unsupported", "checkpoint missing", "not applicable", "not proven")
_TITLES = {
    **{"graph": "ACLGraph", "expert_parallel": "EP", "flashcomm1": "FlashComm1"},
    **{"mtp": "MTP", "lora": "LoRA"},
}


@dataclass(frozen=True)
class Feature:
    """One row. ``run`` is None when nothing was tried; ``where`` the log line that shows it."""

    name: str
    status: str = ""
    label: str = ""
    requested: str = ""
    resolved: str = ""
    why: str = ""
    where: str = ""
    run: Run | None = None

    @property
    def title(self) -> str:
        return _TITLES.get(self.name, self.name)


def feature_matrix(newest: dict[tuple[str, str], Run]) -> list[Feature]:
    """One row for each expected feature and each other one that a run named."""
    found: dict[str, Feature] = {}
    for label in LABELS:
        for gate in ("features", "serve"):
            run = newest.get((gate, label))
            for entry in run.many("features") if run else []:
                name = str(entry.get("feature"))
                if run and entry.get("status") in STATUSES and _adds(found.get(name), str(entry["status"])):
                    found[name] = _row(name, entry, run)
    names = [*EXPECTED, *sorted(set(found) - set(EXPECTED))]
    return [found.get(name, Feature(name)) for name in names]


def _adds(known: Feature | None, status: str) -> bool:
    """Labels come strongest first: a weaker one adds only what the stronger did not prove."""
    return known is None or (known.status == "not proven" and status != "not proven")


def _row(name: str, entry: dict, run: Run) -> Feature:
    evidence = str(entry.get("evidence") or "")
    return Feature(
        name=name,
        status=str(entry["status"]),
        label=run.label,
        requested=str(entry.get("requested") or ""),
        resolved=str(entry.get("resolved") or ""),
        why=str(entry.get("why") or ""),
        where=run.path(evidence) if evidence else run.path(),
        run=run,
    )


# how the names of devices map to the product series that vllm-ascend's configs and documents name
_SERIES = (
    ("910_93", "Atlas A3 Series"),
    ("910C", "Atlas A3 Series"),
    ("910B", "Atlas A2 Series"),
    ("310P", "Atlas 300I DUO"),
)


@dataclass(frozen=True)
class Gap:
    """``id`` is stable (``deliver --open`` names it), ``what`` one sentence, ``command`` what fills it."""

    id: str
    what: str
    command: Command

    def as_json(self) -> dict[str, str]:
        return {"id": self.id, "what": self.what, "command": str(self.command)}

    @property
    def marker(self) -> str:
        """The gap as it shows in an English document."""
        return f"**GAP ({self.id})**: {self.what}. It is filled by `{self.command.short}`."


@dataclass
class Facts:
    """One model. ``runs`` oldest first, ``current`` those of the code that the deliverables are about;
    ``served``: the run that shows best that real weights are served."""

    name: str
    source: Source
    model: str
    runs: list[Run]
    current: list[Run]
    analysis: AnalysisFile | None
    served: Run | None
    dummy: Run | None
    accuracy: Run | None
    capacity: Run | None
    features: list[Feature]
    gaps: list[Gap] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The strongest label with a PASS of the serve gate; empty when there is none."""
        best = self.served or self.dummy
        return best.label if best else ""

    @property
    def on_npu(self) -> bool:
        return self.label == "NPU real"

    @property
    def resolved(self) -> dict[str, Any]:
        best = self.served or self.dummy or self.runs[-1]
        return best.map("resolved")

    @property
    def hardware(self) -> str:
        """The product series that the accuracy run, else the served run, was on."""
        best = self.accuracy or self.served or self.dummy or self.runs[-1]
        return series(best.map("device"))

    @property
    def multimodal(self) -> bool:
        by_analysis = self.analysis and self.analysis.properties.multimodal
        return bool(self.resolved.get("is_multimodal") or by_analysis)

    @property
    def pooling(self) -> bool:
        return self.resolved.get("runner_type") == "pooling"

    @property
    def num_fewshot(self) -> int | None:
        """The one value that all tasks share, or None."""
        tasks = self.accuracy.map("accuracy")["tasks"] if self.accuracy else []
        values = {task.get("num_fewshot") for task in tasks}
        value = values.pop() if len(values) == 1 else None
        return value if isinstance(value, int) else None

    @property
    def theoretical_length(self) -> int | None:
        """What the configuration allows: by the capacity run, else by the analysis."""
        by_analysis = self.analysis.properties.max_len if self.analysis else 0
        return self._most("theoretical_max_model_len") or (by_analysis if by_analysis > 0 else None)

    @property
    def practical_length(self) -> int | None:
        return self._most("practical_max_model_len")

    def _most(self, key: str) -> int | None:
        rows = self.capacity.many("capacity") if self.capacity else []
        return max((row[key] for row in rows if row.get(key)), default=None)

    def gap(self, id: str) -> Gap | None:
        return next((gap for gap in self.gaps if gap.id == id), None)


def series(device: dict[str, Any]) -> str:
    """The product series of a device; ``CPU`` for a CPU, the device's own name when it is unknown."""
    name = str(device.get("name") or "")
    if device.get("kind") != "npu":
        return {"npu emulated": "CPU (emulated NPU)"}.get(str(device.get("kind")), "CPU")
    return next((known for part, known in _SERIES if part in name), name or "Ascend NPU")


def gather(
    store: Store,
    model: str,
    analysis: Path,
    name: str | None,
    source: Source,
    code: Mapping[str, str] | None = None,
) -> Facts:
    """Everything that the deliverables say; raises :class:`BadInput` without evidence that can be trusted.

    ``code`` is package -> hash of what is delivered: only runs that judged it count. Without it those count
    that judged what the newest run of the same label did.
    """
    found = trusted_runs_of(store, model, Code(code) if code else None)
    runs, current = found.of_checkpoint, found.counted
    newest = standing(current)
    chosen = check_name(name or str(runs[-1].result["model_name"]))
    facts = Facts(
        name=chosen,
        source=source if source.name else Source(hf_id_of(runs)),
        model=str(runs[-1].result.get("model") or model),
        runs=runs,
        current=current,
        analysis=load_analysis(analysis),
        served=_passed(newest, "serve", REAL),
        dummy=_passed(newest, "serve", LABELS[len(REAL) :]),
        accuracy=_measured(newest),
        capacity=next((newest["capacity", label] for label in LABELS if ("capacity", label) in newest), None),
        features=feature_matrix(newest),
    )
    facts.gaps = _gaps(facts, newest)
    return facts


def _passed(newest: dict[tuple[str, str], Run], gate: str, labels: tuple[str, ...]) -> Run | None:
    return next(
        (run for label in labels if (run := newest.get((gate, label))) and run.verdict == "PASS"), None
    )


def _measured(newest: dict[tuple[str, str], Run]) -> Run | None:
    """The accuracy run with real weights whose values can be written down."""
    run = _passed(newest, "accuracy", REAL)
    tasks = run.map("accuracy").get("tasks") if run else None
    return run if tasks and all(_has_values(mapping(task)) for task in tasks) else None


def _has_values(task: dict[str, Any]) -> bool:
    values = [mapping(metric).get("value") for metric in task.get("metrics") or []]
    numbers = [
        v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
    ]
    return bool(task.get("name")) and bool(values) and len(numbers) == len(values)


def _gaps(facts: Facts, newest: dict[tuple[str, str], Run]) -> list[Gap]:
    found = []
    if facts.source.name is None:
        command = adapt("artifacts", facts.model, "--hf-id", "ORG/NAME")
        what = "the evidence names a folder, not where the weights are published"
        found.append(Gap("hf-id", what, command))
    if facts.served is None:
        found.append(_gap(facts, "serve", "no run of the serve gate with real weights passed"))
    for label, id in (("NPU real", "serve-npu"), ("CPU real", "serve-cpu")):
        run = newest.get(("serve", label))
        if run and run.verdict == "FAIL":
            found.append(
                _gap(facts, "serve", f"the newest {label} run of the serve gate failed ({run.id})", id)
            )
    missing = [feature.name for feature in facts.features if feature.run is None]
    if missing:
        found.append(_gap(facts, "features", f"no run says anything about {', '.join(missing)}"))
    if not facts.capacity or not facts.capacity.many("capacity"):
        found.append(_gap(facts, "capacity", "the longest context that works was not measured"))
    if facts.accuracy is None:
        found.append(_gap(facts, "accuracy", "no accuracy run with real weights passed"))
    elif facts.num_fewshot is None:
        what = "the tasks of the accuracy run share no num_fewshot, and a config holds one"
        found.append(_gap(facts, "accuracy", what, "num-fewshot"))
    return found


def _gap(facts: Facts, gate: str, what: str, id: str | None = None) -> Gap:
    return Gap(id or gate, what, gate_command(gate, facts.model))
