"""Check the merged files as they are now, and say what is left of the plan.

Run it after merging and again after every edit: it counts the conflicts that are left, parses the files,
looks for undefined names, learns the answers to resolved conflicts, and records the verdict as static
evidence for exactly these files. `resolve` closes items.
"""

from __future__ import annotations

import argparse

from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result
from npu_upgrade.job.check import Checked, check
from npu_upgrade.merge.plan import counts, method_rows

EXAMPLES = """
--job upgrade-omni-0.22.0-ascend-0.23.0 --workspace ~/work"""

_MOST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when no conflict, no blocking item and no broken file is left; else FAIL."""
    job = named_job(args)
    found = check(job)
    data = {
        "job": job.id,
        "plan": str(found.path),
        "evidence": found.evidence,
        "counts": counts(found.plan),
        "conflicts_open": found.plan["conflicts_open"],
        "problems": found.problems,
        "learned": found.learned,
        "items": [
            {key: item[key] for key in ("id", "kind", "title", "path", "blocking")}
            for item in found.open_items
        ],
    }
    brief = {"problems": found.problems[:_MOST]} if found.problems else {}
    return ending(Result(found.verdict, found.summary, data, _text(found), brief=brief), job)


def _text(found: Checked) -> str:
    head = ("method", "outcome", "base", "statements", "flags", "conflicts")
    lines = [table(head, method_rows(found.plan)), ""]
    lines += [f"problem: {problem['path']}: {problem['problem']}" for problem in found.problems]
    for heading, blocking in (("to resolve", True), ("to look at", False)):
        lines += [
            f"{heading}: {item['id']}  {item['title']}"
            for item in found.open_items
            if item["blocking"] is blocking
        ]
    return "\n".join([*lines, "", f"details: {found.path.with_suffix('.md')}"])
