"""The feature matrix: for each feature the best-founded thing that a run said about it."""

from __future__ import annotations

from dataclasses import dataclass

from npu_upgrade.evidence.runs import LABELS, Run

# the features every adaptation has to try and report, in the order of the report
EXPECTED = ("graph", "expert_parallel", "flashcomm1", "mtp", "multimodal")
STATUSES = ("verified", "unsupported", "checkpoint missing", "not applicable", "not proven")
TITLES = {
    "graph": "ACLGraph",
    "expert_parallel": "EP",
    "flashcomm1": "FlashComm1",
    "mtp": "MTP",
    "multimodal": "multimodal",
    "quantization": "quantization",
    "lora": "LoRA",
}


@dataclass(frozen=True)
class Feature:
    """One row. ``run`` is None when nothing was tried; ``where`` the log line that shows it."""

    name: str
    status: str
    label: str
    requested: str
    resolved: str
    why: str
    where: str
    run: Run | None

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)


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
    return [found.get(name, Feature(name, "", "", "", "", "", "", None)) for name in names]


def _adds(known: Feature | None, status: str) -> bool:
    """Labels come strongest first: a weaker one adds only what the stronger could not tell."""
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
