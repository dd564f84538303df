"""Find how each unit of a downstream relates to its upstream: copied, vendored, patched, overridden.

Copies are compared with all versions of upstream's file up to the downstream's date (the commits of
a clone, or the releases on the package index), everything else with the given tree.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.downstream import Downstream, omni_side
from npu_upgrade.lineage.history import Version, open_newest
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.lineage.project import package_of
from npu_upgrade.lineage.records import Lineage, MethodLineage
from npu_upgrade.lineage.units import Relation, UnitLineage
from npu_upgrade.sources.releases import vllm_beside
from npu_upgrade.sources.tree import SourceTree, open_source

EXAMPLES = """--omni pypi:vllm-omni==0.30.0
--omni pypi:vllm-omni==0.30.0 --ascend git:../vllm-ascend
--omni dir:. --ascend pypi:vllm-ascend==0.30.0rc2 --format json
--downstream pypi:vllm-ascend==0.30.0rc2 --upstream pypi:vllm==0.30.0
--downstream pypi:vllm-omni==0.30.0 --upstream pypi:vllm==0.30.0"""
_FILES = 20
_OF_BASE = ("spec", "score", "runner_up", "runner_up_score", "confidence")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    option(which, "--omni SPEC", "the vllm-omni to look at")
    option(which, "--downstream SPEC", "any project that builds on others")
    option(
        parser,
        "--ascend SPEC",
        "with --omni: where vllm-ascend's history is: git:PATH[@REF] or pypi:vllm-ascend[==VERSION], "
        "with the version to upgrade to (default: pypi:vllm-ascend)",
        default="pypi:vllm-ascend",
    )
    option(
        parser,
        "--upstream SPEC",
        "what it builds on, nearest first; with --omni: the vllm (default: of the same version)",
        **REPEATED,
    )


def run(args: argparse.Namespace) -> Result:
    """PASS with what is known of every unit; INCONCLUSIVE when nothing is copied."""
    with no_collector(last=True):
        return _of_any(args) if args.downstream else _of_omni(args)


def _of_omni(args: argparse.Namespace) -> Result:
    """What the NPU side of a vllm-omni has of vllm-ascend and vllm."""
    omni = open_source(args.omni)
    package, farther = omni_side(omni).project.upstreams
    ascend = open_newest(args.ascend)
    # each upstream's tree, and where its history is
    upstreams, specs = {package: ascend}, {package: args.ascend}
    if vllm := next(iter(args.upstream), None) or vllm_beside(omni):
        upstreams[farther], specs[farther] = open_newest(vllm), vllm
    side = omni_side(omni, upstreams)
    found = Origins(side, specs)
    found.history_of_runners()  # says what is wrong with it
    return _result(found, side, ascend)


def _of_any(args: argparse.Namespace) -> Result:
    """What a project has of the projects it is compared with."""
    if not args.upstream:
        raise BadInput(
            "--downstream without --upstream",
            expected="the projects it builds on, the nearest first",
            try_="--upstream pypi:NAME==VERSION, git:PATH@REF or dir:PATH",
        )
    tree = open_source(args.downstream)
    trees = {spec: open_newest(spec) for spec in args.upstream}
    packages = {package_of(tree): spec for spec, tree in trees.items()}
    side = Downstream(tree, {package: trees[spec] for package, spec in packages.items()})
    found = Origins(side, packages)
    copies = _copies(found.units)
    data = {"downstream": tree.identity(), "upstreams": [one.identity() for one in trees.values()]}
    summary = (
        f"{len(copies)} of {sum(1 for unit in found.units if unit.statements)} units are copies "
        f"({_extent(copies)})"
    )
    related = any(unit.relation is not Relation.OWN for unit in found.units)
    verdict = Verdict.PASS if related else Verdict.INCONCLUSIVE
    return Result(verdict, summary, data | _whole(found, side), _files(found.units), None)


def _result(whole: Origins, side: Downstream, ascend: SourceTree) -> Result:
    found, omni = whole.runners, side.tree
    base = found.base if found else None
    data: dict[str, Any] = {
        "omni": omni.identity(),
        "ascend": ascend.spec,
        "base": base
        and _version_data(base.version)
        | {name: getattr(base, name) for name in _OF_BASE}
        | {"window": [_version_data(version) for version in base.window]},
        "methods": [_method_data(m) for m in found.methods if m.upstream_exists] if found else [],
        "own": [f"{m.runner}: {m.name}" for m in found.methods if not m.upstream_exists] if found else [],
    }
    if found:
        newest = _version_data(found.considered[-1])
        data["considered"] = {"versions": len(found.considered), "newest": newest}
    data |= _whole(whole, side)
    text = "\n\n".join([*([_text(found)] if found else []), _files(whole.units)])
    if base is None or found is None:
        summary = f"no runner method of {omni.spec} is a copy of any version of {ascend.spec} so far"
        return Result(Verdict.INCONCLUSIVE, summary, data, text, None)
    summary = (
        f"{len(found.copied)} methods are copied ({_extent(_copies(whole.units))}), closest overall to "
        f"{base.label} ({_day(base.date)}), score {base.score:.3f}, confidence {base.confidence:.2f}"
    )
    command = upgrade("merge", "--omni", omni.spec, "--ascend", ascend.spec, "--out", "upgrade-out")
    return Result(Verdict.PASS, summary, data, text, command)


def _copies(units: Sequence[UnitLineage]) -> list[UnitLineage]:
    return [unit for unit in units if unit.copied and unit.statements]


def _extent(copies: Sequence[UnitLineage]) -> str:
    return f"{sum(unit.lines for unit in copies)} lines in {len({unit.path for unit in copies})} files"


def _whole(found: Origins, side: Downstream) -> dict[str, Any]:
    """Every unit, and the project it is of."""
    project = {
        "package": side.project.package,
        "upstreams": list(side.upstreams),
        "device": side.project.device,
        "files": len(side.paths),
    }
    return {"project": project, "units": [msgspec.to_builtins(unit) for unit in found.units]}


def _files(units: Sequence[UnitLineage]) -> str:
    """The lines of each file by their relation, what is copied first."""
    lines: dict[str, Counter[Relation]] = {}
    behind: Counter[str] = Counter()
    for unit in units:
        if unit.statements:
            lines.setdefault(unit.path, Counter())[unit.relation] += unit.lines
            behind[unit.path] = max(behind[unit.path], unit.behind)
    shown = [relation for relation in Relation if relation is not Relation.OWN]

    def size(path: str) -> tuple[int, ...]:
        count = lines[path]
        return count[Relation.COPY] + count[Relation.VENDORED], *(count[relation] for relation in shown)

    order = sorted((path for path in lines if any(size(path))), key=size, reverse=True)
    rows = [
        (path, *(str(lines[path][one] or "-") for one in Relation), str(behind[path] or "-"))
        for path in order[:_FILES]
    ]
    text = table(("lines of", *(relation.value for relation in Relation), "behind"), rows)
    more = len(order) - len(rows)
    rest = len(lines) - len(order)
    return text + f"\n{more} more files, and {rest} with nothing from upstream"


def _method_data(method: MethodLineage) -> dict[str, Any]:
    names = ("runner", "path", "name", "copied", "statements", "matched", "coverage", "share", "score")
    return {name: getattr(method, name) for name in (*names, "runner_up_score")} | {
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
