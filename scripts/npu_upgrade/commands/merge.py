"""Merge a new vllm-ascend into vllm-omni's NPU runners and keep the omni logic.

Every method copied from vllm-ascend is merged three ways: base (inferred), ours (the runner as it
is) and theirs (the new vllm-ascend). The result goes to a folder (--out) or, as one uncommitted
change, to a new branch of a git checkout (--apply), with plan.json for agents and plan.md for people.
--again repeats the merge, for example with another --base; it keeps the answers and moves the earlier
result aside.

With --downstream and --upstream, the copies in all files of any project are merged onto the project that
they come from; a copy of code unchanged since --base stays, however old it is. A merge into a checkout also
proposes edits where the old version is named: pins in any file, and conditions that the new version settles.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from npu_upgrade.code.formatting import formatted
from npu_upgrade.code.module import parse_module
from npu_upgrade.commands import merge_inputs
from npu_upgrade.commands.arguments import option
from npu_upgrade.commands.asking import ending
from npu_upgrade.commands.audit import begin_ahead
from npu_upgrade.commands.merge_inputs import Inputs
from npu_upgrade.delivery.branch import apply_change, check_applicable, move_aside
from npu_upgrade.ground.collector import no_collector
from npu_upgrade.ground.command import upgrade
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import json_text, read_object, sha256, write_together
from npu_upgrade.ground.paths import cache_root, from_here, workspace_root
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.check import learn_answers
from npu_upgrade.job.job import SCOPES, Job, find_workspace, open_job, start_job
from npu_upgrade.job.plan_file import plan_path
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.lineage.origins import Origins
from npu_upgrade.lineage.project import package_of
from npu_upgrade.merge.answers import Answers
from npu_upgrade.merge.copies import merge_copies
from npu_upgrade.merge.patched import patch_items
from npu_upgrade.merge.plan import build_plan, counts, label, method_rows, plan_markdown
from npu_upgrade.merge.runners import MergedRunners, merge_runners
from npu_upgrade.merge.surroundings import copied_units, surrounding_items
from npu_upgrade.sources.checkout import Checkout, open_checkout
from npu_upgrade.sources.spec import parse_spec
from npu_upgrade.sources.tree import SourceTree

EXAMPLES = """--omni pypi:vllm-omni==0.22.0 --ascend pypi:vllm-ascend==0.23.0 --out out
--omni git:.@HEAD --ascend git:../vllm-ascend@v0.24.0rc1 --apply
--omni dir:. --ascend pypi:vllm-ascend==0.24.0rc1 --base pypi:vllm-ascend==0.19.1rc1 --out out
--again --base pypi:vllm-ascend==0.22.1rc1
--downstream git:../vllm-ascend@main --upstream pypi:vllm==0.28.0 --apply
--downstream pypi:vllm-ascend==0.26.0rc1 --upstream pypi:vllm==0.28.0 --out out"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "--omni SPEC", "the vllm-omni to upgrade")
    option(parser, "--ascend SPEC", "the vllm-ascend to upgrade to")
    option(parser, "--downstream SPEC", "any project that copies from another one")
    option(parser, "--upstream SPEC", "with --downstream: what to upgrade to")
    option(
        parser,
        "--base SPEC",
        "the vllm-ascend the runners were copied from (default auto: inferred for each method); "
        "with --downstream: the upstream that it is on now (default auto: by its pins or its number)",
        default="auto",
    )
    place = parser.add_mutually_exclusive_group(required=True)
    option(
        place,
        "--again",
        "merge the current job again in place; keep answers, move the earlier result aside",
    )
    option(place, "--out DIR", "write the merged files and the plan below DIR", type=Path)
    option(
        place,
        "--apply REPO",
        "write them to a new branch of a checkout (default: the one that --omni names)",
        nargs="?",
        const=Path(),
        type=Path,
    )
    option(
        parser,
        "--gains",
        "which gains of the GPU side to take: sync (none), safe (default: what fits, for the gates to "
        "prove), all (asks about each); the commit names those left out",
        choices=SCOPES,
    )
    option(parser, "--branch NAME", "with --apply: the new branch")
    option(parser, "--mark", "put markers around omni code that has none, in methods without conflicts")
    option(parser, "--replace", "with --out: overwrite files that were edited there")
    option(parser, "--workspace DIR", "the folder for .npu-upgrade", type=Path)


def run(args: argparse.Namespace) -> Result:
    """PASS when nothing is left to resolve, FAIL when conflicts or blocking items are."""
    with no_collector(last=True):
        before = _again(args) if args.again else None
        return (_merge_any if args.downstream or args.upstream else _run)(args, before)


_Before = tuple[Job, dict[str, Any]] | None
"""The job that is merged again, and its plan."""


def _merge_any(args: argparse.Namespace, before: _Before) -> Result:
    """The copies of a project in all its files."""
    if not (args.downstream and args.upstream) or args.omni or args.ascend:
        raise BadInput(
            "--downstream and --upstream belong together, without --omni and --ascend",
            expected="what to merge, and what to merge it onto",
            try_="--downstream SPEC --upstream SPEC --out DIR",
        )
    repo = _repo(args, args.downstream)
    tree, target, now = merge_inputs.read_any(args.downstream, args.upstream, args.base)
    branch = args.branch or f"npu-upgrade/{label(merge_inputs.identity(target)).replace(' ', '-')}"
    checkout = check_applicable(repo, branch) if repo and not before else None
    workspace = args.workspace or repo or find_workspace(Path.cwd())
    out = (args.out or workspace_root(workspace) / "out").absolute()
    _refuse_edited(out, args.replace or before is not None)
    on = now or target
    given = _source(now) if now else None
    job = start_job(workspace, omni=_source(tree), ascend=_source(target), base=given, out=out, whole=True)
    if repo:
        out = job.folder / "out"
        job.place(out=out, repo=repo, branch=branch)
    job.place(scope=args.gains)
    job.begin("merge")
    package = package_of(target)
    origins = Origins(Downstream(tree, {package: on}), {package: args.upstream})
    versions = {
        role: merge_inputs.identity(one) for role, one in {"omni": tree, "ascend": target, "base": on}.items()
    }
    ours, base, theirs = (label(versions[role]) for role in ("omni", "base", "ascend"))
    merged = merge_copies(
        origins,
        target,
        labels=(f"ours: {ours}", f"base: {base}", f"theirs: {theirs}"),
        now=now,
        answers=Answers(workspace_root(workspace) / "answers"),
    )
    _format(repo or tree.root, merged)
    extra = patch_items(origins, target)
    extra += merge_inputs.proposals(tree, on, target, merged.files) if repo else []
    earlier = before[1] if before else read_object(out / "plan.json") or None
    plan = build_plan(merged, versions, extra, earlier)
    return _written(args, job, tree, plan, merged, out, repo, checkout, branch, before)


def _run(args: argparse.Namespace, before: _Before) -> Result:
    for name in () if before else ("omni", "ascend"):
        if getattr(args, name) is None:
            raise BadInput(f"no --{name}", expected="what to merge", try_=f"--{name} SPEC, or --again")
    repo = _repo(args, args.omni)
    try:
        inputs = merge_inputs.read(args.omni, args.ascend, args.base)
    except merge_inputs.ArchitectureChanged as error:
        _note_architecture(args, repo, error)
        raise
    branch = args.branch or f"npu-upgrade/{label(inputs.target.identity()).replace(' ', '-')}"
    checkout = check_applicable(repo, branch) if repo and not before else None
    workspace = args.workspace or (repo if repo else find_workspace(Path.cwd()))
    # Before anything is left in the workspace: can the result be written at all?
    out = (args.out or workspace_root(workspace) / "out").absolute()
    _refuse_edited(out, args.replace or before is not None)
    omni, ascend = _source(inputs.omni), _source(inputs.target)
    # an inferred base is no input of the job
    base_named = {"spec": inputs.base.spec, "identity": inputs.base_identity} if args.base != "auto" else None
    job = start_job(workspace, omni=omni, ascend=ascend, base=base_named, out=out)
    if repo:
        out = job.folder / "out"
        job.place(out=out, repo=repo, branch=branch)
    job.place(scope=args.gains)
    job.begin("merge")
    answers, base = Answers(workspace_root(workspace) / "answers"), inputs.base_tree()
    merged = merge_runners(
        inputs.omni,
        inputs.target,
        inputs.upstream,
        inputs.bases,
        labels=inputs.labels,
        base=base,
        vllm=inputs.vllm,
        answers=answers,
        mark=args.mark,
    )
    _format(repo or inputs.omni.root, merged)
    earlier = before[1] if before else read_object(out / "plan.json") or None
    plan = _plan(inputs, base, merged, earlier, pins=bool(repo))
    result = _written(args, job, inputs.omni, plan, merged, out, repo, checkout, branch, before)
    read = {"target": inputs.target, "vllm": inputs.vllm, "base": base}
    result.data["sources"] = {name: _near(job, tree) for name, tree in read.items() if tree and tree.root}
    if result.data["sources"]:
        result.brief = (result.brief or {}) | {"sources": result.data["sources"]}
    if repo:
        begin_ahead(job)
    return result


def _near(job: Job, tree: SourceTree) -> str:
    """The folder of a source; of one in the cache, whose path is long, a link to it in the workspace."""
    assert tree.root
    if not tree.root.is_relative_to(cache_root()):
        return str(tree.root)
    link = workspace_root(job.workspace) / "sources" / f"{tree.project}-{tree.version}"
    try:
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(tree.root)
    except OSError:  # no links here
        return str(tree.root)
    # with a slash at its end, which `find` follows a link by
    return f"{from_here(link)}/"


def _written(
    args: argparse.Namespace,
    job: Job,
    tree: SourceTree,
    plan: dict[str, Any],
    merged: MergedRunners,
    out: Path,
    repo: Path | None,
    checkout: Checkout | None,
    branch: str,
    before: _Before,
) -> Result:
    """Write the merged files and the plan of a job, and say what comes next."""
    files = {out / "plan.json": json_text(plan), out / "plan.md": plan_markdown(plan)}
    preimages = {job.folder / "merged" / path: text for path, text in merged.files.items()}
    preimages |= {job.folder / "before" / path: text for path, text in merged.ours.items()}
    aside = _move_aside(before[0], tree) if before else None
    if repo and before:
        checkout = check_applicable(repo, branch)
    if checkout:
        say(f"writing to the new branch {branch} of {repo}")
        changed = {path: text for path, text in merged.files.items() if text != merged.ours[path]}
        apply_change(checkout, branch, tree.sha or "HEAD", changed)
    else:
        files |= {out / path: text for path, text in merged.files.items()}
    sides = {job.folder / "methods.json": json_text({"methods": _sides(merged)})}
    write_together(files | preimages | sides)
    (job.folder / "port.json").unlink(missing_ok=True)  # it tells of the files of an earlier merge
    result = _result(plan, merged, out, job, repo, branch)
    if aside:
        result.data["moved_aside"] = aside
        result.text += f"\nthe earlier result is kept as {aside}"
    outputs = {"files": {path: sha256(text) for path, text in merged.files.items()}}
    job.finish("merge", Verdict.PASS, result.summary, outputs)
    shown = ("job", "branch", "moved_aside")
    result.brief = {name: result.data[name] for name in shown if result.data.get(name)}
    if job.of_omni:
        result.brief["methods"] = [", ".join(row[:3]) for row in method_rows(plan)]
    return ending(result, job)


def _again(args: argparse.Namespace) -> tuple[Job, dict[str, Any]]:
    """The current job and its plan, whose sources and place become those of ``args``."""
    job = open_job(args.workspace or find_workspace(Path.cwd()))
    plan = read_object(plan_path(job))
    if not plan or args.omni or args.ascend or args.downstream or args.upstream or args.branch:
        raise BadInput(
            "--again merges the current job with its own sources, in its own place",
            expected=f"a merged job ({job.id}), and no source option other than --base",
            try_="`upgrade.py merge` with --omni, --ascend and --out or --apply",
        )
    learn_answers(job, job.root, plan)
    downstream, upstream = job.inputs.omni.spec, job.inputs.ascend.spec
    sha = job.inputs.omni.identity.get("sha")
    if job.repo and sha and parse_spec(downstream).kind == "dir":
        downstream = f"git:{job.repo}@{sha}"  # the folder holds the merge by now
    if job.of_omni:
        args.omni, args.ascend = downstream, upstream
    else:
        args.downstream, args.upstream = downstream, upstream
        if args.base == "auto" and job.inputs.base:
            args.base = job.inputs.base.spec
    args.workspace = job.workspace
    args.branch, args.out = job.branch, None if job.repo else Path(job.out or job.folder)
    args.apply = Path(job.repo) if job.repo else None
    return job, plan


def _move_aside(job: Job, tree: SourceTree) -> str | None:
    """Where what the job made is kept: a branch, or a folder."""
    if job.repo and job.branch:
        return move_aside(open_checkout(Path(job.repo)), job.branch, tree.sha or "HEAD") or None
    out = Path(job.out or job.folder)
    aside = next(path for number in itertools.count(1) if not (path := Path(f"{out}-{number}")).exists())
    out.rename(aside)
    return str(aside)


def _note_architecture(
    args: argparse.Namespace, repo: Path | None, error: merge_inputs.ArchitectureChanged
) -> None:
    """Leave the reason in the job, so that `next` says that a person is needed."""
    workspace = args.workspace or repo or find_workspace(Path.cwd())
    out = None if repo else args.out.absolute()
    job = start_job(workspace, omni=_source(error.omni), ascend=_source(error.target), out=out, repo=repo)
    job.begin("merge")
    job.finish("merge", Verdict.FAIL, error.what, {"architecture": error.what})


def _repo(args: argparse.Namespace, tree: str) -> Path | None:
    """The checkout to apply to, by default the one that ``tree`` names; None without --apply."""
    if args.apply is None:
        return None
    spec = parse_spec(tree)
    if args.apply == Path() and spec.kind == "pypi":
        raise BadInput(
            f"--apply needs a checkout, and {tree} is a release",
            expected="git:PATH@REF or dir:PATH in its place, or --apply REPO",
            try_="--out DIR to get the merged files in a folder",
        )
    return Path(spec.path if args.apply == Path() else args.apply).expanduser().resolve()


def _refuse_edited(out: Path, replace: bool) -> None:
    """Raise :class:`BadInput` when files of an earlier merge in ``out`` were edited since."""
    for entry in read_object(out / "plan.json").get("files", []):
        path = out / entry["path"]
        if not replace and path.exists() and sha256(path.read_bytes()) != entry["sha256_merged"]:
            raise BadInput(
                f"{path} was edited since it was merged",
                expected="a folder without edits of yours, so that none are lost",
                try_="another --out, or --replace (run `upgrade.py plan` first: it learns answers)",
            )


def _source(tree: Any) -> dict[str, Any]:
    return {"spec": tree.spec, "identity": merge_inputs.identity(tree)}


def _plan(
    inputs: Inputs,
    base: SourceTree | None,
    merged: MergedRunners,
    earlier: dict[str, Any] | None,
    *,
    pins: bool,
) -> dict[str, Any]:
    say("looking at what else the upgrade touches")
    copied = copied_units(inputs.bases.lineage)
    extra = surrounding_items(inputs.omni, merged.files, base, inputs.target, copied, inputs.vllm)
    if inputs.together and not any(one.can for one in inputs.together):
        extra.insert(0, _pair_item(inputs))
    if pins:
        extra += merge_inputs.proposals(inputs.omni, base, inputs.target, merged.files)
    versions = {
        "omni": merge_inputs.identity(inputs.omni),
        "ascend": merge_inputs.identity(inputs.target),
        "base": inputs.base_identity,
    }
    return build_plan(merged, versions, extra, earlier)


def _pair_item(inputs: Inputs) -> Item:
    """The question that comes before all others."""
    lines = []
    for one in inputs.together:
        failing = f"{len(one.target)} imports of the target and {len(one.downstream)} of the downstream fail"
        lines.append(f"on {one.vllm.spec} ({one.why}) {failing}:")
        lines += [f"  {found.here.path}: {found.what}" for found in (*one.target, *one.downstream)]
    command = upgrade("discover", "--omni", inputs.omni.requested, "--ascend", inputs.target.requested)
    lines.append(f"`{command.short}` says what could change")
    title = f"{inputs.target.spec} cannot be loaded with this downstream on any vllm they name"
    return Item(item_id("pair", inputs.target.spec), "pair", title, "\n".join(lines), "", True)


def _sides(merged: MergedRunners) -> list[dict[str, str]]:
    """The texts that each method was merged from, for those who look at the result later."""
    found = []
    for outcome in merged.methods:
        entry = outcome.entry
        if entry.path not in merged.ours:  # nothing of it changed
            continue
        ours = parse_module(merged.ours[entry.path]).units[entry.name].source
        sides = {"base": outcome.base_text, "ours": ours, "theirs": outcome.upstream_text or ""}
        found.append({"path": entry.path, "name": entry.name, "runner": entry.runner} | sides)
    return found


def _result(
    plan: dict[str, Any], merged: MergedRunners, out: Path, job: Job, repo: Path | None, branch: str
) -> Result:
    what = "copied methods merged" if job.of_omni else f"copies merged in {len(merged.files)} files"
    result = _told(plan, what, merged, out, repo or out)
    result.data |= {
        "job": job.id,
        "repo": str(repo) if repo else None,
        "branch": branch if repo else None,
        "methods": [{key: m[key] for key in ("runner", "name", "outcome", "base")} for m in plan["methods"]],
        "resolve": [{"id": i["id"], "title": i["title"]} for i in plan["items"] if i["blocking"]],
    }
    text = [table(_HEAD, method_rows(plan)), "", f"plan: {out / 'plan.md'}"]
    text += [f"resolve: {item['title']}" for item in plan["items"] if item["blocking"]]
    result.text = "\n".join(text)
    return result


_HEAD = ("method", "outcome", "base", "statements", "flags", "conflicts")


def _format(folder: Path | None, merged: MergedRunners) -> None:
    """Format what was merged as the project at ``folder`` does."""
    if folder:
        for path, text in merged.files.items():
            merged.files[path] = formatted(folder, path, merged.ours[path], text)


def _told(plan: dict[str, Any], what: str, merged: MergedRunners, out: Path, root: Path) -> Result:
    """The verdict, the counts and the places of any merge; its files are below ``root``."""
    found = counts(plan)
    ready = not plan["conflicts_open"] and not found["blocking items"]
    summary = (
        f"{len(plan['methods'])} {what}, {plan['conflicts_open']} conflicts, "
        f"{found['blocking items']} items to resolve, {found['items to look at']} to look at"
    )
    data = {
        "out": str(out),
        "plan": str(out / "plan.json"),
        "versions": plan["versions"],
        "counts": found,
        "conflicts_open": plan["conflicts_open"],
        "files": [str(root / path) for path in merged.files],
    }
    return Result(Verdict.PASS if ready else Verdict.FAIL, summary, data)
