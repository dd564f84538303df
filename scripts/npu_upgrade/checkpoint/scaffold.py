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

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from npu_upgrade.checkpoint.analysis import Analysis
from npu_upgrade.checkpoint.config import facts
from npu_upgrade.checkpoint.parts import by_pattern
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_together

Form = Literal["plugin", "tree"]
_TEMPLATES = Path(__file__).with_name("templates")


def decisions(found: Analysis) -> list[str]:
    """What the author of the model's code has to decide, by what this checkpoint has."""
    shape, attention = found.shape, found.facts["attention"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in attention["layers"].items())
    count = f"{shape.heads} heads, {shape.kv_heads} of keys"
    result = [f"attention: {attention['kind']} ({kinds or 'unknown'}), {count}"]
    names = by_pattern(found.weights.names)
    for what, pattern in _HINTS.items():
        hits = [key for key in names if re.search(pattern, key)]
        if hits:
            result.append(f"{what}: {', '.join(hits[:3])}")
    rope = found.config.text.get("rope_scaling") or found.config.text.get("rope_parameters")
    result.append(
        f"rope: {str(rope)[:90] if rope else 'plain, theta ' + str(found.config.text.get('rope_theta'))}"
    )
    if shape.experts:
        result.append(
            f"experts: {shape.experts}, {shape.experts_per_token} per token; routing and shared experts"
        )
    if found.facts["mtp"]["state"] in ("ready", "not announced"):
        result.append(f"multi-token prediction: a draft model of its own ({found.facts['mtp']['example']})")
    if found.quantization.method:
        result.append(
            f"quantization {found.quantization.scheme}: pass quant_config and prefix to every layer"
        )
    if found.facts["modalities"]:
        result.append(f"modalities: {', '.join(found.facts['modalities'])}; towers and projector")
    result.append(
        "tensor parallelism: heads by rank; keys and values are replicated when there are fewer than ranks"
    )
    return [said(one) for one in result]


def said(text: object) -> str:
    """Text of a checkpoint as it may stand in a comment or a docstring: one line, no quotes, no escapes."""
    return re.sub(r"[^\w .,:;()\[\]{}+*/=%-]", "_", str(text))


_HINTS = {
    "fused projections": r"(?:qkv|query_key_value|gate_up|c_attn|Wqkv|in_proj)",
    "norms of queries and keys (sharded with their heads)": r"[qk]_?norm|(?:query|key)_layernorm",
    "scales of quantized weights": r"_scale(?:_inv)?$|\.scales$",
}


def patterns(found: Analysis) -> list[dict[str, Any]]:
    """Each pattern of tensor names with how many there are and the shapes they have."""
    result = []
    for pattern, names in by_pattern(found.weights.names).items():
        known = [found.weights.tensors[name] for name in names if name in found.weights.tensors]
        shapes = sorted({f"{list(one.shape)} {one.dtype}" for one in known})
        shown = ", ".join(shapes[:2]) + (f" and {len(shapes) - 2} more" if len(shapes) > 2 else "")
        result.append({"pattern": pattern, "tensors": len(names), "shape": shown or "unknown shape"})
    return result


def scaffold(found: Analysis, out: Path, form: Form, near: dict[str, Any]) -> list[Path]:
    """Write the files below ``out``, all or none; returns them. Raises :class:`BadInput` for what exists."""
    values = _values(found, near)
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
    return files | ({places["processor"]: "processor.py"} if found.facts["modalities"] else {})


def class_name(found: Analysis) -> str:
    """The class a scaffold has: the architecture's, as a name Python takes."""
    given = found.served.architecture or f"{found.config.model_type or found.name}ForCausalLM"
    plain = re.sub(r"\W+", "", given)
    return plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"Model{plain or 'New'}"


def module_name(found: Analysis) -> str:
    """The module a scaffold goes to, by the model type."""
    plain = re.sub(r"\W+", "_", (found.config.model_type or class_name(found)).lower()).strip("_")
    return plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"model_{plain or 'new'}"


def package_name(found: Analysis) -> str:
    """The package of a scaffold that is a plugin."""
    return f"{module_name(found)}_plugin"


def needs_config(found: Analysis) -> bool:
    """Whether neither Transformers nor vLLM has a configuration class for the model type."""
    return bool(found.config.model_type) and found.config.model_type not in facts()["configs"]


def registry_entry(found: Analysis) -> str:
    """The line of vLLM's registry."""
    name = json.dumps(found.served.architecture)
    return f'    {name}: ("{module_name(found)}", "{class_name(found)}"),'


def _values(found: Analysis, near: dict[str, Any]) -> dict[str, Any]:
    cls, module = class_name(found), module_name(found)
    stem = re.sub(r"(?:For\w+|Model)$", "", cls) or cls
    places = near.get("places", {})
    return {
        "cls": cls,
        "stem": stem,
        "module": module,
        "package": package_name(found),
        "architecture": found.served.architecture or cls,
        "model_type": found.config.model_type,
        "own_config": needs_config(found),
        "name": found.name,
        "layers": found.shape.layers,
        "attention": found.facts["attention"]["kind"],
        "experts": found.shape.experts,
        "scheme": found.quantization.scheme,
        "has_fp8": any(one.dtype.startswith("F8_") for one in found.weights.tensors.values()),
        "tied": found.facts["tied"]["tied"],
        "modalities": list(found.facts["modalities"]),
        "processors": found.side.processor,
        "decisions": decisions(found),
        "nearest": near.get("architecture", ""),
        "patterns": [one | {"model": places.get(one["pattern"], "")} for one in patterns(found)],
    }


def _render(template: str, values: dict[str, Any]) -> str:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["said"] = said
    return environment.get_template(f"{template}.j2").render(values)
