"""Everything the page of an adaptation shows, read from the model's state and its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.store import present_store
from npu_upgrade.ground.files import read_object
from npu_upgrade.job.adaptation import Adaptation, stages
from npu_upgrade.report.gather import bounded, rows_of, run_of


def gather_adaptation(one: Adaptation) -> dict[str, Any]:
    """The data of the page: plain lists and dictionaries of text and numbers."""
    features = _features(one)
    return {
        "name": one.name,
        "where": one.where,
        "trees": list(_trees(one.plan)),
        "stages": [asdict(stage) for stage in stages(one)],
        "analysis": one.analysis,
        "facts": list(_facts(one.analysis)),
        "findings": bounded(rows_of(one.analysis, "findings")),
        "memory": bounded(rows_of(one.analysis, "memory")),
        "strategy": _object(one.plan, "strategy").get("name"),
        "steps": bounded([step | {"files": rows_of(step, "files")} for step in rows_of(one.plan, "steps")]),
        "decisions": bounded(_list(one.plan, "decisions")),
        "timeline": bounded(_timeline(one)),
        "artifacts": list(_artifacts(one.folder)),
        "commit": read_object(one.folder / "delivered.json").get("commit"),
        "runs": bounded(_runs(one)),
        **features,
    }


def _trees(plan: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The trees of the plan: where each is, or which release was read."""
    for name, tree in _object(plan, "trees").items():
        if isinstance(tree, dict):
            state = " with changes" if tree.get("dirty") else ""
            commit = f" at {str(tree['sha'])[:12]}{state}" if tree.get("sha") else ""
            absent = "" if tree.get("there") else " (not there)"
            yield {"name": name, "at": str(tree.get("spec") or f"{tree.get('root')}{commit}{absent}")}


def _facts(analysis: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the checkpoint is and who serves it."""
    properties, served = _object(analysis, "properties"), _object(analysis, "serving")
    quantization, weights = _object(analysis, "quantization"), _object(analysis, "weights")
    rows = {
        "architecture": properties.get("architecture"),
        "served by": " ".join(str(served.get(key) or "") for key in ("by", "module", "why")),
        "attention": _object(analysis, "attention").get("kind"),
        "experts": properties.get("experts"),
        "length": properties.get("max_len"),
        "quantization": quantization.get("scheme") or quantization.get("method"),
        "mtp": _object(analysis, "mtp").get("state"),
        "modalities": ", ".join(_object(analysis, "modalities")) or "text",
        "weights": f"{weights.get('tensors', 0)} tensors in {weights.get('shards', 0)} files",
    }
    if analysis:
        yield from ((name, str(value).strip()) for name, value in rows.items() if value)


def _timeline(one: Adaptation) -> list[dict[str, Any]]:
    """Every run of the model in the order they were made; ``why`` one does not count."""
    known = [(ran, "") for ran in one.runs.counted] + one.runs.others
    return [
        {
            "at": ran.record.started,
            "gate": ran.record.gate,
            "label": ran.record.label,
            "verdict": ran.record.verdict,
            "seconds": ran.record.seconds,
            "said": ran.record.summary,
            "why": why,
        }
        for ran, why in sorted(known, key=lambda pair: pair[0].record.started)
    ]


def _features(one: Adaptation) -> dict[str, Any]:
    """The matrix of the newest run that counts, real weights first."""
    ran = [ran for ran in one.runs.counted if rows_of(ran.result, "features")]
    ran.sort(key=lambda each: each.is_of_stage("features", "real"))
    if not ran:
        return {"features": [], "features_of": ""}
    return {
        "features": bounded(rows_of(ran[-1].result, "features")),
        "features_of": f"{ran[-1].record.label}, run {ran[-1].id}",
    }


def _artifacts(folder: Path) -> Iterator[dict[str, Any]]:
    trees = _object(read_object(folder / "artifacts.json"), "trees")
    for at, written in trees.items():
        if isinstance(written, dict):
            yield {"at": at, "files": sorted(_object(written, "files"))}


def _runs(one: Adaptation) -> list[dict[str, Any]]:
    runs = present_store(one.folder.parents[2]).runs
    return [run_of(runs / ran.id) for ran in reversed(one.runs.counted)]


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object of a file; a page can be made of one that another version wrote."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []
