"""List the omni-specific blocks of the runners, derived from their diff against upstream.

Each method is compared with the upstream text it was copied from (NPU: vllm-ascend at the inferred
base; GPU: vllm with the same version number); markers are ignored. The catalogue goes to the current
job's folder, or to --out DIR, as omni-specific-blocks.md and .json, with the runners' inheritance and
key methods as runner-structure.md.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.job_arguments import add_job_arguments, named_job
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.files import json_text, write_together
from npu_upgrade.ground.paths import SKILL
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.lineage.catalogue.block import Catalogue
from npu_upgrade.lineage.catalogue.build import Sources, build
from npu_upgrade.lineage.catalogue.compare import beside, beside_text, changed
from npu_upgrade.lineage.catalogue.reference import (
    NAME,
    STRUCTURE,
    Row,
    render,
    render_structure,
    rows,
    specs_in,
    with_purposes,
)
from npu_upgrade.lineage.catalogue.skill import reference_to_refresh
from npu_upgrade.lineage.downstream import omni_side
from npu_upgrade.lineage.inference import infer
from npu_upgrade.lineage.records import Bases
from npu_upgrade.sources.releases import vllm_beside
from npu_upgrade.sources.tree import SourceTree, open_source

EXAMPLES = """--omni pypi:vllm-omni==0.30.0 --out blocks
--omni pypi:vllm-omni==0.30.0 --diff gpu npu
--diff pypi:vllm-omni==0.26.0 pypi:vllm-omni==0.30.0
--check
--check --omni git:../vllm-omni@main
--update-references --omni pypi:vllm-omni==0.30.0"""
_SIDES = ("gpu", "npu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--omni SPEC", "the vllm-omni to read (default: the job's, or the reference's)")
    option(
        parser,
        "--ascend SPEC",
        "where vllm-ascend's history is: git:PATH[@REF] or pypi:vllm-ascend (default)",
        default="pypi:vllm-ascend",
    )
    option(parser, "--vllm SPEC", "the vllm of the GPU side (default: the release of the same number)")
    option(parser, "--out DIR", "where the catalogue goes (default: the job)", type=Path)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--diff",
        nargs=2,
        metavar=("A", "B"),
        help="compare markers and derived blocks of two vllm-omni specs, or of gpu and npu",
    )
    option(what, "--check", "fail when the skill's own reference is stale for the tree")
    option(what, "--update-references", "write this skill's reference; only in its source checkout")
    add_job_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """PASS with the catalogue or the comparison; FAIL when --check finds the reference stale."""
    if args.diff:
        return _diff(args)
    if args.check:
        return _check(args)
    if args.update_references:
        return _update(args)
    folder = args.out.absolute() if args.out else named_job(args).folder
    catalogue, _ = _catalogue(args, _omni(args), folder / NAME)
    paths = folder / NAME, (folder / NAME).with_suffix(".json"), folder / STRUCTURE
    texts = render(catalogue), json_text(catalogue.as_json()), render_structure(catalogue)
    write_together(dict(zip(paths, texts, strict=True)))
    return _result(catalogue, dict(zip(("catalogue", "json", "structure"), map(str, paths), strict=True)))


def _diff(args: argparse.Namespace) -> Result:
    """Both sides beside each other; nothing is written."""
    if set(args.diff) <= set(_SIDES):
        whole = _catalogue(args, _omni(args))
        found = beside(whole, whole, (args.diff[0], args.diff[1]))
    else:
        if set(args.diff) & set(_SIDES):
            raise BadInput(
                f"--diff {shlex.join(args.diff)} names a side and a source",
                expected="two sides (gpu npu, with --omni SPEC), or two vllm-omni specs",
                try_="upgrade.py blocks --omni SPEC --diff gpu npu",
            )
        found = beside(_catalogue(args, args.diff[0]), _catalogue(args, args.diff[1]))
    sides = [one.a for one in found], [one.b for one in found]
    missed = [sum(len(half.missed) for half in side if half) for side in sides]
    summary = (
        f"{len(found)} methods with omni code; a search for markers misses {missed[0]} blocks of "
        f"{args.diff[0]} and {missed[1]} of {args.diff[1]}"
    )
    return Result(Verdict.PASS, summary, {"methods": [one.as_json() for one in found]}, beside_text(found))


def _check(args: argparse.Namespace) -> Result:
    """Compare the skill's reference with what the tree gives now."""
    path = SKILL / "references" / NAME
    text = _existing(path)
    known = specs_in(text)
    spec = args.omni or known.get("vllm-omni")
    if spec is None:
        raise BadInput(
            f"{path} does not say what it was read from",
            expected="a reference that upgrade.py blocks has written",
            try_="--omni SPEC",
        )
    if args.vllm is None and spec == known.get("vllm-omni"):
        args.vllm = known.get("vllm")
    catalogue, _ = _catalogue(args, spec, path)
    differences = changed(rows(text), rows(render(catalogue)))
    if not differences and spec == known.get("vllm-omni"):
        differences = _edited(path, catalogue)
    data = {"reference": str(path), "versions": catalogue.versions, "differences": differences}
    if not differences:
        return Result(Verdict.PASS, f"{path.name} holds for {spec}", data)
    summary = f"{path.name} is stale for {spec}: {len(differences)} differences"
    try:
        reference_to_refresh()
        what = ["--update-references"]
    except BadInput:  # an installed skill is never written to
        what = ["--out", "blocks"]
    command = upgrade("blocks", "--omni", spec, *what)
    return Result(Verdict.FAIL, summary, data, "\n".join(differences), command)


def _edited(path: Path, catalogue: Catalogue) -> list[str]:
    """The documents of the reference that are not what the catalogue gives, though their blocks are."""
    fresh = {path: render(catalogue), path.with_name(STRUCTURE): render_structure(catalogue)}
    why = "it was edited outside the purpose column, or made by another version of this tool"
    return [f"{file.name}: {why}" for file, text in fresh.items() if _existing(file) != text]


def _update(args: argparse.Namespace) -> Result:
    """Write the reference of a source checkout of this skill."""
    path = reference_to_refresh()
    catalogue, _ = _catalogue(args, _omni(args, path), path)
    beside = path.with_name(STRUCTURE)
    write_together({path: render(catalogue), beside: render_structure(catalogue)})
    return _result(catalogue, {"reference": str(path), "structure": str(beside)})


def _catalogue(args: argparse.Namespace, omni: str, own: Path | None = None) -> tuple[Catalogue, SourceTree]:
    """The catalogue of one vllm-omni with the purposes known: in ``own`` first, then in the reference."""
    sources, versions = _read(omni, args.ascend, args.vllm)
    known: list[Row] = []
    for path in filter(None, (own, SKILL / "references" / NAME)):
        known += rows(_existing(path))
    return with_purposes(build(sources, versions), known), sources.side.tree


def _read(omni_spec: str, ascend_spec: str, vllm_spec: str | None) -> tuple[Sources, dict[str, str]]:
    """The sources of a catalogue, and their specs by role for the record.

    ``ascend_spec`` is where vllm-ascend's history is. Without ``vllm_spec`` the vllm release that
    belongs to the number of the vllm-omni is taken. Raises as ``open_source`` and ``infer``.
    """
    say(f"reading {omni_spec}")
    omni = open_source(omni_spec)
    side = omni_side(omni)
    say("finding what every NPU method was copied from")
    lineage = infer(side, ascend_spec)
    bases = Bases(lineage) if lineage.base else None
    ascend = _base_tree(lineage.base.spec) if lineage.base else None
    spec = vllm_spec or vllm_beside(omni)
    say(f"reading {spec}" if spec else "no vllm is known for this tree: skipping the GPU side (--vllm SPEC)")
    vllm = open_source(spec) if spec else None
    named = {"vllm-omni": omni, "vllm-ascend": ascend, "vllm": vllm}
    return Sources(side, ascend, vllm, bases), {role: tree.spec for role, tree in named.items() if tree}


def _base_tree(spec: str) -> SourceTree | None:
    try:
        return open_source(spec)
    except UpgradeError as error:
        say(f"without the base tree, only the runner files are compared: {error.what}")
        return None


def _omni(args: argparse.Namespace, reference: Path | None = None) -> str:
    """The vllm-omni that is asked for: named, the job's, or the one that a reference was read from."""
    if args.omni:
        return args.omni
    if reference and (spec := specs_in(_existing(reference)).get("vllm-omni")):
        return spec
    return named_job(args).inputs.omni.spec


def _existing(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def _result(catalogue: Catalogue, places: dict[str, str]) -> Result:
    sides = list(dict.fromkeys(file.side for file in catalogue.files))
    counts = {side: catalogue.counts(side) for side in sides}
    blocks, bare = (sum(counts[side][name] for side in sides) for name in ("blocks", "without a purpose"))
    names = list(next(iter(counts.values()), {}))
    text = table(("", *sides), [(name, *(str(counts[side][name]) for side in sides)) for name in names])
    summary = (
        f"{blocks} omni-specific blocks, {bare} of them without a purpose; {next(iter(places.values()))}"
    )
    data: dict[str, Any] = places | {"versions": catalogue.versions, "counts": counts}
    return Result(Verdict.PASS, summary, data, text)
