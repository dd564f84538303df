"""The order of work to bring a model to vllm-ascend, with the files that each step touches."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.analysis import Analysis
from npu_upgrade.checkpoint.gaps import ASKED
from npu_upgrade.checkpoint.memory import BASELINE_LEN, BASELINE_SEQS, CARDS
from npu_upgrade.checkpoint.scaffold import (
    Form,
    class_name,
    decisions,
    module_name,
    needs_config,
    registry_entry,
    scaffolded,
)


@dataclass
class Step:
    """``files``: paths with the tree they are in (``vllm``, ``ascend``, ``plugin``, ``delivery``)."""

    name: str
    what: str
    files: list[dict[str, str]] = field(default_factory=list)
    command: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def steps(found: Analysis, roots: dict[str, Path], given: str, form: Form = "tree") -> list[Step]:
    """What to do, first to last, for the strategy chosen; ``given`` is the model as it was named.

    ``form``: whether code that is missing is written into vLLM's tree or as a plugin, which leaves the tree
    as it is.
    """
    way = found.facts["strategy"]["name"]
    result: list[Step] = []
    if way == "native adapter":
        result += _adapter(found, form)
    if way == "backend patch" or found.quantization.method:
        result += _backend(found, way)
    result += _gates(found, given)
    return result + _artifacts(found, roots)


def _adapter(found: Analysis, form: Form) -> list[Step]:
    served = found.served
    if served.module and found.facts["mapping"].get("missing"):
        path = served.module.replace(".", "/") + ".py"
        file = {
            "root": "ascend" if served.by == "ascend" else "vllm",
            "path": path,
            "change": "rename its tensors",
        }
        what = f"give {served.cls} the names of this checkpoint (hf_to_vllm_mapper), as few as it takes"
        return [Step("mapping", what, _plugin(found) if form == "plugin" else [file])]
    taken = decisions(found)
    what = (
        f"write {class_name(found)}: {len(taken)} decisions; --scaffold OUT writes the files that name them"
    )
    return [Step("adapter", what, _plugin(found) if form == "plugin" else _in_tree(found))]


def _plugin(found: Analysis) -> list[dict[str, str]]:
    """The files of a plugin, below the folder that --scaffold names."""
    changes = {
        "pyproject.toml": "the package, and its entry point for vLLM",
        "init.py": f"registration: {registry_entry(found).strip()}",
        "model.py": "new model",
        "configuration.py": f"configuration class of {found.config.model_type}",
        "processor.py": "processor, when Transformers' own does not do",
    }
    files = scaffolded(found, "plugin")
    return [{"root": "plugin", "path": path, "change": changes[kind]} for path, kind in files.items()]


def _in_tree(found: Analysis) -> list[dict[str, str]]:
    module = module_name(found)
    files = [
        {"root": "vllm", "path": f"vllm/model_executor/models/{module}.py", "change": "new model"},
        {
            "root": "vllm",
            "path": "vllm/model_executor/models/registry.py",
            "change": registry_entry(found).strip(),
        },
    ]
    if needs_config(found):
        path = f"vllm/transformers_utils/configs/{module}.py"
        files.append(
            {"root": "vllm", "path": path, "change": f"configuration class of {found.config.model_type}"}
        )
        files.append(
            {"root": "vllm", "path": "vllm/transformers_utils/config.py", "change": "register that class"}
        )
    if found.facts["modalities"]:
        path = f"vllm/transformers_utils/processors/{module}.py"
        files.append(
            {"root": "vllm", "path": path, "change": "processor, when Transformers' own does not do"}
        )
    return files


def _backend(found: Analysis, way: str) -> list[Step]:
    method = found.quantization.method
    file = {"root": "ascend", "path": "vllm_ascend/quantization", "change": f"take {method} weights"}
    reason = "; ".join(one for one in found.facts["strategy"]["reasons"] if method and method in one)
    if way == "backend patch":
        return [Step("backend", f"vllm-ascend does not take {method} as it is. {reason}", [file])]
    return []


def _gates(found: Analysis, given: str) -> list[Step]:
    length = min(BASELINE_LEN, found.shape.max_len)
    moe = "expert parallel, flashcomm1" + ("" if found.shape.experts else ": not applicable, no experts")
    features = ["graph mode", moe, f"mtp: {found.facts['mtp']['state']}", *found.facts["modalities"]]
    sizes = ", ".join(f"{card.tp} on {card.name}" for card in (CARDS["A2"], CARDS["A3"]))
    options = ["--max-model-len", str(length), "--max-num-seqs", str(BASELINE_SEQS)]

    def gate(name: str, *more: str) -> str:
        return shlex.join(["adapt.py", name, given, *more])

    return [
        Step(
            "dummy",
            f"architecture, operators and API without weights; tensor parallel {sizes}",
            command=gate("serve", "--load-format", "dummy", "--", *options),
        ),
        Step(
            "real",
            "the same with real weights: names, scales, sharding; nothing is signed off without it",
            command=gate("serve", "--load-format", "real", "--", *options),
        ),
        Step("features", "; ".join(features), command=gate("features")),
        Step(
            "capacity",
            f"{length} tokens with {BASELINE_SEQS} sequences, then 32 and 64",
            command=gate("capacity", "--length", str(length)),
        ),
        Step(
            "accuracy",
            "the values of the accuracy configuration, by lm_eval with real weights",
            command=gate("accuracy", *ASKED["accuracy"]),
        ),
    ]


def _artifacts(found: Analysis, roots: dict[str, Path]) -> list[Step]:
    name = found.name
    tree = next(
        (roots[key] for key in ("delivery", "ascend") if (roots[key] / "docs/source/tutorials").is_dir()),
        None,
    )
    files = [
        {
            "root": "delivery",
            "path": f"tests/e2e/models/configs/{name}.yaml",
            "change": "accuracy, as measured",
        },
        {"root": "delivery", "path": f"docs/source/tutorials/models/{name}.md", "change": "tutorial"},
        {"root": "delivery", "path": "docs/source/tutorials/models/index.md", "change": "its entry"},
    ]
    if tree is None or (tree / "mkdocs.yml").is_file():
        files.append({"root": "delivery", "path": "mkdocs.yml", "change": "its place in nav"})
    path = "docs/source/user_guide/support_matrix/supported_models.md"
    files.append({"root": "delivery", "path": path, "change": "its row"})
    return [
        Step("artifacts", "filled from the evidence of the gates only", files),
        Step("deliver", "one signed-off commit with exactly these files"),
    ]
