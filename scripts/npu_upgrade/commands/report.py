"""Write one HTML page of a job: its gates, merged methods side by side, findings, coverage and evidence.

The page holds everything it shows, loads nothing and runs nothing, so that it can be kept, sent
or attached. It can be written in any state of the job and changes nothing in it.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import naming
from npu_upgrade.report.page import render

EXAMPLES = """  upgrade.py report
  upgrade.py report --out upgrade.html --job upgrade-omni-0.22.0-ascend-0.23.0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: report.html of the job)")
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the place of the page; exit 2 when no job was started."""
    job = named_job(args)
    path = (args.out or job.folder / "report.html").absolute()
    if path.is_dir():
        raise BadInput(f"--out {path} is a folder", expected="a file", try_=f"--out {path / 'report.html'}")
    page = render(job)
    write_atomic(path, page)
    data = {"job": job.id, "page": str(path), "bytes": len(page.encode())}
    follow = shlex.join(["upgrade.py", "next", *naming(job)])
    return Result(Verdict.PASS, f"{path} ({data['bytes'] // 1024} KiB)", data, next=follow)
