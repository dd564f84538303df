"""Everything the page of an adaptation shows, read from the model's state and its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis_file import described
from npu_upgrade.evidence.runs import mapping
from npu_upgrade.ground.files import read_object
from npu_upgrade.job.adaptation import Adaptation
from npu_upgrade.report.gather import bounded, rows_of, run_of


def gather_adaptation(one: Adaptation) -> dict[str, Any]:
    """The data of the page: plain lists and dictionaries of text and numbers."""
    features, decisions = _features(one), one.plan.get("decisions")
    return {
        "name": one.folder.name,
        "where": one.where,
        "trees": list(_trees(one.plan)),
        "analysis": one.analysis,
        "facts": _described(one),
        "requirements": [judged.as_json() for judged in one.judged],
        "findings": bounded(rows_of(one.analysis, "findings")),
        "memory": bounded(rows_of(one.analysis, "memory")),
        "strategy": mapping(one.plan.get("strategy")).get("name"),
        "steps": bounded([step | {"files": rows_of(step, "files")} for step in rows_of(one.plan, "steps")]),
        "decisions": bounded(decisions if isinstance(decisions, list) else []),
        "artifacts": list(_artifacts(one.folder)),
        "commit": read_object(one.folder / "delivered.json").get("commit"),
        "runs": bounded([run_of(run.folder) for run in reversed(one.runs.counted)]),
        **features,
    }


def _trees(plan: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The trees of the plan: where each is, or which release was read."""
    for name, tree in mapping(plan.get("trees")).items():
        if isinstance(tree, dict):
            state = " with changes" if tree.get("dirty") else ""
            commit = f" at {str(tree['sha'])[:12]}{state}" if tree.get("sha") else ""
            absent = "" if tree.get("there") else " (not there)"
            yield {"name": name, "at": str(tree.get("spec") or f"{tree.get('root')}{commit}{absent}")}


def _described(one: Adaptation) -> list[tuple[str, str]]:
    """What the checkpoint is and who serves it."""
    found = one.analysed
    return [("Architecture", found.properties.architecture), *described(found).items()] if found else []


def _features(one: Adaptation) -> dict[str, Any]:
    """The matrix of the newest run that counts, real weights first."""
    ran = [run for run in one.runs.counted if run.many("features")]
    ran.sort(key=lambda run: (run.gate, run.load) == ("features", "real"))
    if not ran:
        return {"features": [], "features_of": ""}
    return {
        "features": bounded(ran[-1].many("features")),
        "features_of": f"{ran[-1].label}, run {ran[-1].id}",
    }


def _artifacts(folder: Path) -> Iterator[dict[str, Any]]:
    trees = mapping(read_object(folder / "artifacts.json").get("trees"))
    for at, written in trees.items():
        if isinstance(written, dict):
            yield {"at": at, "files": sorted(mapping(written.get("files")))}
