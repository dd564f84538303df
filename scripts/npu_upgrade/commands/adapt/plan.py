"""The files and the order of work to bring a model to vllm-ascend, and scaffolds for its code.

The checkpoint is analysed again. --scaffold OUT writes a model, a processor and a registration that compile
and name every decision left open: as a plugin of its own, or at their places in vLLM's tree.
PASS: the plan stands; FAIL: the checkpoint is inconsistent, so that nothing built on it would tell;
INCONCLUSIVE as in analyze.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.nearest import nearest
from npu_upgrade.checkpoint.scaffold import decisions, package_name, patterns, registry_entry, scaffold
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.checkpoint.work import Step, steps
from npu_upgrade.commands.adapt.analyze import verdict_of
from npu_upgrade.commands.adapt.model_arguments import (
    ROOTS,
    add_model_arguments,
    named_sources,
    next_options,
    state_folder,
    write_state,
)
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.files import read_object
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.sources.git import Repo

EXAMPLES = """  adapt.py plan /models/Qwen3-8B
  adapt.py plan /models/New-7B --vllm ../vllm --ascend ../vllm-ascend --delivery ../vllm-ascend
  adapt.py plan /models/New-7B --vllm pypi:vllm==0.30.0 --scaffold ./new-7b --form plugin"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "--delivery",
        type=Path,
        default=Path("/workspace"),
        metavar="DIR",
        help="the checkout that gets the commit (default: /workspace)",
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
    sources = named_sources(args)
    found = analyse(folder, sources)
    value = found.as_json()
    # names without a place are what an adapter is for; anything else has to be put right first
    verdict = verdict_of(value, ignored=("name-unmapped",))
    trees = _trees(args, sources) | _plugin(args, found)
    roots = {name: Path(tree["root"]) for name, tree in trees.items()}
    adapter = value["strategy"]["name"] == "native adapter"
    near = nearest(found, sources.vllm) if adapter else {}
    work = steps(found, roots, args.model, args.form)
    plan: dict[str, Any] = {
        "schema": "npu-upgrade/adapt-plan/1",
        "model": str(folder),
        "name": found.name,
        "strategy": value["strategy"],
        "trees": trees,
        "python": str(args.python.absolute()) if args.python else None,
        "nearest": {key: near[key] for key in near if key != "places"},
        "decisions": decisions(found) if adapter else [],
        "open_weights": [one["pattern"] for one in patterns(found)] if adapter else [],
        "registry_entry": registry_entry(found).strip(),
        "steps": [step.as_json() for step in work],
        "findings": value["findings"],
    }
    if args.scaffold and verdict is not Verdict.FAIL:
        plan["scaffold"] = [str(path) for path in scaffold(found, args.scaffold, args.form, near)]
    place = write_state(args, found.name, "plan.json", plan)
    write_state(args, found.name, "analysis.json", value | {"verdict": verdict_of(value).value})
    text = _text(plan, work)
    data = plan | {"state": str(place)}
    return Result(
        verdict, _summary(plan, verdict), data, text, _next(args, verdict, plan["strategy"]["name"])
    )


def _trees(args: argparse.Namespace, sources: Sources) -> dict[str, dict[str, Any]]:
    """The trees the plan is about: those that were read, where they are folders, and the one delivered to."""
    read = {"vllm": sources.vllm, "ascend": sources.ascend.tree if sources.ascend else None}
    found = {}
    for name, default in ROOTS.items():
        source = read[name]
        if source is None or source.spec.startswith("dir:"):
            found[name] = _tree(source.root if source and source.root else default)
        else:
            found[name] = _tree(default) | {"spec": source.spec, "version": source.version}
    return found | {"delivery": _tree(args.delivery)}


def _plugin(args: argparse.Namespace, found: Analysis) -> dict[str, dict[str, Any]]:
    """The plugin that is written now, or that an earlier plan wrote and that is still there."""
    if args.scaffold and args.form == "plugin":
        root = args.scaffold.absolute()
        return {"plugin": {"root": str(root), "there": True, "package": package_name(found)}}
    earlier = read_object(state_folder(args, found.name) / "plan.json").get("trees")
    known = earlier.get("plugin") if isinstance(earlier, dict) else None
    there = args.form == "plugin" and isinstance(known, dict) and Path(str(known.get("root"))).is_dir()
    return {"plugin": known} if there and known else {}


def _tree(root: Path) -> dict[str, Any]:
    """Where a tree is and which commit it has: evidence is bound to it later."""
    value: dict[str, Any] = {"root": str(root), "there": root.is_dir()}
    if (root / ".git").exists():
        try:
            value["sha"], value["dirty"] = Repo(root).head_and_dirty()
        except UpgradeError as error:
            value["problem"] = error.what
    return value


def _summary(plan: dict[str, Any], verdict: Verdict) -> str:
    if verdict is Verdict.FAIL:
        errors = (one for one in plan["findings"] if one["severity"] == "error")
        first = next(one for one in errors if one["kind"] != "name-unmapped")
        return f"the checkpoint is inconsistent: {first['what']}"
    files = sum(len(step["files"]) for step in plan["steps"])
    said = f"{plan['strategy']['name']}: {len(plan['steps'])} steps, {files} files"
    if plan.get("scaffold"):
        count = len(plan["open_weights"])
        said += f", {len(plan['scaffold'])} scaffolds with {count} patterns of tensors to decide"
    return said


def _text(plan: dict[str, Any], work: list[Step]) -> str:
    rows = [(step.name, step.what) for step in work]
    files = [(one["root"], one["path"], one["change"]) for step in work for one in step.files]
    parts = [
        "\n".join(plan["strategy"]["reasons"]),
        table(("step", "what"), rows),
        table(("tree", "file", "change"), files) if files else "",
        "\n".join(f"run: {step.command}" for step in work if step.command),
        _near_text(plan["nearest"]),
        "\n".join(f"decide: {one}" for one in plan["decisions"]),
        "\n".join(f"written: {path}" for path in plan.get("scaffold", [])),
    ]
    return "\n\n".join(part for part in parts if part)


def _near_text(near: dict[str, Any]) -> str:
    if not near:
        return ""
    count = f"{near['patterns']} of {near['of']} patterns of tensors"
    return f"nearest: {near['architecture']} has {count} ({near['module']})"


def _next(args: argparse.Namespace, verdict: Verdict, strategy: str) -> str:
    options = next_options(args)
    if verdict is Verdict.FAIL:
        return shlex.join(["adapt.py", "analyze", args.model, *options])
    if strategy == "native adapter" and not args.scaffold:
        form = [] if args.form == "plugin" else ["--form", args.form]
        return shlex.join(["adapt.py", "plan", args.model, *options, *form, "--scaffold", "scaffold"])
    served = [("--python", args.python), ("--workspace", args.workspace)]
    given = [text for option, value in served if value for text in (option, str(value))]
    return shlex.join(["adapt.py", "serve", args.model, "--load-format", "dummy", *given])
