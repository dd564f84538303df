"""Who serves an architecture: vLLM, vllm-ascend, a plugin, Transformers' own model, or nobody.

From that follows how a model is brought to vllm-ascend: reuse, an adapter, or a patch of the backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from npu_upgrade.checkpoint.config import Config, facts
from npu_upgrade.checkpoint.module_tree import ModuleTree
from npu_upgrade.checkpoint.quantization import Quantization
from npu_upgrade.checkpoint.registry import Ascend, ModelSources, Registry, read_registry
from npu_upgrade.checkpoint.shape import experts
from npu_upgrade.sources.tree import SourceTree

NO_ONE = ("nobody", "removed", "moved")
"""What :attr:`Serving.by` says where the model needs code that was not released."""

# suffixes whose base model vLLM turns into one that pools
_CONVERTED = (
    *("ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification"),
    *("ForAudioClassification", "ForImageClassification", "ForVideoClassification", "ClassificationModel"),
    *("ForRewardModeling", "RewardModel", "Model"),
)
_BASES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", *_CONVERTED)
# methods whose kernels are CUDA's: on Ascend the weights are converted first
_CONVERT = "use an unquantized or a ModelSlim checkpoint"
_OTHER_WAYS = {
    "awq": f"{_CONVERT}, or dequantize while loading",
    "gptq": f"{_CONVERT}, or dequantize while loading",
    "fp8": "dequantize to bfloat16 while loading, with every weight paired with its scale",
    "mxfp4": "dequantize to bfloat16 while loading",
    "bitsandbytes": "use an unquantized checkpoint",
}


class Serving(msgspec.Struct):
    """``by``: native, ascend, plugin, transformers, converted, removed, moved or nobody. ``read_from``: the
    source that was asked. ``architecture`` is what vLLM resolves to; ``traits`` None when not known."""

    by: str = "nobody"
    architecture: str = ""
    registered: str = ""
    module: str = ""
    cls: str = ""
    kind: str = ""
    traits: list[str] | None = None
    read_from: str = ""
    why: str = ""


class Strategy(msgspec.Struct, frozen=True):
    """The way to vllm-ascend, the ``reasons`` for it, and what to watch (``risks``)."""

    name: Literal["reuse", "native adapter", "backend patch"]
    reasons: list[str]
    risks: list[str]


@dataclass
class Sources:
    """The trees to ask. Without ``vllm`` the facts that ship with the skill answer."""

    vllm: SourceTree | None = None
    ascend: Ascend | None = None
    plugins: dict[str, tuple[str, str]] = field(default_factory=dict)


def serving(config: Config, sources: Sources) -> tuple[Serving, ModuleTree | None]:
    """Who serves the first of the configuration's architectures that anyone has, and its class's modules."""
    registry = read_registry(sources.vllm) if sources.vllm else shipped_registry()
    origin = sources.vllm.spec if sources.vllm else f"{facts().read_from[1]}, as shipped with the skill"
    names = architectures(config)
    for name in names:
        if found := _direct(name, registry, sources) or _converted(name, registry):
            found.read_from = found.read_from or origin
            return found, _add_class(found, registry, sources, config)
    name = names[0] if names else ""
    if name in facts().transformers or name.startswith("Transformers"):
        return _wrapped(name, config, registry, origin), None
    return _nobody(names, registry, origin), None


def architectures(config: Config) -> list[str]:
    """The names vLLM looks up, those that its configuration classes change included."""
    given = config.raw.get("architectures")
    names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    if config.model_type in ("mimo_v2", "mimo_v2_flash") and config.raw.get("vision_config"):
        return ["MiMoV2OmniForCausalLM"]
    if names == ["DeepseekV4ForCausalLM"] and config.number("vision_n_layers"):
        return ["DeepseekV4ForConditionalGeneration"]
    base = facts().base_models.get(config.model_type)
    return names or ([base] if base else [])


def shipped_registry() -> Registry:
    """The registry of the vLLM whose facts ship with the skill."""
    known = facts().architectures
    models = {name: (one.module, one.cls) for name, one in known.items()}
    return Registry(models, {name: one.kind for name, one in known.items()}, facts().removed, facts().moved)


def _direct(name: str, registry: Registry, sources: Sources) -> Serving | None:
    kind = registry.kinds.get(name, "")
    if sources.ascend and name in sources.ascend.models:
        why = "vllm-ascend registers a model of its own"
        why += " in place of vLLM's" if name in registry.models else ""
        place, origin = sources.ascend.models[name], sources.ascend.tree.spec
        return Serving("ascend", name, name, *place, kind, read_from=origin, why=why)
    if name in sources.plugins:
        return Serving("plugin", name, name, *sources.plugins[name], why="an installed plugin registers it")
    if name in registry.models:
        return Serving("native", name, name, *registry.models[name], kind, why="vLLM registers it")
    return None


def _converted(name: str, registry: Registry) -> Serving | None:
    """``X`` + a pooling suffix is served by the generating ``X`` that vLLM has."""
    suffix = next((one for one in _CONVERTED if name.endswith(one)), "")
    # an architecture Transformers has and can replace attention in is wrapped before it is converted
    for base in _BASES if suffix else ():
        other = name.removesuffix(suffix) + base
        if other in registry.models:
            why, kind = f"vLLM turns {other} into a model that pools", registry.kinds.get(other, "")
            return Serving("converted", name, other, *registry.models[other], kind, why=why)
    return None


def _add_class(found: Serving, registry: Registry, sources: Sources, config: Config) -> ModuleTree | None:
    """The modules of the class that serves; adds to ``found`` what the class can do."""
    trees = [tree for tree in (sources.vllm, sources.ascend.tree if sources.ascend else None) if tree]
    models = ModelSources(*trees)
    models.models = registry.models
    models.text_architecture = next(iter(architectures(config.text)), "") if config.is_nested else ""
    cls = models.find(found.module, found.cls)
    found.traits = models.traits(cls) if cls else None
    known = facts().architectures.get(found.registered)
    if found.traits is None and known and known.cls == found.cls:
        found.traits = known.traits
    elif found.by == "ascend" and known and not sources.vllm:  # its bases stand in a vLLM that was not given
        found.traits = sorted({*(found.traits or []), *(known.traits or [])})
    return ModuleTree(models, cls) if cls else None


def _wrapped(name: str, config: Config, registry: Registry, origin: str) -> Serving:
    purpose = "EmbeddingModel" if name.endswith(("ForTextEncoding", "Model")) else "ForCausalLM"
    purpose = "ForSequenceClassification" if name.endswith("ForSequenceClassification") else purpose
    form = ("MultiModal" if config.is_nested else "") + ("MoE" if experts(config.text) else "")
    target = name if name.startswith("Transformers") else f"Transformers{form}{purpose}"
    why = f"no model of vLLM's own; Transformers has {name} and vLLM can run it as {target}"
    if name in registry.removed:
        why += f"; vLLM's own was removed after {registry.removed[name]}"
    module, known = registry.models.get(target, ("", ""))[0], facts().architectures.get(target)
    traits = known.traits if known else None
    return Serving(
        "transformers", target, target, module, target, "transformers_backend", traits, origin, why
    )


def _nobody(names: list[str], registry: Registry, origin: str) -> Serving:
    for one in names:
        if last := registry.removed.get(one):
            return Serving("removed", one, read_from=origin, why=f"vLLM had it until {last}")
        if plugin := registry.moved.get(one):
            return Serving("moved", one, read_from=origin, why=f"vLLM points to a plugin: {plugin}")
    why = "no registry has it" if names else "config.json names no architecture"
    return Serving("nobody", names[0] if names else "", read_from=origin, why=why)


def choose(
    served: Serving, quantized: Quantization, ascend: Ascend | None, missing: int, attention: str
) -> Strategy:
    """By how the weights are quantized and how many patterns of tensors are ``missing`` in the model."""
    method = quantized.method
    reasons, risks = [served.why], []
    adapter, backend = served.by in NO_ONE, False
    if served.by == "moved":
        reasons.append("install that plugin, or write an adapter as a plugin of your own")
    if missing:
        adapter = True
        reasons.append(f"{missing} patterns of the checkpoint's tensors have no place in {served.cls}")
    if method and ascend and ascend.quantizations and method not in ascend.quantizations:
        adapter, backend = adapter or method == "fp8", method != "fp8"
        way = _OTHER_WAYS.get(method.removesuffix("_marlin"), _CONVERT)
        takes = ", ".join(ascend.quantizations)
        reasons.append(f"{ascend.tree.spec} takes {takes}, not {method}: {way}")
    elif (
        method == "fp8" and ascend and ascend.needs_blocks and not quantized.details.get("weight_block_size")
    ):
        adapter = True
        reasons.append(f"{ascend.needs_blocks} refuses {quantized.scheme}: {_OTHER_WAYS[method]}")
    elif method and ascend is None:
        risks.append(f"whether vllm-ascend takes {method} was not judged: --ascend SPEC")
    if ascend and served.by != "nobody":
        patches = ascend.adaptations(served.module, served.cls)
        reasons += [f"vllm-ascend adapts it in {place}" for place in patches[:4]]
    if served.by == "transformers":
        risks.append("Transformers' own model runs without vllm-ascend's fused operators")
    if attention in ("dsa", "hybrid", "state"):
        risks.append(f"{attention} attention needs kernels of its own on NPU: run the dummy gate first")
    name = "native adapter" if adapter else "backend patch" if backend else "reuse"
    return Strategy(name, [reason for reason in reasons if reason], risks)
