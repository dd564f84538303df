"""The options of every command that works on a job, and the job they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from npu_upgrade.commands.arguments import option
from npu_upgrade.ground.command import ADAPT, Command, program, upgrade
from npu_upgrade.ground.paths import WORKSPACE_DIR
from npu_upgrade.job.stages import Walk, find_workspace, next_step
from npu_upgrade.sources.spec import parse_spec

if TYPE_CHECKING:
    from npu_upgrade.ground.verdict import Result
    from npu_upgrade.job.adaptation import Adaptation
    from npu_upgrade.job.job import Job


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """``--job`` and ``--workspace``; of ``adapt.py`` the model's name in place of ``--job``."""
    if program() == ADAPT:
        parser.add_argument(
            "model", nargs="?", metavar="NAME", help="the model (default: the open one, else the last)"
        )
    else:
        option(parser, "--job ID", "the job (default: the current one)")
    add_workspace_argument(parser)


def add_workspace_argument(parser: argparse.ArgumentParser) -> None:
    """``--workspace``."""
    option(
        parser,
        "--workspace DIR",
        "the folder with .npu-upgrade (default: the nearest one here or above)",
        type=Path,
    )


def merging(omni: str, ascend: str) -> Command:
    """The merge of a vllm-ascend: on a new branch of the checkout that ``omni`` names, else into a folder."""
    spec = parse_spec(omni)
    checkout = spec.path and (Path(spec.path).expanduser() / ".git").exists()
    place = ("--apply",) if checkout else ("--out", "upgrade-out")
    return upgrade("merge", "--omni", omni, "--ascend", ascend, *place)


# Each program's job is imported when it is asked for: the other one's modules are dear.


def named_walk(args: argparse.Namespace) -> Walk:
    """The upgrade or the adaptation that the options name, with its stages."""
    if program() == ADAPT:
        from npu_upgrade.job import adaptation

        return adaptation.walk(named_adaptation(args))
    from npu_upgrade.job import upgrade

    return upgrade.walk(named_job(args))


def several_open(args: argparse.Namespace) -> list[str]:
    """The models that are being adapted, where there are several and none is named."""
    if program() != ADAPT or args.model:
        return []
    from npu_upgrade.job.adaptation import open_models

    found = sorted(open_models(args.workspace or find_workspace(Path.cwd())))
    return found if len(found) > 1 else []


def discovered_alone(args: argparse.Namespace) -> Result | None:
    """What is next after a `discover` that nothing followed; None where a job is named, or goes on."""
    if program() == ADAPT or args.job:
        return None
    from npu_upgrade.commands.discovered import not_gone_on

    return not_gone_on(args.workspace or find_workspace(Path.cwd()))


def named_job(args: argparse.Namespace) -> Job:
    """The job that the options name; raises :class:`BadInput` when there is none."""
    from npu_upgrade.job.job import open_job

    return open_job(args.workspace or _near(args), args.job)


def leading_on(walk: Walk) -> Command:
    """The command that goes on: `next` itself where something is asked, or a person is needed."""
    step = next_step(walk)
    asking = upgrade("next", *walk.naming)
    return asking if step.asks or step.stop else step.command or asking


def named_adaptation(args: argparse.Namespace) -> Adaptation:
    """The adaptation that the options name; raises :class:`BadInput` when none was begun."""
    from npu_upgrade.job.adaptation import adaptation

    return adaptation(args.workspace or find_workspace(Path.cwd()), args.model)


def _near(args: argparse.Namespace) -> Path:
    """The workspace around the present folder, else the one of the checkout the command is about."""
    here, repo = find_workspace(Path.cwd()), getattr(args, "repo", None)
    return here if repo is None or (here / WORKSPACE_DIR).is_dir() else find_workspace(repo)
