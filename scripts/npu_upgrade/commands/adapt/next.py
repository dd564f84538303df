"""The one thing to do next for a model, from what was analysed, planned and run so far.

The order is analyze, plan, serve with dummy weights, serve with real weights, features, capacity, accuracy,
then what is delivered. Runs of other code than the plan's trees and plugin do not count, nor those of an
older checkpoint; evidence that was edited is refused. A stage whose newest run did not pass comes again, with
its root cause. INCONCLUSIVE: it did not pass so often that a person is needed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import (
    FAILED,
    SKIPPABLE,
    Adaptation,
    Stage,
    adaptation,
    models,
    next_stage,
    skip,
    stages,
)
from npu_upgrade.job.job import find_workspace
from npu_upgrade.job.onward import in_workspace

EXAMPLES = """  adapt.py next
  adapt.py next Qwen3-8B --workspace ~/work
  adapt.py next Qwen3-8B --skip accuracy --note "no network for the questions of gsm8k" """

ROUNDS = 5  # so many runs of a stage in a row that did not pass are for a person to look at


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_adaptation_arguments(parser)
    parser.add_argument(
        "--skip", choices=SKIPPABLE, help="leave a gate out (with --note); deliver has it as an open gap"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the record")


def add_adaptation_arguments(parser: argparse.ArgumentParser) -> None:
    """Which adaptation: a model's name, and the workspace."""
    parser.add_argument("model", nargs="?", metavar="NAME", help="the model (default: the last one)")
    add_workspace_argument(parser)


def named_adaptation(args: argparse.Namespace) -> Adaptation:
    """The adaptation that the options name; raises :class:`BadInput` when none was begun."""
    workspace = args.workspace or find_workspace(Path.cwd())
    known = models(workspace)
    if not known:
        raise BadInput(
            f"no adaptation in {workspace}", expected="a model that was begun", try_="adapt.py analyze MODEL"
        )
    return adaptation(workspace, Path(args.model).name if args.model else known[-1])


def run(args: argparse.Namespace) -> Result:
    """PASS with the command; INCONCLUSIVE when a person is needed; exit 2 when no adaptation was begun."""
    if args.skip and not args.note.strip():
        raise BadInput("--skip without --note", expected="the reason, for the record", try_="--note TEXT")
    one = named_adaptation(args)
    if args.skip:
        skip(one, args.skip, args.note)
    found = stages(one)
    verdict, why, stage = advice(found)
    data: dict[str, Any] = {"model": one.name, "stages": [asdict(each) for each in found]}
    data |= {"stage": stage.name, "why": why} if stage else {}
    data |= {"left_out": one.skipped} if one.skipped else {}
    command = in_workspace(stage.command, args.workspace) if stage else ""
    return Result(verdict, why, data, stage_table(found), command)


def stage_table(found: list[Stage]) -> str:
    """The stages for people."""
    return table(("stage", "state", "said"), [(one.name, one.state, one.said) for one in found])


def advice(found: list[Stage]) -> tuple[Verdict, str, Stage | None]:
    """The stage that is next and why; INCONCLUSIVE when a person has to look at it first."""
    stage = next_stage(found)
    if stage is None:
        why = (
            "every stage is done: publish the commit with adapt.py deliver --pr, or look at it with git show"
        )
        return Verdict.PASS, why, None
    if stage.failed >= ROUNDS:
        why = f"a person is needed: {stage.name} did not pass {stage.failed} times in a row: {stage.said}"
        return Verdict.INCONCLUSIVE, why, stage
    if stage.state == FAILED:
        return Verdict.PASS, f"{stage.name}: {stage.said}", stage
    more = f": {stage.said}" if stage.said else ""
    return Verdict.PASS, f"{stage.name} is the next stage{more}", stage
