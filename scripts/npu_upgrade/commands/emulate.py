"""Run the real NPU runners on this machine's CPU: unmodified torch_npu on emulated CANN.

The matched old pair runs first, then the new one: import, then scenarios in eager mode, with
captured graphs, and behind `vllm serve`. Tokens are compared in float32 with a reference, the
classes that ran are asserted, and changed lines that nothing executed are listed. FAIL means
what the matched old pair does not have. The label is "emulated dry-run": it shows that Python
and operator schemas hold together on the paths taken, and says nothing about kernels or speed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_upgrade.audit.belonging import belonging
from npu_upgrade.audit.triples import check_parses, open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.commands.arguments import some_of
from npu_upgrade.commands.gate_job import GateJob, baseline, begin, named, pins, told
from npu_upgrade.commands.job_arguments import add_job_arguments
from npu_upgrade.gates.emulation.catalogue import TIERS, chosen, scenarios
from npu_upgrade.gates.emulation.changed import Coverage, coverage
from npu_upgrade.gates.emulation.compare import Compared, as_text, compared, tiers, verdict
from npu_upgrade.gates.emulation.dry_run import run as run_triple
from npu_upgrade.gates.emulation.dry_run import run_kept
from npu_upgrade.gates.emulation.environment import check_machine
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.verdict import Result, Verdict

LABEL = "emulated dry-run"
EXAMPLES = """
--omni pypi:vllm-omni==0.24.0 --ascend pypi:vllm-ascend==0.24.0rc1
--omni dir:. --ascend git:../vllm-ascend@main --vllm git:../vllm@v0.31.0
--ascend dir:../vllm-ascend --tiers import,eager --scenarios plain
--list"""
_KEPT_RUNS = 10


@dataclass
class _Asked:
    """What one run is to play, and where its files go."""

    triple: Triple
    old: Triple | None
    wanted: list[tuple[str, Any]]
    job: GateJob | None
    out: Path
    whole: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ascend", metavar="SPEC", help="the vllm-ascend (default: the job's)")
    parser.add_argument(
        "--vllm", metavar="SPEC", help="the vllm (default: the one that vllm-ascend belongs with)"
    )
    parser.add_argument("--omni", metavar="SPEC", help="the vllm-omni; without it vllm-ascend runs alone")
    parser.add_argument(
        "--baseline",
        nargs="+",
        default=["auto"],
        metavar="SPEC",
        help="the old pair to run first: auto (default), none, or its vllm-omni, vllm-ascend and vllm",
    )
    parser.add_argument(
        "--tiers",
        type=some_of(TIERS),
        default=TIERS,
        metavar="LIST",
        help=f"some of {','.join(TIERS)} (default: all)",
    )
    parser.add_argument(
        "--scenarios",
        nargs="+",
        default=["core"],
        metavar="NAME",
        help="core (default), all, or names: --list",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep logs and results in DIR")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS when nothing new fails; INCONCLUSIVE names what could not be judged; BLOCKED what is missing."""
    if args.list:
        return _listed()
    with told(args, "emulate"):
        return _run(args)


def _run(args: argparse.Namespace) -> Result:
    asked = _asked(args, args.tiers)
    if asked.job is None:
        return _play(asked)
    try:
        result = _play(asked)
    except Blocked as error:
        data = {"label": LABEL, "error": error.what, "expected": error.expected, "try": error.try_}
        result = Result(Verdict.BLOCKED, error.what, data)
    evidence = {name: result.data[name] for name in ("tiers", "baseline", "error") if name in result.data}
    evidence["failing"] = failing(result.data.get("runs", []))
    if not asked.whole:
        result.data |= {"job": asked.job.job.id}
        result.next = asked.job.again
        return result
    return asked.job.finish(result, pins(asked.triple), {}, evidence)


def failing(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The runs that fail and did not before, by tier and scenario."""
    return [f"{run['tier']} {run.get('scenario', '')}".strip() for run in runs if run["state"] == "FAIL"]


def _asked(args: argparse.Namespace, tier_names: Sequence[str]) -> _Asked:
    """The triples and scenarios, from the arguments or from the job."""
    if not args.ascend and args.omni:
        raise BadInput(
            "--omni without --ascend", expected="the vllm-ascend it is to run on", try_="--ascend SPEC"
        )
    # before anything is read or begun, so that wrong names are said first; a job always has a vllm-omni
    wanted = chosen(args.scenarios, tier_names, omni=bool(args.omni or not args.ascend))
    whole = args.scenarios in (["core"], ["all"]) and set(tier_names) == set(TIERS)
    job = None if args.ascend else begin(args, "emulate", LABEL, whole=whole)
    if job:
        check_parses(job.omni)
        triple = open_triple(job.omni, job.ascend_spec, args.vllm)
    else:
        omni = open_project(args.omni, "vllm-omni") if args.omni else None
        triple = open_triple(omni, args.ascend, args.vllm)
    old = baseline(args.baseline, triple, job)
    return _Asked(triple, old, wanted, job, _folder(args.out), whole)


def _folder(out: Path | None) -> Path:
    """An empty folder for logs and results: the user's, or one in the cache, where the last few are kept."""
    if out:
        if out.exists() and any(out.iterdir()):
            raise BadInput(
                f"--out {out} is not empty", expected="a new or an empty folder", try_="another name"
            )
        out.mkdir(parents=True, exist_ok=True)
        return out.absolute()
    runs = cache_root() / "emulation" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for old in sorted(runs.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=runs)).absolute()


def _play(asked: _Asked) -> Result:
    check_machine()
    problems = [finding.what for finding in belonging(asked.triple)]
    for problem in problems:
        say(f"these do not belong together: {problem}")
    before = None
    if asked.old:
        say(f"the matched old pair first: {named(asked.old)}")
        before = run_kept(asked.old, asked.wanted, asked.out / "old")
    say(f"the new pair: {named(asked.triple)}")
    played = run_triple(asked.triple, asked.wanted, asked.out / "new")
    together = compared(played.outcomes, before.outcomes if before else ())
    compares = played.reached and asked.old is not None  # else everything would count as changed
    covered = coverage(asked.triple, asked.old, played.executed) if compares else []
    return _result(asked, together, covered, problems)


def _result(
    asked: _Asked, together: Sequence[Compared], covered: Sequence[Coverage], problems: list[str]
) -> Result:
    decided = verdict(together, has_old=asked.old is not None)
    by_tier = tiers(together)
    data: dict[str, Any] = {
        "label": LABEL,
        "verified_on_npu": False,
        "triple": {name: tree.identity() for name, tree in asked.triple.trees().items()},
        "baseline": asked.old and {name: tree.spec for name, tree in asked.old.trees().items()},
        "problems": problems,
        "tiers": by_tier,
        "runs": [
            one.new.as_json()
            | {"state": one.state, "why": one.why, "old": one.old.as_json() if one.old else None}
            for one in together
        ],
        "hardware_or_review_only": [one.as_json() for one in covered if one.unexecuted],
        "logs": str(asked.out),
    }
    said = ", ".join(f"{tier} {state}" for tier, state in by_tier.items())
    missed, total = sum(len(one.unexecuted) for one in covered), sum(one.changed for one in covered)
    summary = f"{LABEL}: {said}"
    if total:
        summary += f"; {total - missed} of {total} changed statements executed"
    if asked.old is None:
        summary += "; no old pair to compare with"
    head = "".join(f"DO NOT BELONG TOGETHER: {problem}\n" for problem in problems)
    against = named(asked.old) if asked.old else "nothing"
    text = f"{head}{LABEL} of {named(asked.triple)}\ncompared with: {against}\n\n{as_text(together, covered)}"
    return Result(decided, summary, data, text)


def _listed() -> Result:
    rows = [
        {"name": one.name, "shows": one.shows, "tiers": list(one.tiers), "core": one.core, "omni": one.omni}
        for one in scenarios()
    ]
    text = "\n".join(
        f"{'*' if row['core'] else ' '} {row['name']:<24}{','.join(row['tiers']):<14}{row['shows']}"
        for row in rows
    )
    return Result(Verdict.PASS, f"{len(rows)} scenarios, * in core", {"scenarios": rows}, text)
