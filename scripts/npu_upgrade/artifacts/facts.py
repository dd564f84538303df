"""What is known about one model, gathered from its runs and its analysis; every gap is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from npu_upgrade.artifacts.naming import Source, check_name, hf_id_of
from npu_upgrade.checkpoint.analysis_file import AnalysisFile, load_analysis, longest_of
from npu_upgrade.checkpoint.gate_commands import gate_command
from npu_upgrade.evidence.runs import (
    FOR_READERS,
    LABELS,
    REAL,
    Code,
    Run,
    features_of,
    mapping,
    trusted_runs_of,
)
from npu_upgrade.evidence.store import Store
from npu_upgrade.gates.features.capability import FEATURES
from npu_upgrade.gates.features.model import MISSING, NOT_APPLICABLE, NOT_PROVEN, STATUSES, VERIFIED, Row
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.files import read_object
from npu_upgrade.job.adaptation import planned_code
from npu_upgrade.job.requirements import Gap, Judged, Known, Proven, gaps, judge

EXPECTED = FEATURES[:5]  # what every adaptation has to try and report, in the order of the report
_BY_CPU = "the device is a CPU"  # the evidence of a feature that only an NPU has
_TITLES = {
    **{"graph": "ACLGraph", "expert_parallel": "EP", "flashcomm1": "FlashComm1"},
    **{"mtp": "MTP", "lora": "LoRA"},
}


class Feature(Row, frozen=True):
    """A row of the matrix, and the run that has it; None when nothing was tried."""

    run: Run | None = None

    @property
    def title(self) -> str:
        return _TITLES.get(self.feature, self.feature)

    @property
    def label(self) -> str:
        return self.run.label if self.run else ""

    @property
    def where(self) -> str:
        """Where a report finds it: a file of the run, else what the model or its device says."""
        if self.run is None:
            return ""
        in_file = not self.evidence or (self.run.folder / self.evidence.partition(":")[0]).is_file()
        return self.run.path(self.evidence) if in_file else self.evidence

    @property
    def on_cpu_only(self) -> bool:
        """Whether a CPU says it, and the model itself does not decide it."""
        by_the_model = self.status in (NOT_APPLICABLE, MISSING) and self.evidence != _BY_CPU
        return self.label.startswith("CPU") and not by_the_model


def feature_matrix(runs: Sequence[Run]) -> list[Feature]:
    """One row for each expected feature and each other one that a run named."""
    found: dict[str, Feature] = {}
    for label in FOR_READERS:
        for run, entry in features_of(runs, label).values():
            row = Feature(**{name: str(entry.get(name) or "") for name in Row.__struct_fields__}, run=run)
            known = found.get(row.feature)
            # labels come strongest first: a weaker one adds only what the stronger did not prove
            adds = known is None or (known.status == NOT_PROVEN != row.status)
            if row.status in STATUSES and adds:
                found[row.feature] = _with_its_limit(row, runs)
    names = [*EXPECTED, *sorted(set(found) - set(EXPECTED))]
    return [found.get(name, Feature(name, "")) for name in names]


def _with_its_limit(row: Feature, runs: Sequence[Run]) -> Feature:
    """A feature that works, with what it does not work with: an earlier start of the same code that asked for
    others too did not serve, for a known cause."""
    for run in reversed(runs) if row.status == VERIFIED else ():
        rows = run.many("features") if (run.gate, run.label) == ("features", row.label) else []
        mine = next((one for one in rows if one.get("feature") == row.feature), {})
        served = [
            _TITLES.get(str(one["feature"]), str(one["feature"]))
            for one in rows
            if one.get("status") == VERIFIED and str(one.get("requested")).startswith("-")
        ]
        if mine.get("status") == NOT_PROVEN and mine.get("cause") and served:
            why = f"not together with {', '.join(served)}, with which the server does not serve"
            return replace(row, why=why, cause=str(mine["cause"]))
    return row


# how the names of devices map to the product series that vllm-ascend's configs and documents name
_SERIES = (
    ("910_93", "Atlas A3 Series"),
    ("910C", "Atlas A3 Series"),
    ("910B", "Atlas A2 Series"),
    ("310P", "Atlas 300I DUO"),
)


@dataclass
class Facts:
    """One model. ``runs`` oldest first, ``current`` those of the code that the deliverables are about;
    ``served``: the run that shows best that real weights are served; ``gaps``: what is open of the
    requirements that were ``judged``, and of the documents; ``other``: why the newest run of those that do
    not count does not."""

    name: str
    source: Source
    model: str
    runs: list[Run]
    current: list[Run]
    analysis: AnalysisFile | None
    served: Run | None
    dummy: Run | None
    capacity: Run | None
    features: list[Feature]
    plan: dict[str, Any] = field(default_factory=dict)
    judged: list[Judged] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    other: str = ""

    @property
    def label(self) -> str:
        """The strongest label with a PASS of the serve gate; empty when there is none."""
        best = self.served or self.dummy
        return best.label if best else ""

    @property
    def accuracy(self) -> Run | None:
        """The accuracy run whose values can be written down."""
        return self.shown_by("accuracy")

    @property
    def on_npu(self) -> bool:
        """Whether the served run's tensors lived on an NPU, whatever its label says."""
        return self.shown_by("npu") is not None

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
        """The longest context that one request took whole; of servers that only started, theirs."""
        return self.filled_length or self._most("practical_max_model_len")

    @property
    def filled_length(self) -> int | None:
        return self._most("filled_max_model_len")

    def _most(self, key: str) -> int | None:
        rows = self.capacity.many("capacity") if self.capacity else []
        return max((row[key] for row in rows if row.get(key)), default=None)

    @property
    def versions(self) -> list[str]:
        """What it was adapted to, then what was installed for each label, strongest first."""
        trees = mapping(self.plan.get("trees"))
        known = {name: mapping(trees.get(key)) for name, key in (("vllm-ascend", "ascend"), ("vllm", "vllm"))}
        named = {name: tree.get("version") or str(tree.get("sha") or "")[:12] for name, tree in known.items()}
        adapted = ", ".join(f"{name} {version}" for name, version in named.items() if version)
        newest = {run.label: run.map("versions") for run in self.current if run.verdict == "PASS"}
        found = [f"adapted to: {adapted}"] if adapted else []
        for label in (one for one in FOR_READERS if newest.get(one)):
            said = ", ".join(f"{name} {version}" for name, version in newest[label].items() if version)
            found.append(f"{label}: {said}")
        return found

    @property
    def plugin(self) -> Path | None:
        """The folder of the model's own plugin."""
        tree = mapping(mapping(self.plan.get("trees")).get("plugin"))
        return Path(str(tree["root"])) if tree.get("root") else None

    def command(self, gate: str) -> Command:
        """The command that runs a gate on this model."""
        return gate_command(gate, self.model, max_len=longest_of(self.analysis))

    def shown_by(self, id: str) -> Run | None:
        """The run that proves a requirement."""
        outcomes = (one.outcome for one in self.judged if one.rule.id == id)
        return next((one.run for one in outcomes if isinstance(one, Proven)), None)

    def gap(self, id: str) -> Gap | None:
        return next((gap for gap in self.gaps if gap.id == id), None)

    @property
    def document_gaps(self) -> list[Gap]:
        """What the documents lack beside the requirements of the model."""
        found = []
        if self.source.name is None:
            command = adapt("artifacts", self.model, "--hf-id", "ORG/NAME")
            what = "the evidence names a folder, not where the weights are published"
            found.append(Gap(what, command, id="hf-id"))
        if self.accuracy and self.num_fewshot is None:
            what = "the tasks of the accuracy run share no num_fewshot, and a config holds one"
            found.append(Gap(what, self.command("accuracy"), id="num-fewshot"))
        return found


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
    that judged what the newest run of the same label did, of the releases that the plan is for.
    """
    plan = read_object(analysis.with_name("plan.json"))
    releases = {name: one for name, one in planned_code(plan).versions.items() if name not in (code or {})}
    found = trusted_runs_of(store, model, Code(code or {}, versions=releases))
    runs, current = found.of_checkpoint, found.counted
    place = str(runs[-1].result.get("model") or model)
    chosen = check_name(name or str(runs[-1].result["model_name"]))
    analysed = load_analysis(analysis)
    longest = longest_of(analysed)
    known = Known(
        current, analysed, place, lambda gate, *more: gate_command(gate, place, *more, max_len=longest)
    )
    newest = known.newest
    dummy = (newest.get(("serve", label)) for label in LABELS[len(REAL) :])
    facts = Facts(
        name=chosen,
        source=source if source.name else Source(hf_id_of(runs)),
        model=place,
        runs=runs,
        current=current,
        analysis=analysed,
        served=known.served,
        dummy=next((run for run in dummy if run and run.verdict == "PASS"), None),
        capacity=next((newest["capacity", label] for label in LABELS if ("capacity", label) in newest), None),
        plan=plan,
        other=next((why for _, why in reversed(found.others)), ""),
        features=feature_matrix(current),
        judged=judge(known),
    )
    facts.gaps = [*facts.document_gaps, *gaps(facts.judged)]
    return facts
