"""The files and the order of work to bring a model to vllm-ascend, and scaffolds for its code.

The checkpoint is analysed again. --scaffold OUT writes a model, a processor and a registration that compile
and name every decision left open: as a plugin of its own, or at their places in vLLM's tree.
PASS: the plan stands; FAIL: the checkpoint is inconsistent and has to be put right first; INCONCLUSIVE as in
analyze.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.scaffold import (
    decisions,
    nearest,
    package_name,
    patterns,
    registry_entry,
    scaffold,
)
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.checkpoint.steps import SCHEMA, PlanFile, Tree, steps
from npu_upgrade.commands.adapt.model_arguments import (
    ROOTS,
    add_model_arguments,
    model_options,
    named_sources,
    options_again,
    state_folder,
    write_state,
)
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.paths import WORK_DIR
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.tree_form import delivery_problem
from npu_upgrade.sources.git import Repo

EXAMPLES = """/models/Qwen3-8B
/models/New-7B --vllm ../vllm --ascend ../vllm-ascend --delivery ../vllm-ascend
/models/New-7B --vllm pypi:vllm==0.30.0 --scaffold ./new-7b --form plugin"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "--delivery",
        type=Path,
        metavar="DIR",
        help="the checkout that gets the commit (default: the one around this folder, else /workspace)",
    )
    parser.add_argument("--scaffold", type=Path, metavar="OUT", help="write scaffolds into this folder")
    parser.add_argument(
        "--form",
        choices=("plugin", "tree"),
        default="plugin",
        help="scaffolds as a package that vLLM loads, or at their places in vLLM's tree (default: plugin)",
    )


def run(args: argparse.Namespace) -> Result:
    """PASS with the plan; FAIL for an inconsistent checkpoint; exit 2 when a scaffold would overwrite."""
    folder = model_folder(args.model, args.models)
    if args.delivery and (problem := delivery_problem(args.delivery, folder.name)):
        raise problem
    sources = named_sources(args)
    found = analyse(folder, sources)
    found.file.verdict = found.file.judge().value
    # names without a place are what an adapter is for; anything else has to be put right first
    verdict = found.file.judge(ignored=("name-unmapped",))
    trees = _trees(args, sources) | _plugin(args, found)
    is_new = found.file.strategy.name == "native adapter"
    near, places = nearest(found, sources.vllm if is_new else None)
    plan = PlanFile(
        schema=SCHEMA,
        model=str(folder),
        name=found.file.name,
        strategy=found.file.strategy,
        trees=trees,
        python=str(args.python.absolute()) if args.python else None,
        nearest=near,
        decisions=decisions(found) if is_new else [],
        open_weights=[one["pattern"] for one in patterns(found)] if is_new else [],
        registry_entry=registry_entry(found),
        steps=steps(found, {name: Path(tree.root) for name, tree in trees.items()}, args.model, args.form),
        findings=found.file.findings,
    )
    if args.scaffold and verdict is not Verdict.FAIL:
        written = scaffold(found, args.scaffold, args.form, near, places)
        plan.scaffold = [str(path) for path in written]
    place = write_state(args, plan.name, "plan.json", plan)
    write_state(args, plan.name, "analysis.json", found.file)
    data = msgspec.to_builtins(plan) | {"state": str(place)}
    return Result(verdict, _summary(plan, verdict), data, _text(plan), _next(args, verdict, is_new))


def _trees(args: argparse.Namespace, sources: Sources) -> dict[str, Tree]:
    """The trees the plan is about: those that were read, where they are folders, and the one delivered to."""
    read = {"vllm": sources.vllm, "ascend": sources.ascend.tree if sources.ascend else None}
    found = {}
    for name, default in ROOTS.items():
        source = read[name]
        is_folder = source is None or source.spec.startswith("dir:")
        found[name] = _tree(source.root if is_folder and source and source.root else default)
        if source and not is_folder:
            found[name].spec, found[name].version = source.spec, source.version
    return found | {"delivery": _tree(args.delivery or _around(Path.cwd()) or WORK_DIR)}


def _around(folder: Path) -> Path | None:
    """The checkout around a folder, where it can take the commit of a model."""
    places = (one for one in (folder, *folder.parents) if (one / ".git").exists())
    root = next(places, None)
    return root if root and delivery_problem(root, folder.name) is None else None


class _Earlier(msgspec.Struct):
    """What a plan takes over from the one before it."""

    trees: dict[str, Tree]


def _plugin(args: argparse.Namespace, found: Analysis) -> dict[str, Tree]:
    """The plugin that is written now, or that an earlier plan wrote and that is still there."""
    if args.form != "plugin":
        return {}
    if args.scaffold:
        return {"plugin": Tree(str(args.scaffold.absolute()), True, package=package_name(found))}
    try:
        earlier = (state_folder(args, found.file.name) / "plan.json").read_bytes()
        known = msgspec.json.decode(earlier, type=_Earlier).trees.get("plugin")
    except (OSError, msgspec.MsgspecError):  # there is none; this plan replaces one that is damaged
        known = None
    return {"plugin": known} if known and Path(known.root).is_dir() else {}


def _tree(root: Path) -> Tree:
    found = Tree(str(root), root.is_dir())
    if (root / ".git").exists():
        try:
            found.sha, found.dirty = Repo(root).head_and_dirty()
        except UpgradeError as error:
            found.problem = error.what
    return found


def _summary(plan: PlanFile, verdict: Verdict) -> str:
    if verdict is Verdict.FAIL:
        errors = (one for one in plan.findings if one.severity == "error" and one.kind != "name-unmapped")
        return f"the checkpoint is inconsistent: {next(errors).what}"
    files = sum(len(step.files) for step in plan.steps)
    summary = f"{plan.strategy.name}: {len(plan.steps)} steps, {files} files"
    if plan.scaffold:
        count = len(plan.open_weights)
        summary += f", {len(plan.scaffold)} scaffolds with {count} patterns of tensors to decide"
    return summary


def _text(plan: PlanFile) -> str:
    near = plan.nearest
    count = f"{near.patterns} of {near.of} patterns of tensors"
    files = [(one.root, one.path, one.change) for step in plan.steps for one in step.files]
    parts = [
        "\n".join(plan.strategy.reasons),
        table(("step", "what"), [(step.name, step.what) for step in plan.steps]),
        table(("tree", "file", "change"), files) if files else "",
        "\n".join(f"run: {step.command}" for step in plan.steps if step.command),
        f"nearest: {near.architecture} has {count} ({near.module})" if near.patterns else "",
        "\n".join(f"decide: {one}" for one in plan.decisions),
        "\n".join(f"written: {path}" for path in plan.scaffold or []),
    ]
    return "\n\n".join(part for part in parts if part)


def _next(args: argparse.Namespace, verdict: Verdict, is_new: bool) -> Command:
    if verdict is Verdict.FAIL:
        return adapt("analyze", args.model, *model_options(args))
    if is_new and not args.scaffold:
        form = [] if args.form == "plugin" else ["--form", args.form]
        return adapt("plan", args.model, *model_options(args), *form, "--scaffold", "scaffold")
    return adapt("serve", args.model, "--load-format", "dummy", *options_again(args, "python", "workspace"))
