"""Everything the page of an adaptation shows, read from the model's state and its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis_file import described
from npu_upgrade.evidence.runs import features_of, mapping
from npu_upgrade.ground.files import read_object, rows_of
from npu_upgrade.ground.tables import count
from npu_upgrade.job.adaptation import Adaptation
from npu_upgrade.job.requirements import gaps
from npu_upgrade.job.stages import Walk
from npu_upgrade.report.gather import bounded, run_of
from npu_upgrade.report.overview import DRIVER, REVIEWER, Change, Open, Overview, overview


def gather_adaptation(one: Adaptation, walk: Walk) -> dict[str, Any]:
    """The data of the page: its first screen, then plain lists and dictionaries of text and numbers."""
    features, decisions, found = _features(one), one.plan.get("decisions"), one.analysed
    facts = [("Architecture", found.properties.architecture), *described(found).items()] if found else []
    return {
        "first": _first(one, walk),
        "about": f"checkpoint {one.where}",
        "trees": list(_trees(one.plan)),
        "analysis": one.analysis,
        "facts": facts,
        "requirements": [judged.as_json() for judged in one.judged],
        "findings": bounded(rows_of(one.analysis, "findings")),
        "memory": bounded(rows_of(one.analysis, "memory")),
        "strategy": mapping(one.plan.get("strategy")).get("name"),
        "steps": bounded([step | {"files": rows_of(step, "files")} for step in rows_of(one.plan, "steps")]),
        "decisions": bounded(decisions if isinstance(decisions, list) else []),
        "artifacts": list(_artifacts(one.folder)),
        "runs": bounded([run_of(run.folder) for run in reversed(one.runs.counted)]),
        **features,
    }


def _first(one: Adaptation, walk: Walk) -> Overview:
    strategy = mapping(one.plan.get("strategy")).get("name")
    architecture = one.analysed.properties.architecture if one.analysed else ""
    why = f"{architecture or 'The checkpoint'} is to run on vllm-ascend" + (
        f": {strategy}." if strategy else "."
    )
    planned = [
        Change(str(file.get("path")), "", f"{file.get('change')} in {file.get('root')}: {step.get('what')}")
        for step in rows_of(one.plan, "steps")
        for file in rows_of(step, "files")
    ]
    written = [
        Change(path, "", "written from evidence") for tree in _artifacts(one.folder) for path in tree["files"]
    ]
    title = f"{one.folder.name} on vllm-ascend"
    return overview(walk, title, why, planned + written, list(_gaps(one)), planned=True)


def _gaps(one: Adaptation) -> Iterator[Open]:
    """What the model has not shown, and what the plan leaves to be decided."""
    if missing := gaps(one.judged):
        words = [f"{gap.id}: {gap.what}" for gap in missing]
        yield Open(REVIEWER, f"not shown: {', '.join(gap.id for gap in missing)}", words)
    decisions = one.plan.get("decisions")
    if isinstance(decisions, list) and decisions:
        yield Open(
            DRIVER, f"{count(len(decisions), 'decision')} of the plan", [str(each) for each in decisions]
        )


def _trees(plan: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The trees of the plan: where each is, or which release was read."""
    for name, tree in mapping(plan.get("trees")).items():
        if isinstance(tree, dict):
            state = " with changes" if tree.get("dirty") else ""
            commit = f" at {str(tree['sha'])[:12]}{state}" if tree.get("sha") else ""
            absent = "" if tree.get("there") else " (not there)"
            yield {"name": name, "at": str(tree.get("spec") or f"{tree.get('root')}{commit}{absent}")}


def _features(one: Adaptation) -> dict[str, Any]:
    """The matrix of the label of the newest run that counts, real weights first."""
    ran = [run for run in one.runs.counted if run.many("features")]
    ran.sort(key=lambda run: (run.gate, run.load) == ("features", "real"))
    if not ran:
        return {"features": [], "features_of": ""}
    label = ran[-1].label
    rows = list(features_of(one.runs.counted, label).values())
    runs = ", ".join(sorted({run.id for run, _ in rows}))
    return {"features": bounded([row for _, row in rows]), "features_of": f"{label}, run {runs}"}


def _artifacts(folder: Path) -> Iterator[dict[str, Any]]:
    trees = mapping(read_object(folder / "artifacts.json").get("trees"))
    for at, written in trees.items():
        if isinstance(written, dict):
            yield {"at": at, "files": sorted(mapping(written.get("files")))}
