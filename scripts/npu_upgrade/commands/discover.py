"""Find the versions of an upgrade: releases, the vllm and vllm-ascend pair, what is installed.

Each answer names its source. Releases are asked of gh, the GitHub REST API, a local
clone and the package index, in this order; pairs are read from the target's own files,
or inferred and marked so.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from npu_upgrade.commands.discover_sections import gpu_section, notes, omni_section, releases_section
from npu_upgrade.commands.discover_targets import (
    find_pair,
    newest_spec,
    omni_for,
    open_or_why,
    resolved_pins,
    spec_of,
)
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.sources.installed import cann_toolkit, installed
from npu_upgrade.sources.pairing import Pair
from npu_upgrade.sources.releases import ORDER, REPOSITORIES, Answer, find_all, refuse_if_silent
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree

EXAMPLES = """  upgrade.py discover
  upgrade.py discover --omni pypi:vllm-omni==0.30.0 --ascend pypi:vllm-ascend==0.30.0rc2
  upgrade.py discover --omni git:vllm-omni@main --repo vllm-ascend=../vllm-ascend
  upgrade.py discover --python ~/venv/bin/python --limit 10 --no-pre"""
CLONED = ("vllm", "vllm-omni", "vllm-ascend")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--omni",
        metavar="SPEC",
        help="the vllm-omni to upgrade (default: the newest one for the pair's vllm)",
    )
    parser.add_argument(
        "--ascend", metavar="SPEC", help="the vllm-ascend to upgrade to (default: the newest release)"
    )
    parser.add_argument(
        "--repo",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a local clone of vllm, vllm-omni or vllm-ascend (may be repeated)",
    )
    parser.add_argument(
        "--source",
        choices=("auto", *ORDER),
        default="auto",
        help="ask only this source for releases (default: each in order until one answers)",
    )
    parser.add_argument(
        "--limit", type=int, default=5, metavar="N", help="releases shown per project (default: 5)"
    )
    parser.add_argument(
        "--pre", action=argparse.BooleanOptionalAction, default=True, help="show pre-releases too"
    )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="the interpreter whose packages are listed (default: this one)",
    )


def run(args: argparse.Namespace) -> Result:
    """Answer every question that can be answered; PASS when all four projects were."""
    from npu_upgrade.commands import discover_text  # rich is slow to import, and no other command needs it

    clones = _clones(args.repo)
    if args.limit < 1:
        raise BadInput(f"--limit {args.limit}", expected="a number of releases, 1 or more", try_="--limit 5")
    for spec in filter(None, (args.omni, args.ascend)):
        parse_spec(spec)
    with ThreadPoolExecutor(max_workers=1) as pool:
        packages = pool.submit(installed, args.python)
        say("asking for the releases of " + ", ".join(REPOSITORIES))
        answers = find_all(args.source, clones)
        refuse_if_silent(answers)
        found = packages.result()

    ascend_spec = args.ascend or newest_spec(answers["vllm-ascend"], clones, args.pre)
    ascend, ascend_why = open_or_why(ascend_spec, given=bool(args.ascend))
    pins = resolved_pins(ascend, clones)
    pair = find_pair(ascend_spec, ascend, pins, answers)
    omni_spec = args.omni or omni_for(pair, answers["vllm-omni"], clones, args.pre)
    omni, omni_why = open_or_why(omni_spec, given=bool(args.omni))
    toolkit = cann_toolkit()
    data = {
        "releases": {
            name: releases_section(answer, args.limit, args.pre) for name, answer in answers.items()
        },
        "ascend": {
            "spec": spec_of(ascend, ascend_spec),
            "identity": ascend.identity() if ascend else None,
            "why": ascend_why,
        },
        "pair": asdict(pair) | {"pins": [asdict(pin) for pin in pins]},
        "installed": {
            "python": str(args.python or sys.executable),
            "packages": [asdict(package) for package in found],
            "cann": {"version": toolkit[0], "file": str(toolkit[1])} if toolkit else None,
        },
        "omni": omni_section(omni_spec, omni, omni_why, answers["vllm-ascend"], clones, bool(args.omni)),
        "gpu_changes": gpu_section(omni, answers["vllm-omni"]),
    }
    data["notes"] = notes(data, pins)
    verdict, summary = _judge(answers, pair, data["ascend"]["spec"])
    command = _merge_command(omni, ascend) if omni and ascend else None
    return Result(verdict, summary, data, discover_text.render(data), command)


def _merge_command(omni: SourceTree, ascend: SourceTree) -> str:
    specs = ["--omni", omni.spec, "--ascend", ascend.spec]
    return shlex.join(["upgrade.py", "merge", *specs, "--out", "upgrade-out"])


def _judge(answers: dict[str, Answer], pair: Pair, ascend_spec: str | None) -> tuple[Verdict, str]:
    silent = [name for name, answer in answers.items() if answer.source is None]
    if silent:
        return Verdict.BLOCKED, f"no source named the releases of {', '.join(silent)}; the rest is reported"
    if pair.vllm is None:
        return Verdict.INCONCLUSIVE, f"the vllm of {ascend_spec} could not be established: {pair.why}"
    return Verdict.PASS, f"{ascend_spec} belongs to vllm {pair.vllm} ({pair.basis}: {pair.why})"


def _clones(arguments: list[str]) -> dict[str, Path]:
    clones = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        if name not in CLONED or not path or not Path(path).is_dir():
            raise BadInput(
                f"--repo {argument} is no project and folder",
                expected=f"NAME=PATH, NAME one of {', '.join(CLONED)}, PATH a git clone",
                try_="--repo vllm-ascend=/path/to/vllm-ascend",
            )
        clones[name] = Path(path).resolve()
    return clones
