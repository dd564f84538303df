"""Find drift between omni's NPU workers and the vllm-ascend and vllm below them, from source alone.

It checks imports, attributes, signatures and their call sites, tuple sizes, shadowed methods, what the
NPU side lacks of the GPU side, CUDA names and version pins. It imports and runs nothing. FAIL means a
finding that the matched old pair does not have; a finding of both is LAG. In a job it audits the merged
runners; without --omni vllm-ascend against vllm, with --downstream any other platform plugin of vLLM.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_upgrade.audit.judge import (
    FILE,
    NEW,
    NO_WAIVERS,
    WAIVED,
    Judged,
    Waivers,
    judge,
    read_waivers,
    read_waivers_file,
)
from npu_upgrade.audit.report import as_brief, as_data, as_text, counts
from npu_upgrade.audit.run import check_names, look_at_both
from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.gate_job import GateJob, Trees, baseline, begin, named, pins, told
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.commands.merge_inputs import own_upstream
from npu_upgrade.ground.behind import give_way, go_behind
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import cut
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.answer import WAIVERS as JOB_WAIVERS
from npu_upgrade.job.ask import unit_of_finding
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.stops import PAIR
from npu_upgrade.sources.tree import open_source

EXAMPLES = """
--omni pypi:vllm-omni==0.30.0 --ascend pypi:vllm-ascend==0.30.0rc2
--omni dir:. --ascend git:../vllm-ascend@main --vllm git:../vllm@v0.31.0
--ascend dir:../vllm-ascend --vllm pypi:vllm==0.31.0 --check signatures arity
--downstream dir:. --upstream pypi:vllm==0.31.0"""
MOST_KEYS = 200
_REASON = 600  # characters of a waiver; the commit shows it


@dataclass(frozen=True)
class _Asked(Trees):
    """What one audit is to look at."""

    waivers: Waivers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--ascend SPEC", "the vllm-ascend (default: the job's)")
    option(parser, "--vllm SPEC", "the vllm (default: the one paired with vllm-ascend)")
    option(parser, "--omni SPEC", "the vllm-omni; without it vllm-ascend itself is audited")
    option(parser, "--downstream SPEC", "another project that builds on vllm, instead of vllm-ascend")
    option(parser, "--upstream SPEC", "the vllm it runs on")
    option(
        parser,
        "--baseline SPEC...",
        "the old pair to compare with: auto (default), none, or specs of its vllm-omni, vllm-ascend and "
        "vllm (those left out follow from the rest); with --downstream its vllm",
        default=["auto"],
    )
    option(parser, "--waivers FILE", f"accepted findings (default: {FILE} at the top of the tree)", type=Path)
    option(parser, "--check NAME...", f"only these: {', '.join(check_names())}")
    parser.add_argument("--ahead", action="store_true", help=argparse.SUPPRESS)
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS without new findings, FAIL with some; INCONCLUSIVE when there is no old pair to compare with."""
    if args.ahead:
        return _look_ahead(named_job(args))
    with told(args, "audit"):
        return _run(args)


def begin_ahead(job: Job) -> None:
    """Look at the old pair of a job in the background: the first audit then finds that known."""
    if Path(sys.argv[0]).stem in ("upgrade", "npu-upgrade"):  # else this is a part of another program
        log = job.folder / "audit-ahead"
        go_behind(log.with_suffix(".log"), ["audit", "--ahead", "--output", f"{log}.json", *naming(job)])


def _look_ahead(job: Job) -> Result:
    give_way()
    omni = open_project(job.inputs.omni.spec, "vllm-omni")
    old = baseline(["auto"], open_triple(omni, job.inputs.ascend.spec, None), job)
    if old:
        look_at_both(World(old), check_names())
    return Result(Verdict.PASS, f"looked at {named(old)}" if old else "there is no old pair")


def _run(args: argparse.Namespace) -> Result:
    names = _names(args.check)
    asked = _asked(args)
    _ = asked.problems  # said before the work begins
    old = World(asked.old) if asked.old else None
    say(f"auditing {named(asked.triple)}" + (f", and {named(asked.old)}" if asked.old else ""))
    found, before = look_at_both(World(asked.triple, old), names)
    faults = before.faults | found.faults
    known = before.without([*faults]) if old else None
    at = asked.triple.vllm if asked.job and not asked.job.job.of_omni else asked.triple.ascend
    judged = judge(found.without([*faults]), known, asked.waivers, at.version)
    if word := _word_on_the_pair(asked):
        judged = [replace(one, state=WAIVED, reason=word) if _is_of_the_pair(one) else one for one in judged]
    result = _result(asked, judged, faults)
    if asked.job:
        return _in_job(asked, result, judged, partly=names != check_names())
    result.next = _next(result, args)
    return result


def _word_on_the_pair(asked: _Asked) -> str:
    """What a person said of versions that cannot be loaded together, where the job had to ask."""
    closed = [item for item in asked.job.plan.items if item["kind"] == PAIR] if asked.job else []
    return next((str(item.get("note") or "accepted") for item in closed if item["state"] != "open"), "")


def _is_of_the_pair(one: Judged) -> bool:
    return (
        one.state == NEW
        and one.finding.check == "versions"
        and one.finding.kind in ("other-minor", "other-vllm")
    )


def _in_job(asked: _Asked, result: Result, judged: list[Judged], *, partly: bool) -> Result:
    """The result as evidence of the job; of some checks only, nothing is recorded."""
    assert asked.job
    if partly:
        result.data |= {"job": asked.job.job.id}
        result.next = asked.job.again
        return result
    # `next` hands the findings out
    result.brief = {name: result.data[name] for name in ("broken_checks",) if result.data[name]}
    counted = {"counts": result.data["counts"], "baseline": result.data["baseline"]}
    new = [one.finding for one in judged if one.state == NEW]
    counted |= {"failing": [one.key for one in new][:MOST_KEYS]}
    counted |= {"failing_in": sorted({one.here.path for one in new})}
    root = asked.job.job.root
    counted["failing_units"] = {
        one.key: unit_of_finding(root, one.here.path, one.here.line, one.owner) for one in new[:MOST_KEYS]
    }
    waived = [one for one in judged if one.state == WAIVED][:MOST_KEYS]
    counted["waived"] = [{"key": one.finding.key, "reason": cut(one.reason, _REASON)} for one in waived]
    findings = {"findings": as_data(judged)}
    return asked.job.finish(result, pins(asked.triple), findings, counted)


def _names(chosen: Sequence[str] | None) -> list[str]:
    known = check_names()
    wrong = [name for name in chosen or () if name not in known]
    if wrong:
        raise BadInput(f"no check {wrong[0]}", expected=f"one of {', '.join(known)}", try_="--check NAME ...")
    return sorted(chosen) if chosen else known


def _asked(args: argparse.Namespace) -> _Asked:
    """The trees and the waivers, from the arguments or from the job."""
    if args.downstream or args.upstream:
        return _any(args)
    job = None if args.ascend or args.omni else begin(args, "audit", "static")
    if job is None and args.ascend is None:
        raise BadInput(
            "--omni without --ascend", expected="the vllm-ascend it runs on", try_="add --ascend SPEC"
        )
    if job:
        triple = job.triple(vllm=args.vllm)
    else:
        omni = open_project(args.omni, "vllm-omni") if args.omni else None
        triple = open_triple(omni, args.ascend, args.vllm)
    old = baseline(args.baseline, triple, job.job if job else None)
    return _Asked(triple, old, job, _waivers(args.waivers, triple, job))


def _any(args: argparse.Namespace) -> _Asked:
    """A project of any name on vllm, and the vllm that it is on now by what it requires."""
    if not (args.downstream and args.upstream) or args.omni or args.ascend or args.vllm:
        raise BadInput(
            "--downstream and --upstream go together, in place of --ascend and --vllm",
            expected="a project that builds on vllm, and a vllm",
            try_="--downstream dir:. --upstream pypi:vllm==VERSION",
        )
    say(f"reading {args.downstream}")
    triple = Triple(None, open_source(args.downstream), open_project(args.upstream, "vllm"))
    before = next(iter(args.baseline))
    spec = own_upstream(triple.ascend, triple.vllm) if before == "auto" else before
    old = None if spec in (None, "none") else Triple(None, triple.ascend, open_project(spec, "vllm"))
    return _Asked(triple, old, None, _waivers(args.waivers, triple, None))


def _waivers(path: Path | None, triple: Triple, job: GateJob | None) -> Waivers:
    """Those of the tree (or the file that was named), and those that `resolve` recorded in the job."""
    if path:
        found = read_waivers_file(path)
    else:
        tree = triple.omni or triple.ascend
        found = read_waivers(tree.read(FILE), FILE) if tree.exists(FILE) else NO_WAIVERS
    own = job.job.folder / JOB_WAIVERS if job else None
    if own is None or not own.exists():
        return found
    return Waivers(read_waivers_file(own).entries | found.entries)


def _result(asked: _Asked, judged: list[Judged], faults: dict[str, str]) -> Result:
    found = counts(judged)
    unused = asked.waivers.unused(entry.finding.key for entry in judged)
    parts = [*asked.problems[:1]]
    parts.append(", ".join(f"{number} {state.lower()}" for state, number in found.items()))
    if found[NEW] and asked.old is None:
        parts.append("no old pair to compare with, so old findings look new")
    parts += [f"{len(unused)} waivers match nothing"] if unused else []
    parts += [f"{', '.join(faults)} broke (a defect of the audit)"] if faults else []
    data: dict[str, Any] = asked.data | {
        "label": "static",
        "belongs_together": not asked.problems,
        "counts": found,
        "unused_waivers": unused,
        "broken_checks": faults,
        "findings": as_data(judged),
    }
    data["sources"] = {name: str(tree.root) for name, tree in asked.triple.trees().items() if tree.root}
    brief = {name: data[name] for name in ("problems", "baseline", "broken_checks", "sources") if data[name]}
    brief |= {"counts": found, "new": as_brief(judged)}
    # what could not be judged is neither FAIL nor PASS
    verdict = Verdict.INCONCLUSIVE if found[NEW] or faults else Verdict.PASS
    verdict = Verdict.FAIL if found[NEW] and asked.old else verdict
    return Result(verdict, "; ".join(parts), data, asked.head() + as_text(judged), brief=brief)


def _next(result: Result, args: argparse.Namespace) -> Command | None:
    """Where new findings are: what the GPU side has that could be ported."""
    if result.verdict is Verdict.PASS or not args.omni:
        return None
    parity = any(f["state"] == NEW and f["incident"] == "P" for f in result.data["findings"])
    if not parity:
        return None
    return upgrade("port", "--omni", args.omni, "--ascend", args.ascend)
