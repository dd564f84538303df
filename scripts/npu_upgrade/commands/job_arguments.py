"""The options of every command that works on a job, and the job they name."""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.job import Job, find_workspace, open_job


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """``--job`` and ``--workspace``."""
    parser.add_argument("--job", metavar="ID", help="the job (default: the current one)")
    add_workspace_argument(parser)


def add_workspace_argument(parser: argparse.ArgumentParser) -> None:
    """``--workspace``."""
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="the folder with .npu-upgrade (default: the nearest above the present folder)",
    )


def named_job(args: argparse.Namespace) -> Job:
    """The job that the options name; raises :class:`BadInput` when there is none."""
    return open_job(args.workspace or _near(args), args.job)


def _near(args: argparse.Namespace) -> Path:
    """The workspace around the present folder, else the one of the checkout the command is about."""
    here, repo = find_workspace(Path.cwd()), getattr(args, "repo", None)
    return here if repo is None or (here / WORKSPACE_DIR).is_dir() else find_workspace(repo)
