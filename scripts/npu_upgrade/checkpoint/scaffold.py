"""A new model's files as scaffolds: they compile, register, and name each decision that is left open.

They are this project's own text around the checkpoint's tensor names. Nothing is decided for the author:
code that is not written raises ``NotImplementedError`` with the name of the decision.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from npu_upgrade.checkpoint.analysis import Analysis
from npu_upgrade.checkpoint.config import facts
from npu_upgrade.checkpoint.module_tree import ModuleTree
from npu_upgrade.checkpoint.parts import by_pattern, pattern_of
from npu_upgrade.checkpoint.registry import ModelSources, read_registry
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_together
from npu_upgrade.ground.tables import shortened
from npu_upgrade.sources.tree import SourceTree

Form = Literal["plugin", "tree"]
_TEMPLATES = Path(__file__).with_name("templates")
# one model of each way to name modules; what a checkpoint is most like is found among them
_TEXT = (
    *("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    *("MixtralForCausalLM", "DeepseekV2ForCausalLM", "Glm4MoeForCausalLM", "Gemma3ForCausalLM"),
    *("Phi3ForCausalLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM", "Qwen3NextForCausalLM"),
    *("MambaForCausalLM", "JambaForCausalLM", "Olmo2ForCausalLM"),
)
_OTHERS = (
    *("Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration"),
    *("LlavaForConditionalGeneration", "InternVLForConditionalGeneration"),
    *("Qwen2AudioForConditionalGeneration", "BertModel"),
)
_HINTS = {
    "fused projections": r"(?:qkv|query_key_value|gate_up|c_attn|Wqkv|in_proj)",
    "norms of queries and keys (sharded with their heads)": r"[qk]_?norm|(?:query|key)_layernorm",
    "scales of quantized weights": r"_scale(?:_inv)?$|\.scales$",
}


class Nearest(msgspec.Struct, omit_defaults=True):
    """A model of vLLM whose ``module`` has ``patterns`` ``of`` all of a checkpoint's; all empty for none."""

    architecture: str = ""
    module: str = ""
    patterns: int = 0
    of: int = 0


def nearest(found: Analysis, tree: SourceTree | None) -> tuple[Nearest, dict[str, str]]:
    """The model of vLLM whose modules take most of a checkpoint's tensors, and its name for each pattern.

    Nothing without a vLLM source or without tensor names.
    """
    best, best_places = Nearest(), {}
    if tree is None or not found.weights.names:
        return best, best_places
    registry, models = read_registry(tree), ModelSources(tree)
    examples = {pattern: names[0] for pattern, names in by_pattern(found.weights.names).items()}
    for name in (*_TEXT, *(_OTHERS if found.file.modalities else ())):
        module, cls = registry.models.get(name, ("", ""))
        root = models.find(module, cls) if module else None
        if root is None:
            continue
        modules = ModuleTree(models, root)
        placed = {pattern: modules.place(example) for pattern, example in examples.items()}
        names = {pattern: place.name for pattern, place in placed.items() if place.state == "found"}
        if len(names) > best.patterns:
            best = Nearest(name, module.replace(".", "/") + ".py", len(names), len(examples))
            best_places = {pattern: pattern_of(name) for pattern, name in names.items()}
    return best, best_places


def decisions(found: Analysis) -> list[str]:
    """What the author of the model's code has to decide, by what this checkpoint has."""
    shape, file = found.shape, found.file
    kinds = ", ".join(f"{count} {kind}" for kind, count in file.attention.layers.items())
    count = f"{shape.heads} heads, {shape.kv_heads} of keys"
    result = [f"attention: {file.attention.kind} ({kinds or 'unknown'}), {count}"]
    names = by_pattern(found.weights.names)
    for what, pattern in _HINTS.items():
        hits = [key for key in names if re.search(pattern, key)]
        if hits:
            result.append(f"{what}: {', '.join(hits[:3])}")
    rope = found.config.text.get("rope_scaling") or found.config.text.get("rope_parameters")
    theta = found.config.text.get("rope_theta")
    result.append(f"rope: {str(rope)[:90]}" if rope else f"rope: plain, theta {theta}")
    if shape.experts:
        each = f"{shape.experts_per_token} per token"
        result.append(f"experts: {shape.experts}, {each}; routing and shared experts")
    if file.mtp.state in ("ready", "not announced"):
        result.append(f"multi-token prediction: a draft model of its own ({file.mtp.example})")
    if file.quantization.method:
        result.append(f"quantization {file.quantization.scheme}: pass quant_config and prefix to every layer")
    if file.modalities:
        result.append(f"modalities: {', '.join(file.modalities)}; towers and projector")
    what = "heads by rank; keys and values are replicated when there are fewer than ranks"
    return [plain(one) for one in [*result, f"tensor parallelism: {what}"]]


def plain(text: object) -> str:
    """Text of a checkpoint as it may stand in a comment or a docstring: one line, no quotes, no escapes."""
    return re.sub(r"[^\w .,:;()\[\]{}+*/=%-]", "_", str(text))


def patterns(found: Analysis) -> list[dict[str, Any]]:
    """Each pattern of tensor names with how many there are and the shapes they have."""
    result = []
    for pattern, names in by_pattern(found.weights.names).items():
        known = [found.weights.tensors[name] for name in names if name in found.weights.tensors]
        shapes = sorted({f"{list(one.shape)} {one.dtype}" for one in known})
        shown = shortened(shapes, 2) or "unknown shape"
        result.append({"pattern": pattern, "tensors": len(names), "shape": shown})
    return result


def scaffold(found: Analysis, out: Path, form: Form, near: Nearest, places: dict[str, str]) -> list[Path]:
    """Write the files below ``out``, all or none; returns them. Raises :class:`BadInput` for what exists.

    ``near`` and ``places`` as :func:`nearest` gives them.
    """
    values = _values(found, near, places)
    wanted = scaffolded(found, form)
    there = [str(out / path) for path in wanted if (out / path).exists()]
    if there:
        raise BadInput(
            f"{there[0]} is there already",
            expected="a folder without these files",
            try_="another --scaffold OUT",
        )
    texts = {out / path: _render(template, values) for path, template in wanted.items()}
    for path, text in texts.items():
        if path.suffix == ".py":
            ast.parse(text)
    write_together(texts)
    return sorted(texts)


def scaffolded(found: Analysis, form: Form) -> dict[str, str]:
    """The files of a scaffold: path -> template."""
    module = module_name(found)
    if form == "plugin":
        package = package_name(found)
        files = {"pyproject.toml": "pyproject.toml", f"{package}/__init__.py": "init.py"}
        places = {one: f"{package}/{one}.py" for one in ("model", "configuration", "processor")}
    else:
        files = {}
        folders = {"model": "model_executor/models", "configuration": "transformers_utils/configs"}
        folders["processor"] = "transformers_utils/processors"
        places = {one: f"vllm/{folder}/{module}.py" for one, folder in folders.items()}
    files[places["model"]] = "model.py"
    files |= {places["configuration"]: "configuration.py"} if needs_config(found) else {}
    return files | ({places["processor"]: "processor.py"} if found.file.modalities else {})


def class_name(found: Analysis) -> str:
    """The class a scaffold has: the architecture's, as a name Python takes."""
    given = found.file.serving.architecture or f"{found.config.model_type or found.file.name}ForCausalLM"
    name = re.sub(r"\W+", "", given)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Model{name or 'New'}"


def module_name(found: Analysis) -> str:
    """The module a scaffold goes to, by the model type."""
    name = re.sub(r"\W+", "_", (found.config.model_type or class_name(found)).lower()).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"model_{name or 'new'}"


def package_name(found: Analysis) -> str:
    """The package of a scaffold that is a plugin."""
    return f"{module_name(found)}_plugin"


def needs_config(found: Analysis) -> bool:
    """Whether neither Transformers nor vLLM has a configuration class for the model type."""
    return bool(found.config.model_type) and found.config.model_type not in facts().configs


def registry_entry(found: Analysis) -> str:
    """The line of vLLM's registry."""
    name = json.dumps(found.file.serving.architecture)
    return f'{name}: ("{module_name(found)}", "{class_name(found)}"),'


def _values(found: Analysis, near: Nearest, places: dict[str, str]) -> dict[str, Any]:
    cls, file = class_name(found), found.file
    return {
        "cls": cls,
        "stem": re.sub(r"(?:For\w+|Model)$", "", cls) or cls,
        "module": module_name(found),
        "package": package_name(found),
        "architecture": file.serving.architecture or cls,
        "model_type": found.config.model_type,
        "own_config": needs_config(found),
        "name": file.name,
        "layers": found.shape.layers,
        "attention": file.attention.kind,
        "experts": found.shape.experts,
        "scheme": file.quantization.scheme,
        "has_fp8": any(one.dtype.startswith("F8_") for one in found.weights.tensors.values()),
        "tied": file.tied.tied,
        "modalities": list(file.modalities),
        "processors": file.files.processor,
        "decisions": decisions(found),
        "nearest": near.architecture,
        "patterns": [one | {"model": places.get(one["pattern"], "")} for one in patterns(found)],
    }


def templates(folder: Path) -> Environment:
    """The templates of a folder; a name that is not given is an error."""
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _render(template: str, values: dict[str, Any]) -> str:
    environment = templates(_TEMPLATES)
    environment.filters["plain"] = plain
    return environment.get_template(f"{template}.j2").render(values)
