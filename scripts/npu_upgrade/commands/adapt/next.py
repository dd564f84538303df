"""The one thing to do next for a model, from what was analysed, planned and run so far.

The order is analyze, plan, serve with dummy weights, serve with real weights, features, capacity, then
what is delivered. A stage whose newest run did not pass comes again, with its root cause.
INCONCLUSIVE: it did not pass so often that a person is needed.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path

from npu_upgrade.commands.job_arguments import add_workspace_argument
from npu_upgrade.deliver.job import find_workspace
from npu_upgrade.errors import BadInput
from npu_upgrade.guide.adaptation import FAILED, models, next_stage, stages
from npu_upgrade.tables import table
from npu_upgrade.verdict import Result, Verdict

HELP = "name the one next command for a model, and why"
EXAMPLES = """  adapt.py next
  adapt.py next Qwen3-8B --workspace ~/work"""

ROUNDS = 5  # so many runs of a stage in a row that did not pass are for a person to look at


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="NAME", help="the model (default: the last one)")
    add_workspace_argument(parser)


def _here(command: str, workspace: Path | None) -> str:
    """The command with the workspace that was named; what follows -- stays behind it."""
    words = shlex.split(command)
    if workspace is None or "--workspace" in words:
        return command
    at = words.index("--") if "--" in words else len(words)
    return shlex.join([*words[:at], "--workspace", str(workspace), *words[at:]])


def run(args: argparse.Namespace) -> Result:
    """PASS with the command; exit 2 when no adaptation was begun."""
    workspace = args.workspace or find_workspace(Path.cwd())
    known = models(workspace)
    if not known:
        raise BadInput(
            f"no adaptation in {workspace}", expected="a model that was begun", try_="adapt.py analyze MODEL"
        )
    name = Path(args.model).name if args.model else known[-1]
    found = stages(workspace, name)
    stage = next_stage(found)
    command = _here(stage.command, args.workspace) if stage else ""
    data = {"model": name, "stages": [asdict(one) for one in found]}
    text = table(("stage", "state", "said"), [(one.name, one.state, one.said) for one in found])
    if stage is None:
        why = (
            "every stage is done: publish the commit with adapt.py deliver --pr, or look at it with git show"
        )
        return Result(Verdict.PASS, why, data, text)
    data |= {"stage": stage.name}
    if stage.failed >= ROUNDS:
        why = f"a person is needed: {stage.name} did not pass {stage.failed} times in a row: {stage.said}"
        return Result(Verdict.INCONCLUSIVE, why, data | {"why": why}, text, command)
    why = f"{stage.name}: {stage.said}" if stage.state == FAILED else f"{stage.name} is the next stage"
    return Result(Verdict.PASS, why, data | {"why": why}, text, command)
