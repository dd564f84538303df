"""``plan.json``: the order of work to bring a model to vllm-ascend, with the files that each step touches."""

from __future__ import annotations

from pathlib import Path

import msgspec

from npu_upgrade.checkpoint.analysis import Analysis
from npu_upgrade.checkpoint.gate_commands import asked
from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.memory import BASELINE_LEN, BASELINE_SEQS, CARDS
from npu_upgrade.checkpoint.reading import Finding
from npu_upgrade.checkpoint.scaffold import (
    Form,
    class_name,
    decisions,
    registry_entry,
    scaffolded,
    unit_test,
)
from npu_upgrade.checkpoint.serving import Strategy
from npu_upgrade.ground.command import ADAPT, Command
from npu_upgrade.ground.kept import kept
from npu_upgrade.ground.paths import models_folder

SCHEMA = "npu-upgrade/adapt-plan/1"
_MODELS = "docs/source/tutorials/models"


class StepFile(msgspec.Struct, frozen=True):
    """A file to change; ``root`` is the tree it is in: ``vllm``, ``ascend``, ``plugin`` or ``delivery``."""

    root: str
    path: str
    change: str


class Step(msgspec.Struct, frozen=True):
    """One step, with the files that it touches or the command that it is."""

    name: str
    what: str
    files: list[StepFile] = []
    command: str = ""


class Tree(msgspec.Struct, omit_defaults=True):
    """Where a tree is and which commit it has: evidence is bound to it later.

    ``problem``: why git gave no commit; ``spec`` and ``version``: what was read in place of the folder;
    ``package``: of a plugin; ``test``: its unit test.
    """

    root: str
    there: bool
    sha: str | None = None
    dirty: bool | None = None
    problem: str | None = None
    spec: str | None = None
    version: str | None = None
    package: str | None = None
    test: str | None = None


class PlanFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``plan.json``. ``scaffold``: files that were written; ``written``: these and those of earlier plans,
    with the SHA-256 that each had then; ``open_weights``: patterns to decide about; ``answers``: to questions
    of ``likeness``, by id.
    """

    schema: str
    model: str
    name: str
    strategy: Strategy
    trees: dict[str, Tree]
    python: str | None
    likeness: Likeness
    answers: dict[str, str]
    decisions: list[str]
    open_weights: list[str]
    registry_entry: str
    steps: list[Step]
    findings: list[Finding]
    scaffold: list[str] | None = None
    written: dict[str, str] = {}


class _Planned(msgspec.Struct):
    """Of a plan, what its checkpoint computes."""

    model: str
    likeness: Likeness


def planned_family(workspace: Path, model: str) -> Likeness | None:
    """The family that a plan of this workspace says the checkpoint is, when nothing of it is open."""
    for path in models_folder(workspace).glob("*/plan.json"):
        plan = kept(path, _Planned)  # None of an older one, or one that is being written
        if plan and Path(plan.model).resolve() == Path(model).resolve() and plan.likeness.complete:
            return plan.likeness
    return None


def steps(
    found: Analysis, like: Likeness, roots: dict[str, Path], given: str, form: Form = "tree"
) -> list[Step]:
    """What to do, first to last, for the strategy chosen; ``given`` is the model as it was named.

    ``form``: whether code that is missing is written into vLLM's tree or as a plugin, which leaves the tree
    as it is.
    """
    strategy, result = found.file.strategy, []
    if strategy.name == "native adapter":
        result.append(_adapter(found, like, form, roots))
    if strategy.name == "backend patch":
        method = found.file.quantization.method
        reason = "; ".join(one for one in strategy.reasons if method and method in one)
        what = f"vllm-ascend does not take {method} as it is. {reason}"
        file = StepFile("ascend", "vllm_ascend/quantization", f"take {method} weights")
        result.append(Step("backend", what, [file]))
    return [*result, *_gates(found, given), *_delivery(found, roots)]


def _adapter(found: Analysis, like: Likeness, form: Form, roots: dict[str, Path]) -> Step:
    served = found.file.serving
    files = _written(found, like, form, roots)
    if served.module and found.file.mapping.missing:
        root, path = "ascend" if served.by == "ascend" else "vllm", served.module.replace(".", "/") + ".py"
        what = f"give {served.cls} the names of this checkpoint (hf_to_vllm_mapper), as few as it takes"
        mapped = [StepFile(root, path, "rename its tensors")]
        return Step("mapping", what, files if form == "plugin" else mapped)
    count = len(decisions(found, like))
    name = class_name(found)
    what = f"write {name}: {count} decisions; --scaffold OUT writes the files that name them"
    if like.family and not count:
        what = f"--scaffold OUT writes {name}: {like.family} under this checkpoint's names, complete"
    return Step("adapter", what, files)


def _written(found: Analysis, like: Likeness, form: Form, roots: dict[str, Path]) -> list[StepFile]:
    """The files of a scaffold, and in a tree the one that has to know of them."""
    entry, kind = registry_entry(found, form), found.config.model_type
    changes = {
        "pyproject.toml": "the package, and its entry point for vLLM",
        "init.py": f"registration: {entry}",
        "model.py": "the model, with its table of names",
        "configuration.py": f"configuration class of {kind}",
    }
    root, out = ("plugin", None) if form == "plugin" else ("ascend", roots.get("ascend"))
    wanted = scaffolded(found, form, like, out)
    if form == "tree" and not any(path.startswith("vllm_ascend") for path in wanted):
        root = "vllm"
    files = [StepFile(root, path, changes[name]) for path, name in wanted.items()]
    if root == "vllm":
        files.append(StepFile("vllm", "vllm/model_executor/models/registry.py", entry))
    if root == "ascend":
        files.append(StepFile("ascend", "vllm_ascend/models/__init__.py", "register it"))
    delivery = roots["delivery"].resolve()
    own = roots.get(root, delivery / found.file.name.lower()).resolve()  # a plugin may be still to come
    test = unit_test(found, form, own, delivery)
    root, home = (root, own) if test.is_relative_to(own) else ("delivery", delivery)
    return [*files, StepFile(root, test.relative_to(home).as_posix(), "its unit test")]


def _gates(found: Analysis, given: str) -> list[Step]:
    length = min(BASELINE_LEN, found.shape.max_len)
    moe = "expert parallel, flashcomm1" + ("" if found.shape.experts else ": not applicable, no experts")
    features = ["graph mode", moe, f"mtp: {found.file.mtp.state}", *found.file.modalities]
    sizes = ", ".join(f"{card.tp} on {card.name}" for card in (CARDS["A2"], CARDS["A3"]))
    served = ("--max-model-len", str(length), "--max-num-seqs", str(BASELINE_SEQS))

    def step(name: str, gate: str, what: str, *options: str, passed_on: tuple[str, ...] = ()) -> Step:
        return Step(name, what, command=Command(ADAPT, gate, (given, *options), passed_on).short)

    dummy = f"architecture, operators and API without weights; tensor parallel {sizes}"
    real = "the same with real weights: names, scales, sharding; nothing is signed off without it"
    capacity = f"{length} tokens with {BASELINE_SEQS} sequences, then 32 and 64"
    accuracy = "the values of the accuracy configuration, by lm_eval with real weights"
    return [
        step("dummy", "serve", dummy, "--load-format", "dummy", passed_on=served),
        step("real", "serve", real, "--load-format", "real", passed_on=served),
        step("features", "features", "; ".join(features)),
        step("capacity", "capacity", capacity, "--length", str(length), *asked("capacity")),
        step("performance", "performance", "throughput and latency, by vllm bench serve"),
        step("accuracy", "accuracy", accuracy, *asked("accuracy", found.shape.max_len)),
    ]


def _delivery(found: Analysis, roots: dict[str, Path]) -> list[Step]:
    name = found.file.name
    trees = [roots[key] for key in ("delivery", "ascend")]
    tree = next((one for one in trees if (one / "docs/source/tutorials").is_dir()), None)
    changes = {
        f"tests/e2e/models/configs/{name}.yaml": "accuracy, once it is measured",
        f"{_MODELS}/{name}.md": "tutorial",
        f"{_MODELS}/index.md": "its entry, where it names each page",
        "mkdocs.yml": "its place in nav",
        "docs/source/user_guide/support_matrix/supported_models.md": "its row",
    }
    if tree and not (tree / "mkdocs.yml").is_file():
        del changes["mkdocs.yml"]
    files = [StepFile("delivery", path, change) for path, change in changes.items()]
    return [
        Step("artifacts", "filled from the evidence of the gates only", files),
        Step("deliver", "one signed-off commit with exactly these files"),
    ]
