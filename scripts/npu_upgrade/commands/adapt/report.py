"""Write one HTML page of a model's adaptation: analysis, plan, gates, features, artifacts and what is next.

The page holds everything it shows, loads nothing and runs nothing, so that it can be kept, sent or attached.
It can be written in any state of the job and changes nothing in it.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from npu_upgrade.commands.adapt.next import add_adaptation_arguments, advice, named_adaptation
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import stages
from npu_upgrade.job.onward import in_workspace
from npu_upgrade.report.page import render_adaptation

EXAMPLES = """  adapt.py report
  adapt.py report Qwen3-8B --out qwen3-8b.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: report.html of the model)"
    )
    add_adaptation_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the place of the page; exit 2 when no adaptation was begun."""
    one = named_adaptation(args)
    path = (args.out or one.folder / "report.html").absolute()
    if path.is_dir():
        raise BadInput(f"--out {path} is a folder", expected="a file", try_=f"--out {path / 'report.html'}")
    verdict, why, stage = advice(stages(one))
    stopped = {"tried": [stage.said]} if stage and verdict is Verdict.INCONCLUSIVE else None
    command = in_workspace(stage.command, args.workspace) if stage else ""
    page = render_adaptation(one, {"why": why, "command": command, "stop": stopped})
    write_atomic(path, page)
    data = {"model": one.name, "page": str(path), "bytes": len(page.encode())}
    follow = in_workspace(shlex.join(["adapt.py", "next", one.name]), args.workspace)
    return Result(Verdict.PASS, f"{path} ({data['bytes'] // 1024} KiB)", data, next=follow)
