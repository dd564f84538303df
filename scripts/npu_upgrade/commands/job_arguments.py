"""The options of every command that works on a job, and the job they name."""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.deliver.job import Job, find_workspace, open_job


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """``--job`` and ``--workspace``."""
    parser.add_argument("--job", metavar="ID", help="the job (default: the current one)")
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="the folder with .npu-upgrade (default: the nearest above)",
    )


def named_job(args: argparse.Namespace) -> Job:
    """The job that the options name; raises :class:`BadInput` when there is none."""
    return open_job(args.workspace or find_workspace(Path.cwd()), args.job)
