"""Write one HTML page of the job: what changed and why, what is proven, what is open and who decides.

Below that it shows an upgrade's merged methods side by side, or an adaptation's analysis, plan, features and
artifacts; the history is last. The page is self-contained, loads nothing and runs nothing, so you can keep,
send or attach it. You can write it in any state of the job; it changes nothing in the job.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.job_arguments import add_job_arguments, named_adaptation, named_job
from npu_upgrade.ground.command import ADAPT, program, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.report.page import HTML, MARKDOWN, render, render_adaptation

EXAMPLES = """
--out report.html --workspace ~/work
--markdown"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--out FILE", "the page (default: report.html of the job)", type=Path)
    option(parser, "--markdown", "write the top of the page as a pull request text")
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the place of the page; exit 2 when nothing was begun."""
    form = MARKDOWN if args.markdown else HTML
    if program() == ADAPT:
        page = render_adaptation(named_adaptation(args), form)
    else:
        page = render(named_job(args), form)
    path = (args.out or page.walk.folder / f"report.{form}").absolute()
    if path.is_dir():
        raise BadInput(f"--out {path} is a folder", expected="a file", try_=f"--out {path / 'report.html'}")
    write_atomic(path, page.text)
    data = {"job": page.walk.name, "page": str(path), "bytes": len(page.text.encode())}
    follow = upgrade("next", *page.walk.naming)
    return Result(Verdict.PASS, f"{path} ({data['bytes'] // 1024} KiB)", data, next=follow)
