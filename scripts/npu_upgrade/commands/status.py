"""Show where the job stands: inputs, stages, evidence and open items. Changes nothing.

Evidence that does not count is listed with the reason: it is of other contents, other code than the
plan's or another checkpoint, or is not as recorded.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from npu_upgrade.commands.job_arguments import (
    add_job_arguments,
    discovered_alone,
    leading_on,
    named_walk,
    several_open,
)
from npu_upgrade.commands.next import stage_table
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.stages import Walk, next_step

EXAMPLES = """
--workspace ~/work --format json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the state as data; exit 2 when nothing was begun."""
    if told := discovered_alone(args):
        return told
    if several := several_open(args):
        from npu_upgrade.commands.adapt.together import all_models

        return replace(all_models(several, args.workspace, run=False), verdict=Verdict.PASS)
    walk = named_walk(args)
    step = next_step(walk)
    data: dict[str, Any] = {
        "job": walk.name,
        **walk.facts,
        "stages": [stage.as_json() for stage in walk.stages],
        "left": walk.left,
        "left_out": walk.journal.skipped(),
        "evidence": list(walk.standing),
        "other_evidence": list(walk.other),
        "why": step.why,
    }
    done = sum(not stage.open for stage in walk.stages)
    summary = f"{walk.name}: {done} of {len(walk.stages)} stages done or left out; {step.why}"
    brief = {name: data[name] for name in ("left", "left_out") if data[name]}
    brief["stages"] = [f"{one.name}: {one.state}{f', {one.said}' if one.said else ''}" for one in walk.stages]
    brief["evidence"] = f"{len(walk.standing)} runs count, {len(walk.other)} do not"
    return Result(Verdict.PASS, summary, data, _text(walk), leading_on(walk), brief)


def _text(walk: Walk) -> str:
    rows = [(one, "") for one in walk.standing] + [
        (one, f"does not count: {one['why']}") for one in walk.other
    ]
    shown = [
        (f"{one['label']}: {one['gate']} {one['verdict']}", one["started"], one["id"], why or one["summary"])
        for one, why in sorted(rows, key=lambda row: row[0]["started"])
    ]
    evidence = table(("evidence", "started", "id", ""), shown) if shown else "no evidence yet"
    return "\n\n".join(["\n".join(walk.heading), stage_table(walk.stages), evidence])
