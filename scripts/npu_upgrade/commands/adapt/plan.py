"""Plan the files and steps that bring a model to vllm-ascend, and write the code if it needs its own.

The command analyses the checkpoint again. It compares a model that nothing serves with vLLM's families, by
tensors, configuration and modules, whatever the names: it shows the nearest family, the place of each tensor
and key there, and what a person has to decide (--decide). --scaffold OUT writes the model: a class of that
family with the checkpoint's names, as its own plugin or into a tree; with no open decision vLLM loads it as
it is, and dequantises fp8 if vllm-ascend does not support it. PASS: the plan stands; FAIL: the checkpoint is
inconsistent and must be fixed first; INCONCLUSIVE as in analyze.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from npu_upgrade.checkpoint.analysis import Analysis, analyse
from npu_upgrade.checkpoint.analysis_file import BY_AN_ADAPTER
from npu_upgrade.checkpoint.likeness import AS_NAMED, TRANSPOSED, Likeness, families, flat
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.checkpoint.reading import unsure
from npu_upgrade.checkpoint.registry import read_registry
from npu_upgrade.checkpoint.scaffold import (
    decisions,
    likeness_of,
    package_name,
    patterns,
    registry_entry,
    scaffold,
    unit_test,
)
from npu_upgrade.checkpoint.serving import Sources, shipped_registry
from npu_upgrade.checkpoint.steps import SCHEMA, PlanFile, Tree, steps
from npu_upgrade.commands.adapt.model_arguments import (
    ROOTS,
    add_model_arguments,
    model_options,
    named_sources,
    state_folder,
    write_state,
)
from npu_upgrade.commands.arguments import REPEATED, option, pair
from npu_upgrade.evidence.judged import GENERATED
from npu_upgrade.evidence.subject import file_digest
from npu_upgrade.ground.command import Command, adapt
from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.kept import kept
from npu_upgrade.ground.paths import WORK_DIR
from npu_upgrade.ground.tables import shortened, table
from npu_upgrade.ground.verdict import Result, Verdict
from npu_upgrade.job.adaptation import PACKAGES, adaptation, going_on, open_models
from npu_upgrade.job.stages import find_workspace
from npu_upgrade.job.tree_form import delivery_problem
from npu_upgrade.sources.checkout import open_checkout
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.tree import open_source

EXAMPLES = """/models/Qwen3-8B
/models/New-7B --vllm ../vllm --ascend ../vllm-ascend --delivery ../vllm-ascend
/models/New-7B --vllm pypi:vllm==0.30.0 --scaffold ./new-7b --form plugin
/models/New-7B --vllm ../vllm --ascend ../vllm-ascend --scaffold ../vllm-ascend --form tree
/models/New-7B --vllm ../vllm --scaffold ./new-7b --decide blocks.*.w_a.weight=drop"""

_NAMED = 3  # models in the name of a branch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    option(
        parser,
        "--delivery DIR",
        "the checkout that gets the commit (default: the one around this folder, else /workspace)",
        type=Path,
    )
    option(parser, "--scaffold OUT", "write scaffolds into this folder", type=Path)
    option(
        parser,
        "--form",
        "a package that vLLM loads, or files in OUT, a checkout of vllm-ascend (default: plugin)",
        choices=("plugin", "tree"),
        default="plugin",
    )
    option(
        parser,
        "--decide ID=ANSWER",
        "answer a question of the plan (repeatable); answers are kept",
        type=pair,
        **REPEATED,
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
    verdict = found.file.judge(ignored=BY_AN_ADAPTER)
    # nothing of a plan that is damaged, which this one replaces
    earlier = kept(state_folder(args, found.file.name) / "plan.json", _Earlier) or _Earlier()
    trees = _trees(args, sources)
    trees |= _plugin(args, found, earlier, Path(trees["delivery"].root))
    is_new = found.file.strategy.name == "native adapter"
    answers = earlier.answers | dict(args.decide)
    like = likeness_of(found, sources, answers) if is_new or args.scaffold else Likeness()
    _check_answers(args, like, found)
    answered_late = _answered_late(args, like, trees, earlier)
    out = Path(trees["plugin"].root) if answered_late else args.scaffold
    if is_new and like.complete:
        known = analyse(folder, sources, like=like)
        known.file.verdict = found.file.verdict
        found = replace(found, shape=known.shape, file=known.file)
    if is_new and found.side.code and not like.complete:
        code = shortened(sorted(found.side.code), 2)
        what = f"no family computes what {code} says: a person has to read it, and what it computes"
        found.file.findings.append(unsure("code-decides", what, min(found.side.code)))
        verdict = found.file.judge(ignored=BY_AN_ADAPTER)
    plan = PlanFile(
        schema=SCHEMA,
        model=str(folder.absolute()),
        name=found.file.name,
        strategy=found.file.strategy,
        trees=trees,
        python=str(args.python.absolute()) if args.python else None,
        likeness=like,
        answers=answers,
        decisions=decisions(found, like) if is_new else [],
        open_weights=[one["pattern"] for one in patterns(found, like) if one["targets"] is None]
        if is_new
        else [],
        registry_entry=registry_entry(found, args.form) if is_new else "",
        steps=steps(
            found, like, {name: Path(tree.root) for name, tree in trees.items()}, args.model, args.form
        ),
        findings=found.file.findings,
        written=earlier.written,
    )
    if out and verdict is not Verdict.FAIL:
        registry = read_registry(sources.vllm) if sources.vllm else shipped_registry()
        home = Path(trees["delivery"].root)
        written = earlier.written if answered_late else None
        files = scaffold(found, out, args.form, like, registry, home, written)
        plan.scaffold = [str(path) for path in files]
        plan.written |= {str(path): file_digest(path) for path in files}
    place = write_state(args, plan.name, "plan.json", plan)
    write_state(args, plan.name, "analysis.json", found.file)
    data = msgspec.to_builtins(plan) | {"state": str(place)}
    for long in ("weights", "rows"):  # the file has them
        data["likeness"].pop(long)
    after = _next(args, verdict, plan)
    together = open_models(args.workspace or find_workspace(Path.cwd()))
    summary = _summary(plan, verdict, together, args.form, anew=answered_late)
    if verdict is not Verdict.FAIL:
        summary += _beside_release(Path(trees["delivery"].root), sources)
    return Result(verdict, summary, data, _text(plan), after)


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
    here = Path.cwd()
    around = next((one for one in (here, *here.parents) if (one / ".git").exists()), None)
    fits = around and delivery_problem(around, here.name) is None
    return found | {"delivery": _tree(args.delivery or (around if fits else None) or WORK_DIR)}


class _Earlier(msgspec.Struct):
    """What a plan takes over from the one before it."""

    trees: dict[str, Tree] = {}
    answers: dict[str, str] = {}
    likeness: Likeness | None = None
    written: dict[str, str] = {}


def _plugin(args: argparse.Namespace, found: Analysis, earlier: _Earlier, delivery: Path) -> dict[str, Tree]:
    """The plugin that is written now, or that an earlier plan wrote and that is still there."""
    if args.form != "plugin":
        return {}
    if args.scaffold:
        root = args.scaffold.absolute()
        test = str(unit_test(found, args.form, root, delivery.absolute()))
        return {"plugin": Tree(str(root), True, package=package_name(found), test=test)}
    known = earlier.trees.get("plugin")
    return {"plugin": known} if known and Path(known.root).is_dir() else {}


def _check_answers(args: argparse.Namespace, like: Likeness, found: Analysis) -> None:
    """What is decided now has to be open to an answer, and to answer its question: none is left."""
    known = {"family"}
    if family := families().get(like.family):
        strange = flat(found.config.raw).keys() - {*family.keys, *family.sizes}
        known |= {*like.weights, *like.open, *strange}
    for name, answer in args.decide:
        if name == "family" and answer not in families():
            near = difflib.get_close_matches(answer, families(), n=3, cutoff=0.3)
            raise BadInput(
                f"no family is called {answer}",
                expected="an architecture that a scaffold can follow"
                + (f", for instance: {', '.join(near)}" if near else ""),
                try_=f"--decide 'family={next(iter(near), min(families()))}'",
            )
        if name not in known:
            open_ = [*(one.id for one in like.questions), *like.open]
            raise BadInput(
                f"the plan asks nothing about {name}",
                expected=f"one of: {', '.join(open_)}" if open_ else "no answer: it asks nothing",
                try_=f"--decide '{open_[0]}=ANSWER'" if open_ else "the same without it",
            )
        asked = next((one.options for one in like.questions if one.id == name), None)
        if asked is None and name not in like.sure and like.weights.get(name) not in ([], [answer]):
            asked = like.orders(name)
        if asked:
            raise BadInput(
                f"{answer} does not answer {name}",
                expected=" or ".join(asked),
                try_=f"--decide '{name}={asked[0]}'",
            )


def _answered_late(
    args: argparse.Namespace, like: Likeness, trees: dict[str, Tree], earlier: _Earlier
) -> bool:
    """Whether an answer changes what the plugin that is there has, as the order of a tensor's parts."""
    before, plugin = earlier.likeness, trees.get("plugin")
    if plugin is None or before is None or not before.complete or not args.decide:
        return False
    if args.scaffold and args.scaffold.absolute() != Path(plugin.root):
        return False
    return (before.weights, before.rows, before.turned) != (like.weights, like.rows, like.turned)


def _tree(root: Path) -> Tree:
    found = Tree(str(root), root.is_dir())
    if (root / ".git").exists():
        try:
            found.sha, found.dirty = Repo(root).head_and_dirty()
        except UpgradeError as error:
            found.problem = error.what
    return found


def _summary(
    plan: PlanFile, verdict: Verdict, together: Sequence[str], form: str, *, anew: bool = False
) -> str:
    if verdict is Verdict.FAIL:
        errors = (one for one in plan.findings if one.severity == "error" and one.kind not in BY_AN_ADAPTER)
        return f"the checkpoint is inconsistent: {next(errors).what}"
    files = sum(len(step.files) for step in plan.steps)
    summary = f"{plan.strategy.name}: {len(plan.steps)} steps, {files} files"
    if plan.scaffold:
        summary += f", {len(plan.scaffold)} scaffolds"
        summary += " written anew with the answer" if anew else ""
    if plan.likeness.family:
        said = "it computes what" if plan.likeness.complete else "the nearest to it is what"
        summary += f"; {said} {plan.likeness.family} does"
    if assumed := plan.likeness.assumed:
        summary += f"; no shape shows that {' and that '.join(assumed)}: ask who knows the model (--decide"
        summary += f" PATTERN={AS_NAMED}, or the names of the parts in another order"
        summary += f", or {TRANSPOSED}, alone or before such an order" if plan.likeness.square else ""
        summary += "); nothing waits for it,"
        summary += " and the commit names the gap 'right'"
    repo = Path(plan.trees["delivery"].root)
    if form == "plugin" and plan.likeness.complete and not (plan.scaffold or "plugin" in plan.trees):
        summary += f"; its plugin will be in {repo / plan.name.lower()} (--scaffold DIR: elsewhere)"
    if problem := delivery_problem(repo, plan.name):
        summary += f"; no repository can take the commit yet: {problem.what}"
    elif (checkout := open_checkout(repo)).branch() in checkout.default_branches():
        # one for all that go into the commit
        name = "-".join(sorted(together)) if len(together) <= _NAMED else "models"
        summary += f"; the commit needs a branch of its own: git -C {repo} switch -c adapt-{name}"
    return summary + (f"; {len(plan.decisions)} decisions" if plan.decisions else "")


def _beside_release(repo: Path, sources: Sources) -> str:
    """Whether the checkout that gets the commit is the release that the gates will run."""
    release, package = sources.ascend.tree if sources.ascend else None, PACKAGES["ascend"]
    if release is None or release.spec.startswith("dir:") or not (repo / package).is_dir():
        return ""
    here = open_source(f"dir:{repo}")
    listed = {*here.list(package), *release.list(package)}
    paths = [path for path in listed if path.endswith(".py") and Path(path).name not in GENERATED]
    both = {path for path in paths if here.exists(path) and release.exists(path)}
    other = sorted(path for path in paths if path not in both or here.read(path) != release.read(path))
    if not other:
        return f"; the checkout's {package} is that of {release.spec} ({len(paths)} files compared)"
    return (
        f"; the checkout differs from {release.spec}, which the gates run, in {len(other)} files"
        f" ({shortened(other, 2)}): --ascend {repo} has them judge the checkout"
    )


def _text(plan: PlanFile) -> str:
    like = plan.likeness
    placed = f"{len(like.weights)} of {len(like.weights) + len(like.open)} patterns of tensors"
    files = [(one.root, one.path, one.change) for step in plan.steps for one in step.files]
    parts = [
        "\n".join(plan.strategy.reasons),
        table(("step", "what"), [(step.name, step.what) for step in plan.steps]),
        table(("tree", "file", "change"), files) if files else "",
        "\n".join(f"run: {step.command}" for step in plan.steps if step.command),
        f"nearest: {like.family} ({like.model_type}) has a place for {placed}" if like.family else "",
        "\n".join(f"decide: {one}" for one in plan.decisions),
        "\n".join(f"written: {path}" for path in plan.scaffold or []),
    ]
    return "\n\n".join(part for part in parts if part)


def _next(args: argparse.Namespace, verdict: Verdict, plan: PlanFile) -> Command:
    if verdict is Verdict.FAIL:
        return adapt("analyze", args.model, *model_options(args))
    if args.form == "tree" and plan.likeness.complete and not args.scaffold:
        tree = plan.trees["delivery"].root
        return adapt("plan", args.model, *model_options(args), "--form", args.form, "--scaffold", tree)
    return going_on(adaptation(args.workspace or find_workspace(Path.cwd()), plan.name))
