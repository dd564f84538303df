"""The one thing to do next in the current job, with the reason."""

from __future__ import annotations

import argparse

from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.deliver.advice import next_action
from npu_upgrade.verdict import Result, Verdict

HELP = "name the one next command, and why"
EXAMPLES = """  upgrade.py next
  upgrade.py next --workspace ~/work --job upgrade-omni-0.22.0-ascend-0.23.0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the command; exit 2 when no job was started."""
    job = named_job(args)
    action = next_action(job)
    return Result(Verdict.PASS, action.why, {"job": job.id, "why": action.why}, next=action.command)
