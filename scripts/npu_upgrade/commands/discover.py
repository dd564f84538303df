"""Find the versions for an upgrade: releases, the vllm and vllm-ascend pair, what is installed.

Each answer names its source. Releases come from gh, the GitHub REST API, a local clone or the
package index, tried in this order; the pair is read from the target's own files, or inferred and
marked so. The imports show whether target, vllm and downstream can be loaded together; if not, the
nearest vllm-ascend that can is named.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.audit.together import Together, look_together, neighbour, vllms_of
from npu_upgrade.commands import discovered
from npu_upgrade.commands.arguments import REPEATED, option
from npu_upgrade.commands.job_arguments import merging
from npu_upgrade.ground.command import Command, upgrade
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import first_of, table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.inference import infer_base
from npu_upgrade.lineage.project import KNOWN
from npu_upgrade.lineage.ran_with import released_as
from npu_upgrade.lineage.records import SURE
from npu_upgrade.sources import discovery
from npu_upgrade.sources.installed import PACKAGES, cann_toolkit, installed
from npu_upgrade.sources.pins import Pair
from npu_upgrade.sources.releases import REPOSITORIES, Answer, PassedOver, find_all, refuse_if_silent
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source

EXAMPLES = """
--omni pypi:vllm-omni==0.30.0 --ascend pypi:vllm-ascend==0.30.0rc2
--omni git:vllm-omni@main --repo vllm-ascend=../vllm-ascend
--python ~/venv/bin/python --no-pre"""
CLONED = ("vllm", "vllm-omni", "vllm-ascend")
_WIDEST = 98
_NOTES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = "the checkout you are in, else the newest one for the pair's vllm"
    option(parser, "--omni SPEC", f"the vllm-omni to upgrade (default: {default})")
    option(parser, "--ascend SPEC", "the vllm-ascend to upgrade to (default: the newest release)")
    option(parser, "--vllm SPEC", "the vllm to run on (default: the target's own, then the omni's)")
    option(
        parser,
        "--repo NAME=PATH",
        "a local clone of vllm, vllm-omni or vllm-ascend (repeatable)",
        **REPEATED,
    )
    option(parser, "--pre", "show pre-releases too", action=argparse.BooleanOptionalAction, default=True)
    option(
        parser, "--python PATH", "the interpreter whose packages are listed (default: this one)", type=Path
    )


def run(args: argparse.Namespace) -> Result:
    """PASS when the three can be loaded together, FAIL when they cannot."""
    clones = _clones(args.repo)
    args.omni = args.omni or _here()
    for spec in filter(None, (args.omni, args.ascend, args.vllm)):
        parse_spec(spec)
    with ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(installed, args.python)
        say("looking up the releases of " + ", ".join(REPOSITORIES))
        answers = find_all(clones=clones)
        refuse_if_silent(answers)
        packages = asked.result().packages

    newest = discovery.newest_spec
    ascend = discovery.look(
        args.ascend or newest(answers["vllm-ascend"], clones, args.pre), given=bool(args.ascend)
    )
    pins = discovery.pins_of(ascend.tree, clones)
    pair = discovery.find_pair(ascend, pins, answers)
    omni = discovery.look(
        args.omni or newest(answers["vllm-omni"], clones, args.pre, pair.vllm), given=bool(args.omni)
    )
    known = KNOWN[0].name
    if omni.tree and omni.tree.project != known:
        raise BadInput(
            f"{omni.spec} is {omni.tree.project or 'an unknown project'}; pairs are for {known} only",
            expected=f"the sources of {known}",
            try_="upgrade.py merge --downstream SPEC --upstream SPEC --apply, for the copies of any project",
        )
    toolkit = cann_toolkit(os.environ)
    of_omni = discovery.omni_section(omni, answers["vllm-ascend"], clones)
    if omni.tree:
        of_omni |= _tracked(omni.tree if args.omni else None, clones.get("vllm-ascend"))
    together = _together(args.vllm, ascend.tree, omni.tree) if ascend.tree else []
    data = {
        "ascend": {"spec": ascend.spec, "identity": ascend.identity, "why": ascend.why},
        "pair": asdict(pair) | {"pins": pins},
        "together": [one.as_json() for one in together],
        "installed": {
            "python": str(args.python or sys.executable),
            "packages": [package.as_json() for package in packages],
            "cann": {"version": toolkit[0], "file": str(toolkit[1])} if toolkit else None,
        },
        "omni": of_omni,
        "notes": discovery.notes(pair, omni.tree, of_omni.get("unpublished", []), packages, pins),
        "releases": {name: discovery.releases_section(answer, args.pre) for name, answer in answers.items()},
    }
    if (ran := of_omni.get("ran_as")) and (label := of_omni["tracked"].get("label")):
        told = f"the gates compare with {ran}, as the tree ran; merge bases each copied method on the version"
        data["notes"] = [*data["notes"], f"{told} whose text it has, mostly {label}"]
    verdict, summary = _judge(answers, pair, ascend.spec, together)
    sure = verdict is not Verdict.INCONCLUSIVE
    command = merging(omni.tree.spec, ascend.tree.spec) if omni.tree and ascend.tree and sure else None
    if verdict is Verdict.FAIL and omni.tree and ascend.tree:
        data["question"], command = _question(together, ascend.tree, omni.tree)
        data["question"]["answers"] = _answers(args, omni.tree.spec, ascend.tree.spec, pair.vllm, command)
    data = msgspec.to_builtins(data)
    result = Result(verdict, summary, data, render(data), command, _brief(data))
    with contextlib.suppress(BadInput):  # a cache that cannot be written
        path = parse_spec(args.omni).path if args.omni else None
        discovered.keep(result, [Path.cwd(), *([Path(path).expanduser()] if path else [])])
    return result


def _here() -> str | None:
    """The checkout of the downstream that the present folder is in, as a spec."""
    above = (Path.cwd(), *Path.cwd().parents)
    root = next((folder for folder in above if (folder / ".git").exists()), None)
    return f"git:{root}@HEAD" if root and (root / KNOWN[0].package).is_dir() else None


def _together(asked: str | None, ascend: SourceTree, omni: SourceTree | None) -> list[Together]:
    """What can be loaded on the vllm asked for; else on the target's own, then on the downstream's."""
    found: list[Together] = []
    try:
        for spec, why in ({asked: "asked for"} if asked else vllms_of(ascend, omni)).items():
            if not any(one.can for one in found):
                say(f"checking if all can be loaded on {spec}")
                found.append(look_together(ascend, open_source(spec), why, omni))
    except (UpgradeError, PassedOver) as error:
        say(f"note: stopped checking: {error}")
    return found


def _question(
    together: list[Together], ascend: SourceTree, omni: SourceTree
) -> tuple[dict[str, Any], Command | None]:
    """What a person has to decide before anything is merged, with what is recommended."""
    # What the downstream's main side runs on is given; the target is what can be chosen.
    best = min(together, key=lambda one: (len(one.downstream), len(one.target)))
    nearest = None
    if best.target and not best.downstream:
        nearest = neighbour(ascend, best.vllm, best.target)
    on = " or ".join(one.vllm.spec for one in together)
    who = f"{ascend.spec} and {omni.spec}" if any(one.downstream for one in together) else ascend.spec
    ask = f"{who} cannot be loaded on {on}: which one must change?"
    own = together[0]
    moved = [one for one in own.downstream if one.todo.startswith("take ")]
    if nearest is None and own.downstream and not own.target and len(moved) == len(own.downstream):
        what = f"fix the {len(moved)} imports of the downstream's main side for {own.vllm.spec}"
        why = f"all that {own.vllm.spec} moved exists elsewhere: the whole result names each new place"
        return {"ask": ask, "recommended": what, "why": why}, None
    if nearest is None:
        lack = "vllm-ascend" if best.target and not best.downstream else "main side of the downstream"
        why = f"no recommendation: no {lack} that was checked fits {best.vllm.spec}; a person must name one"
        return {"ask": ask, "recommended": None, "why": why}, None
    why = f"{nearest} is the nearest vllm-ascend that loads on {best.vllm.spec}"
    arguments = ("--omni", omni.requested, "--ascend", nearest, "--vllm", best.vllm.spec)
    return {"ask": ask, "recommended": nearest, "why": why}, upgrade("discover", *arguments)


def _answers(
    args: argparse.Namespace, omni: str, ascend: str, own: str | None, recommended: Command | None
) -> dict[str, str]:
    """What a person may say, and the command that goes on with it."""
    found = {"take what is recommended": recommended.short} if recommended else {}
    if own and args.vllm and not args.vllm.endswith(f"=={own}"):
        target = ("--omni", omni, "--ascend", ascend, "--vllm", f"pypi:vllm=={own}")
        found[f"take vllm {own}, the target's own"] = upgrade("discover", *target).short
    going_on = merging(omni, ascend).short
    return found | {"keep the pair all the same": f"{going_on}, then upgrade.py next --continue --note WHO"}


def _brief(data: dict[str, Any]) -> dict[str, Any]:
    """What an agent needs to go on."""
    omni, tracked, pair = data["omni"], data["omni"].get("tracked", {}), data["pair"]
    declared = dict.fromkeys(pin["value"] for pin in omni.get("declared", []))
    brief = {
        "question": data.get("question"),
        "pair": {name: pair[name] for name in ("vllm", "basis", "why")},
        "together": [_shortened(one) for one in data["together"]],
        "ascend": {name: data["ascend"][name] for name in ("spec", "why")},
        "omni": {name: omni.get(name) for name in ("spec", "why", "ran_as")},
        "declares": list(declared)[:3],
        "tracked": {name: tracked[name] for name in ("label", "confidence", "why") if name in tracked}
        | ({"which_is": _how_sure(tracked["confidence"])} if "confidence" in tracked else {}),
        "notes": data["notes"][:_NOTES],
    }
    return {name: value for name, value in brief.items() if value}


def _how_sure(confidence: float) -> str:
    if confidence >= SURE:
        return "sure: no one has to look at it"
    return "not sure: `merge` asks about the methods for which it matters"


def _shortened(together: dict[str, Any]) -> dict[str, Any]:
    short = dict(together)
    for key in (key for key, found in together.items() if isinstance(found, list)):
        lines = [textwrap.shorten(line, _WIDEST * 2, placeholder=" ...") for line in together[key]]
        short[key] = first_of(lines, 3)
    return short


def _judge(
    answers: dict[str, Answer], pair: Pair, ascend_spec: str | None, together: list[Together]
) -> tuple[Verdict, str]:
    silent = [name for name, answer in answers.items() if answer.source is None]
    if silent:
        return Verdict.BLOCKED, f"no source named the releases of {', '.join(silent)}; the rest is reported"
    can = next((one for one in together if one.can), None)
    if together and can is None:
        counts = (
            f"on {one.vllm.spec} ({one.why}) {len(one.target)} imports of the target and "
            f"{len(one.downstream)} of the downstream fail"
            for one in together
        )
        return Verdict.FAIL, f"{ascend_spec} cannot be loaded with this downstream: {'; '.join(counts)}"
    if pair.vllm is None and can is None:
        return Verdict.INCONCLUSIVE, f"the vllm of {ascend_spec} could not be established: {pair.why}"
    loaded = f"; all can be loaded on {can.vllm.spec}" if can else ""
    return Verdict.PASS, f"{ascend_spec} belongs to vllm {pair.vllm} ({pair.basis}: {pair.why}){loaded}"


def _clones(arguments: list[str]) -> dict[str, Path]:
    clones = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        if name not in CLONED or not path or not Path(path).is_dir():
            raise BadInput(
                f"--repo {argument} is not a valid NAME=PATH",
                expected=f"NAME=PATH, NAME one of {', '.join(CLONED)}, PATH a git clone",
                try_="--repo vllm-ascend=/path/to/vllm-ascend",
            )
        clones[name] = Path(path).resolve()
    return clones


def _tracked(omni: SourceTree | None, clone: Path | None) -> dict[str, Any]:
    """The release that the NPU side ran as, and the vllm-ascend that the runners were copied from."""
    if omni is None:
        return {"tracked": {"why": "not inferred: give --omni"}}
    say("finding the vllm-ascend that the runners were copied from")
    try:
        base = infer_base(omni, f"git:{clone}@HEAD" if clone else "pypi:vllm-ascend")
    except UpgradeError as error:
        return {"tracked": {"why": f"not inferred: {error.what}"}}
    return {"ran_as": released_as(omni), "tracked": {name: getattr(base, name) for name in _TRACKED}}


_TRACKED = ("label", "spec", "score", "runner_up", "confidence", "date")


def render(data: dict[str, Any]) -> str:
    """All sections of a discovery, for people."""
    sections = (_releases, _pair, _loaded, _omni, _installed, _notes)
    if data.get("question"):
        sections = (_pair, _omni, _loaded)
    return "\n\n".join(text for section in sections if (text := "\n".join(section(data))))


def _releases(data: dict[str, Any]) -> Iterator[str]:
    projects = data["releases"]
    yield "RELEASES (highest version first, date of publication; a/b/rc/dev are pre-releases)"
    rows = [
        ("stable", *(_release(p["newest_stable"]) for p in projects.values())),
        ("pre", *(_release(p["newest_prerelease"]) for p in projects.values())),
    ]
    for number, row in enumerate(zip_longest(*(p["releases"] for p in projects.values()))):
        rows.append(("" if number else "last", *(_release(r) if r else "" for r in row)))
    rows.append(("source", *(p["source"] or "NONE" for p in projects.values())))
    yield table(("", *projects), rows)
    reasons: dict[str, list[tuple[str, str]]] = {}
    for project, p in projects.items():
        for source, why in p["passed_over"].items():
            reasons.setdefault(why, []).append((source, project))
    for reason, silent in reasons.items():
        sources = list(dict.fromkeys(source for source, _ in silent))
        names = list(dict.fromkeys(project for _, project in silent))
        yield f"  passed over {', '.join(sources)} for {', '.join(names)}: {reason}"
    for project, p in projects.items():
        yield from (f"  {project}: {note}" for note in p["notes"])


def _release(release: dict[str, Any] | None) -> str:
    if release is None:
        return "-"
    yanked = " YANKED" if release["yanked"] else ""
    return f"{release['version']} {(release['date'] or 'no date')[:10]}{yanked}"


def _pair(data: dict[str, Any]) -> Iterator[str]:
    pair, ascend = data["pair"], data["ascend"]
    yield f"PAIR of {ascend['spec']}: vllm {pair['vllm']} ({pair['basis']})"
    yield f"  {pair['why']}"
    if pair["main"]:
        yield f"  verified with vllm main at {pair['main']}"
    if ascend["why"]:
        yield f"  not read: {ascend['why']}"
    yield from _pins(pair["pins"])


def _loaded(data: dict[str, Any]) -> Iterator[str]:
    """What fails when all is loaded together, and what is asked then."""
    for one in data["together"]:
        yield f"ON {one['vllm']} ({one['why']}): " + (
            "all can be loaded" if one["can"] else "CANNOT BE LOADED"
        )
        yield from (f"  {line}" for key in ("target fails", "downstream fails") for line in one[key][:3])
    if question := data.get("question"):
        yield f"QUESTION: {question['ask']}"
        yield f"  recommended: {question['why']}"


def _pins(pins: list[dict[str, Any]]) -> Iterator[str]:
    """One row per pinned value; files that repeat it are counted."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for pin in pins:
        groups.setdefault((pin["role"], pin["name"], pin["value"]), []).append(pin)
    rows = []
    for (role, name, _), same in groups.items():
        first, files = same[0], len({pin["file"] for pin in same})
        where = f"{first['file']}:{first['line']}" + (f" (+{files - 1} more)" if files > 1 else "")
        rows.append((role, name, _value(first), where))
    if rows:
        yield table(("role", "name", "value", "where"), rows)


def _value(pin: dict[str, Any]) -> str:
    if pin["kind"] == "sha":
        return pin["value"][:12]
    if pin["kind"] == "tag":
        return f"{pin['value']} (tag)"
    if pin["kind"] in ("branch", "short-sha"):
        return f"{pin['value']} ({pin['kind']}: {pin['sha'][:12] if pin['sha'] else 'unresolved'})"
    return pin["value"]


def _omni(data: dict[str, Any]) -> Iterator[str]:
    omni = data["omni"]
    yield f"OMNI {omni['spec']}"
    if omni["why"]:
        yield f"  not read: {omni['why']}"
        return
    if omni["declared_why"]:
        yield f"  declares: {omni['declared_why']}"
    yield from _pins(omni["declared"])
    tracked = omni["tracked"]
    if "label" not in tracked:
        yield f"  runners track: {tracked['why']}"
        return
    date = str(tracked["date"])[:10]
    yield f"  runners track: {tracked['label']} ({date}), runner-up {tracked['runner_up']}"
    yield f"  score {tracked['score']}, confidence {tracked['confidence']}"


def _installed(data: dict[str, Any]) -> Iterator[str]:
    found = data["installed"]
    yield f"INSTALLED in {found['python']}"
    rows = []
    for package in found["packages"]:
        origin = package["checkout"] or package["commit"] or package["folder"]
        rows.append((package["name"], package["version"], origin + " (editable)" * package["editable"]))
    yield table(("package", "version", "from"), rows) if rows else f"  none of {', '.join(PACKAGES)}"
    cann = found["cann"]
    yield "  CANN toolkit: " + (f"{cann['version']} ({cann['file']})" if cann else "not found")


def _notes(data: dict[str, Any]) -> Iterator[str]:
    if data["notes"]:
        yield "NOTE"
        yield from (f"  {note}" for note in data["notes"])
