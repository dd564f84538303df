"""Where the current job stands: its versions, steps, evidence and open items. Changes nothing."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.evidence.chain import Record
from npu_upgrade.evidence.pins import short_pin
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.advice import Outlook, describe, look
from npu_upgrade.job.job import Job
from npu_upgrade.job.steer import next_step

EXAMPLES = """  upgrade.py status
  upgrade.py status --job upgrade-omni-0.22.0-ascend-0.23.0 --format json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the state as data; exit 2 when no job was started."""
    job = named_job(args)
    outlook, action = look(job), next_step(job)
    steps = {name: asdict(step) | {"status": describe(step)} for name, step in job.steps.items()}
    done = sum(step.status == "done" for step in job.steps.values())
    open_items = len(outlook.plan.items_in("open")) if outlook.plan else None
    data: dict[str, Any] = {
        "job": job.id,
        "inputs": job.inputs,
        "repo": job.repo,
        "branch": job.branch,
        "steps": steps,
        "tree": outlook.subject.tree if outlook.subject else None,
        "evidence": [_brief(record) for record in outlook.standing],
        "stale_evidence": [_brief(record) for record in outlook.stale],
        "evidence_problem": _problem(outlook),
        "open_items": open_items,
        "conflicts_open": outlook.plan.conflicts_open if outlook.plan else None,
        "why": action.why,
    }
    summary = f"{job.id}: {done} of {len(job.steps)} steps done; {action.why}"
    return Result(Verdict.PASS, summary, data, _text(job, outlook), action.command)


def _brief(record: Record) -> dict[str, Any]:
    names = ("id", "gate", "label", "verdict", "tree", "started", "summary")
    return {name: getattr(record, name) for name in names}


def _text(job: Job, outlook: Outlook) -> str:
    lines = [f"job {job.id} (since {job.created})"]
    for role, source in job.inputs.items():
        pin = f"{short_pin(source['identity'])}  {source['spec']}" if source else "not given"
        lines.append(f"  {role:<8}{pin}")
    lines += [f"  results {job.out}"] if job.out else []
    lines += [f"  repo    {job.repo} ({job.branch or 'no branch yet'})"] if job.repo else []
    lines += ["", f"{'step':<10}{'status':<13}{'verdict':<14}{'at':<22}summary"]
    for name, step in job.steps.items():
        row = f"{name:<10}{describe(step):<13}{step.verdict or '':<14}{step.at or '':<22}{step.summary or ''}"
        lines.append(row.rstrip())
    return "\n".join([*lines, "", *_evidence(outlook)])


def _evidence(outlook: Outlook) -> list[str]:
    problem = _problem(outlook)
    lines = [f"evidence cannot be used: {problem}"] if problem else []
    lines.append("evidence for the files as they are now" + ("" if outlook.standing else ": none"))
    lines += [_row(record, "") for record in outlook.standing]
    lines += [_row(record, "stale: ") for record in outlook.stale]
    if outlook.plan:
        open_items, waived = outlook.plan.items_in("open"), outlook.plan.items_in("waived")
        conflicts = outlook.plan.conflicts_open
        lines += ["", f"items open {len(open_items)}, waived {len(waived)}; conflicts open {conflicts}"]
    return lines


def _problem(outlook: Outlook) -> str | None:
    return outlook.broken or ("the newest record is half-written" if outlook.unfinished else None)


def _row(record: Record, mark: str) -> str:
    return (
        f"  {mark}{record.label}: {record.gate} {record.verdict} "
        f"({record.id[:12]}, tree {record.tree[:12]}, {record.started}) {record.summary}"
    )
