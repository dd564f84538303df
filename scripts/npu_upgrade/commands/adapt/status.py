"""Where the adaptation of a model stands: its trees, stages, runs, and what comes next. Changes nothing.

Runs of other code than the plan's trees and plugin, or of an older checkpoint, are listed with the reason why
they do not count.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from npu_upgrade.commands.adapt.next import add_adaptation_arguments, advice, named_adaptation, stage_table
from npu_upgrade.evidence.runs import Run
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import DONE, SKIPPED, Adaptation, stages
from npu_upgrade.job.onward import in_workspace

EXAMPLES = """  adapt.py status
  adapt.py status Qwen3-8B --workspace ~/work --format text"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_adaptation_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the state as data; exit 2 when no adaptation was begun."""
    one = named_adaptation(args)
    found = stages(one)
    _, why, stage = advice(found)
    data: dict[str, Any] = {
        "model": one.name,
        "checkpoint": one.where,
        "trees": one.plan.get("trees"),
        "stages": [asdict(each) for each in found],
        "left_out": one.skipped,
        "evidence": [_brief(ran) for ran in one.runs.counted],
        "other_evidence": [_brief(ran) | {"why": reason} for ran, reason in one.runs.others],
        "why": why,
    }
    done = sum(each.state in (DONE, SKIPPED) for each in found)
    summary = f"{one.name}: {done} of {len(found)} stages done or left out; {why}"
    command = in_workspace(stage.command, args.workspace) if stage else None
    return Result(Verdict.PASS, summary, data, _text(one, stage_table(found)), command)


def _brief(ran: Run) -> dict[str, Any]:
    record = ran.record
    names = ("gate", "label", "verdict", "tree", "started", "summary")
    return {"run": ran.id} | {name: getattr(record, name) for name in names}


def _text(one: Adaptation, table_of_stages: str) -> str:
    lines = [f"{one.name}  {one.where}"]
    trees = one.plan.get("trees")
    for name, tree in trees.items() if isinstance(trees, dict) else ():
        lines.append(f"  {name:<9}{tree.get('spec') or tree.get('root')}")
    runs = [(ran, "") for ran in one.runs.counted] + one.runs.others
    rows = [
        (
            ran.id,
            ran.record.label,
            ran.record.verdict,
            f"does not count: {why}" if why else ran.record.summary,
        )
        for ran, why in sorted(runs, key=lambda pair: pair[0].id)
    ]
    parts = ["\n".join(lines), table_of_stages]
    parts += [table(("run", "label", "verdict", ""), rows)] if rows else ["no run of this model"]
    return "\n\n".join(parts)
