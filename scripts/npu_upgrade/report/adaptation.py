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
from npu_upgrade.job.requirements import ON_NPU, STATES, Gap, gaps
from npu_upgrade.job.stages import Walk
from npu_upgrade.report.gather import bounded, run_of
from npu_upgrade.report.overview import DRIVER, HARDWARE, REVIEWER, Change, Open, Overview, overview

STRATEGIES = {
    "reuse": "code for it is there, so the change is its pages and its configuration",
    "native adapter": "what is there does not serve it as it is, so it gets code of its own",
    "backend patch": "vllm-ascend itself has to be changed for it",
}
TREES = {"ascend": "vllm-ascend", "plugin": "the model's plugin"}
DELIVERY = "delivery"
"""The tree of a plan in which the change is delivered."""

_ASKS = {
    DRIVER: "not shown, and nothing is delivered without it",
    HARDWARE: "that only an NPU can show",
    REVIEWER: "not shown; to be shown, or accepted as a gap",
}


def gather_adaptation(one: Adaptation, walk: Walk) -> dict[str, Any]:
    """The data of the page: its first screen, then plain lists and dictionaries of text and numbers."""
    features, decisions, found = _features(one), one.plan.get("decisions"), one.analysed
    facts: dict[str, str] = {}
    if found:
        facts = {"Architecture": found.properties.architecture} | described(found)
        facts["Served by"] = found.serving.why or found.serving.by
    return {
        "first": _first(one, walk),
        "about": f"checkpoint {one.where}",
        "trees": list(_trees(one.plan)),
        "analysis": one.analysis,
        "facts": list(facts.items()),
        "requirements": sorted(
            (judged.as_json() for judged in one.judged), key=lambda judged: STATES.index(judged["state"])
        ),
        "findings": bounded(rows_of(one.analysis, "findings")),
        "memory": bounded(rows_of(one.analysis, "memory")),
        "strategy": ": ".join(filter(None, _strategy(one))),
        "steps": bounded([step | {"files": rows_of(step, "files")} for step in rows_of(one.plan, "steps")]),
        "decisions": bounded(decisions if isinstance(decisions, list) else []),
        "artifacts": list(_artifacts(one.folder)),
        "runs": bounded([run_of(run.folder) for run in reversed(one.runs.counted)]),
        **features,
    }


def _first(one: Adaptation, walk: Walk) -> Overview:
    strategy, means = _strategy(one)
    architecture = one.analysed.properties.architecture if one.analysed else ""
    reasons = mapping(one.plan.get("strategy")).get("reasons")
    because = f" ({'; '.join(map(str, reasons))})" if isinstance(reasons, list) and reasons else ""
    how = f": {means or strategy}{because}" if strategy else ""
    why = f"{architecture or 'The checkpoint'} is to run on vllm-ascend{how}."
    title = f"{one.folder.name} on vllm-ascend"
    changes, open_ = list(_changes(one)), list(_gaps(one, walk))
    inconsistent = next((gap for gap in gaps(one.judged) if gap.id == "analysis" and gap.refused), None)
    broken = f"{inconsistent.what[:1].upper()}{inconsistent.what[1:]}" if inconsistent else None
    return overview(walk, title, why, changes, open_, broken, subject="this checkpoint", planned=True)


def _strategy(one: Adaptation) -> tuple[str, str]:
    """How the plan brings the model, by its name and in words."""
    name = str(mapping(one.plan.get("strategy")).get("name") or "")
    return name, STRATEGIES.get(name, "")


def _changes(one: Adaptation) -> Iterator[Change]:
    """The steps of the plan with their files, each with whether it is written, then the files beside them."""
    written = {path for tree in _artifacts(one.folder) for path in tree["files"]}
    for step in rows_of(one.plan, "steps"):
        if rows_of(step, "files"):
            yield Change(str(step.get("name")), "", str(step.get("what")))
        for file in rows_of(step, "files"):
            path, tree = str(file.get("path")), str(file.get("root"))
            where = "" if tree == DELIVERY else f", in {TREES.get(tree, tree)}"
            done = "; written" if path in written else ""
            written.discard(path)
            yield Change(path, "", f"{file.get('change')}{where}{done}")
    yield from (Change(path, "", "written with them") for path in sorted(written))


def _gaps(one: Adaptation, walk: Walk) -> Iterator[Open]:
    """What the model has not shown, by who can change that, and what the plan leaves to be decided.

    What a stage can still show, or was left out with, is told of that stage.
    """
    found: dict[str, list[Gap]] = {}
    told = walk.journal.skipped().keys() | {
        stage.name.partition(" ")[0] for stage in walk.stages if stage.open
    }
    for gap in gaps(one.judged):
        if gap.id in told or (gap.command.name in told and not gap.refused):
            continue
        if any(gap.what in stage.said for stage in walk.stages if stage.open):
            continue
        found.setdefault(_who(gap), []).append(gap)
    for who, those in found.items():
        number, names = count(len(those), "requirement"), ", ".join(gap.id for gap in those)
        yield Open(who, f"{number} {_ASKS[who]}: {names}", [f"{gap.id}: {gap.what}" for gap in those])
    decisions = one.plan.get("decisions")
    if isinstance(decisions, list) and decisions:
        yield Open(
            DRIVER, f"{count(len(decisions), 'decision')} of the plan", [str(each) for each in decisions]
        )


def _who(gap: Gap) -> str:
    if gap.refused:
        return DRIVER
    return HARDWARE if gap.elsewhere or gap.id in ON_NPU else REVIEWER


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
