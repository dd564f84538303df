"""The one thing to do next in the current job, with the reason."""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.deliver.advice import next_action
from npu_upgrade.deliver.job import find_workspace, open_job
from npu_upgrade.verdict import Result, Verdict

HELP = "name the one next command, and why"
EXAMPLES = """  upgrade.py next
  upgrade.py next --workspace ~/work --job upgrade-omni-0.22.0-ascend-0.23.0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="ID", help="the job (default: the current one)")
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="the folder with .npu-upgrade (default: the nearest above)",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS with the command; exit 2 when no job was started."""
    job = open_job(args.workspace or find_workspace(Path.cwd()), args.job)
    action = next_action(job)
    return Result(Verdict.PASS, action.why, {"job": job.id, "why": action.why}, next=action.command)
