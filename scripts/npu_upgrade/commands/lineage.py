"""Which methods of the NPU runners are copies of vllm-ascend's, and of which commit or release.

Every method is compared with all versions of the upstream runner up to the date of the
vllm-omni given: the commits of a clone, or the releases on the package index.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import Any

from packaging.version import Version as Number

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.job import Job, find_workspace, open_job
from npu_upgrade.lineage.history import History, Version
from npu_upgrade.lineage.history_sources import parse_history_spec
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.records import Base, Lineage, MethodLineage
from npu_upgrade.sources.spec import Spec
from npu_upgrade.sources.tree import SourceTree, open_source

EXAMPLES = """  upgrade.py lineage --omni pypi:vllm-omni==0.30.0
  upgrade.py lineage --omni pypi:vllm-omni==0.30.0 --ascend git:../vllm-ascend
  upgrade.py lineage --omni dir:. --ascend pypi:vllm-ascend==0.30.0rc2 --format json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--omni", required=True, metavar="SPEC", help="the vllm-omni to look at")
    parser.add_argument(
        "--ascend",
        default="pypi:vllm-ascend",
        metavar="SPEC",
        help="where vllm-ascend's history is: git:PATH[@REF] or pypi:vllm-ascend[==VERSION], "
        "the version being the one to upgrade to (default: pypi:vllm-ascend)",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS with the base and a line per method; INCONCLUSIVE when nothing is copied."""
    spec = parse_history_spec(args.ascend)
    omni = open_source(args.omni)
    with _recorded(omni, args.ascend) as record:
        say(f"comparing the runners of {omni.spec} with {args.ascend}")
        found = infer(omni, args.ascend)
        result = _result(found, omni, _target(spec, found.history))
        record(result)
    return result


def _result(found: Lineage, omni: SourceTree, target: str) -> Result:
    base = found.base
    data = {
        "omni": omni.identity(),
        "ascend": target,
        "base": base and _base_data(base),
        "methods": [_method_data(method) for method in found.methods if method.upstream_exists],
        "own": [f"{m.runner}: {m.name}" for m in found.methods if not m.upstream_exists],
        "considered": {"versions": len(found.considered), "newest": _version_data(found.considered[-1])},
    }
    if base is None:
        summary = f"no method of the runners of {omni.spec} is a copy of a version of {target} so far"
        return Result(Verdict.INCONCLUSIVE, summary, data, _text(found), None)
    summary = (
        f"{len(found.copied)} methods are copied, together closest to {base.label} "
        f"({_day(base.date)}), score {base.score:.3f}, confidence {base.confidence:.2f}"
    )
    specs = ["--omni", omni.spec, "--ascend", target]
    command = shlex.join(["upgrade.py", "merge", *specs, "--out", "upgrade-out"])
    return Result(Verdict.PASS, summary, data, _text(found), command)


def _target(spec: Spec, history: History) -> str:
    """The version to upgrade to: the one that was named, else the newest release."""
    if spec.kind != "pypi" or spec.version:
        return _canonical(spec)
    usable = [version for version in history.versions if not version.yanked] or history.versions
    return max(usable, key=lambda version: Number(version.label)).spec


def _canonical(spec: Spec) -> str:
    """The spec as a job states it: a ref by its SHA."""
    return str(spec) if spec.kind == "pypi" else open_source(spec).spec


def _base_data(base: Base) -> dict[str, Any]:
    return _version_data(base.version) | {
        "spec": base.spec,
        "score": base.score,
        "runner_up": base.runner_up,
        "runner_up_score": base.runner_up_score,
        "confidence": base.confidence,
        "window": [_version_data(version) for version in base.window],
    }


def _method_data(method: MethodLineage) -> dict[str, Any]:
    numbers = ("copied", "statements", "matched", "coverage", "share", "score", "runner_up_score")
    return {"runner": method.runner, "path": method.path, "name": method.name} | {
        **{name: getattr(method, name) for name in numbers},
        "best": method.best and method.best.label,
        "runner_up": method.runner_up and method.runner_up.label,
        "confidence": method.confidence,
        "window": method.window and [_version_data(version) for version in method.window],
        "behind": {"versions": method.behind, "days": method.behind_days},
    }


def _version_data(version: Version) -> dict[str, Any]:
    return {"label": version.label, "date": version.date and version.date.isoformat()}


def _text(found: Lineage) -> str:
    head = ("method", "copied from", "date", "score", "runner-up", "confidence", "behind")
    lines = [table(head, (_row(method) for method in found.copied))]
    overridden = [m for m in found.methods if m.upstream_exists and not m.copied]
    if overridden:
        lines += ["", "overridden, not copied:"]
        lines += [f"  {_name(m)} ({m.matched} of {m.statements} statements in common)" for m in overridden]
    own = sum(not method.upstream_exists for method in found.methods)
    lines += ["", f"without a counterpart in vllm-ascend: {own}"]
    if found.base:
        first, last = (f"{version.label} ({_day(version.date)})" for version in found.base.window)
        lines += [f"equally good bases: {first} to {last}"] if first != last else []
    return "\n".join(lines)


def _row(method: MethodLineage) -> tuple[str, ...]:
    best, second = method.best, method.runner_up
    days = "" if method.behind_days is None else f" / {method.behind_days} days"
    return (
        _name(method),
        best.label if best else "",
        _day(best.date if best else None),
        f"{method.score:.3f}",
        f"{second.label} {method.runner_up_score:.3f}" if second else "-",
        f"{method.confidence:.2f}",
        f"{method.behind} version{'s' * (method.behind > 1)}{days}" if method.behind else "-",
    )


def _name(method: MethodLineage) -> str:
    return f"{method.runner} {method.name.rpartition('.')[2]}"


def _day(date: datetime | None) -> str:
    return f"{date:%Y-%m-%d}" if date else "no date"


@contextlib.contextmanager
def _recorded(omni: SourceTree, ascend: str) -> Generator[Callable[[Result], None]]:
    """Record the step in the job for exactly these versions, when one is open; never in the way."""
    job = _begun(omni, ascend)

    def finish(verdict: Verdict, summary: str, outputs: dict[str, Any]) -> None:
        if job:
            with contextlib.suppress(UpgradeError, OSError):
                job.finish("lineage", verdict, summary, outputs)

    try:
        yield lambda result: finish(result.verdict, result.summary, {"base": result.data["base"]})
    except UpgradeError as error:
        finish(Verdict.BLOCKED, error.what, {})
        raise


def _begun(omni: SourceTree, ascend: str) -> Job | None:
    """The open job for exactly these versions, with the step marked as running."""
    with contextlib.suppress(UpgradeError, OSError):
        job = open_job(find_workspace(Path.cwd()))
        asked = {"omni": omni.spec, "ascend": _canonical(parse_history_spec(ascend))}
        if asked == {role: job.inputs.named()[role].spec for role in asked}:
            job.begin("lineage")
            return job
    return None
