"""Who serves an architecture: vLLM natively, vllm-ascend, a plugin, Transformers' own model, or nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.checkpoint.ascend import Ascend
from npu_upgrade.checkpoint.config import Config, facts
from npu_upgrade.checkpoint.model_classes import ClassReader, ModelClass
from npu_upgrade.checkpoint.registry import Registry, read_registry, traits
from npu_upgrade.sources.tree import SourceTree

# suffixes whose base model vLLM turns into one that pools
_CONVERTED = (
    *("ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification"),
    *("ForAudioClassification", "ForImageClassification", "ForVideoClassification", "ClassificationModel"),
    *("ForRewardModeling", "RewardModel", "Model"),
)
_BASES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", *_CONVERTED)


@dataclass
class Serving:
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
    model_class: ModelClass | None = None
    reader: ClassReader | None = None

    def as_json(self) -> dict[str, Any]:
        names = ("by", "architecture", "registered", "module", "cls", "kind", "traits", "read_from", "why")
        return {name: getattr(self, name) for name in names}


@dataclass
class Sources:
    """The trees to ask. Without ``vllm`` the facts that ship with the skill answer."""

    vllm: SourceTree | None = None
    ascend: Ascend | None = None
    plugins: dict[str, tuple[str, str]] = field(default_factory=dict)


def serving(config: Config, sources: Sources) -> Serving:
    """Who serves the first of the configuration's architectures that anyone has."""
    registry = read_registry(sources.vllm) if sources.vllm else _shipped()
    origin = sources.vllm.spec if sources.vllm else f"{facts()['read_from'][1]}, as shipped with the skill"
    names = architectures(config)
    for name in names:
        found = _direct(name, registry, sources) or _converted(name, registry)
        if found:
            found.read_from = found.read_from or origin
            _add_class(found, registry, sources, config)
            return found
    for name in names[:1]:
        if name in facts()["transformers"] or name.startswith("Transformers"):
            return _wrapped(name, config, registry, origin)
    return _nobody(names, registry, origin)


def architectures(config: Config) -> list[str]:
    """The names vLLM looks up, those that its configuration classes change included."""
    given = config.raw.get("architectures")
    names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    if config.model_type in ("mimo_v2", "mimo_v2_flash") and config.raw.get("vision_config"):
        return ["MiMoV2OmniForCausalLM"]
    if names == ["DeepseekV4ForCausalLM"] and config.number("vision_n_layers"):
        return ["DeepseekV4ForConditionalGeneration"]
    base = facts()["base_models"].get(config.model_type)
    return names or ([base] if base else [])


def _shipped() -> Registry:
    known = facts()["architectures"]
    return Registry(
        {name: (one["module"], one["class"]) for name, one in known.items()},
        {name: one["kind"] for name, one in known.items()},
        facts()["removed"],
        facts()["moved"],
    )


def _direct(name: str, registry: Registry, sources: Sources) -> Serving | None:
    if sources.ascend and name in sources.ascend.models:
        module, cls = sources.ascend.models[name]
        why = "vllm-ascend registers a model of its own" + (
            " in place of vLLM's" if name in registry.models else ""
        )
        return Serving(
            "ascend", name, name, module, cls, registry.kinds.get(name, ""), None, sources.ascend.spec, why
        )
    if name in sources.plugins:
        module, cls = sources.plugins[name]
        return Serving("plugin", name, name, module, cls, why="an installed plugin registers it")
    if name in registry.models:
        module, cls = registry.models[name]
        return Serving(
            "native", name, name, module, cls, registry.kinds.get(name, ""), why="vLLM registers it"
        )
    return None


def _converted(name: str, registry: Registry) -> Serving | None:
    """``X`` + a pooling suffix is served by the generating ``X`` that vLLM has."""
    suffix = next((one for one in _CONVERTED if name.endswith(one)), "")
    # an architecture Transformers has and can replace attention in is wrapped before it is converted
    for base in _BASES if suffix else ():
        other = name.removesuffix(suffix) + base
        if other in registry.models:
            module, cls = registry.models[other]
            why = f"vLLM turns {other} into a model that pools"
            return Serving("converted", name, other, module, cls, registry.kinds.get(other, ""), why=why)
    return None


def _add_class(found: Serving, registry: Registry, sources: Sources, config: Config) -> None:
    trees = [tree for tree in (sources.vllm, sources.ascend.tree if sources.ascend else None) if tree]
    if trees and found.module:
        found.reader = ClassReader(*trees)
        found.reader.models = registry.models
        found.reader.text_architecture = (
            next(iter(architectures(config.text)), "") if config.is_nested else ""
        )
        found.model_class = found.reader.find(found.module, found.cls)
        if found.model_class:
            has = traits(found.reader, found.model_class)
            found.traits = sorted(name for name, value in has.items() if value)
    shipped = facts()["architectures"].get(found.registered, {})
    if found.traits is None and shipped.get("class") == found.cls:
        found.traits = shipped["traits"]
    elif found.by == "ascend" and found.registered in facts()["architectures"]:
        # its bases stand in a vLLM that was not given
        found.traits = (
            sorted({*(found.traits or []), *(shipped.get("traits") or [])})
            if not sources.vllm
            else found.traits
        )


def _inner(config: Config) -> str:
    """The architecture of the text model: as named, or the one that generates for its model type."""
    given = config.text.raw.get("architectures")
    base = facts()["base_models"].get(config.text.model_type, "").removesuffix("Model")
    named = isinstance(given, list) and given and isinstance(given[0], str)
    return given[0] if named else (f"{base}ForCausalLM" if base else "")


def _wrapped(name: str, config: Config, registry: Registry, origin: str) -> Serving:
    from npu_upgrade.checkpoint.shape import experts

    target = (
        "Transformers" + ("MultiModal" if config.is_nested else "") + ("MoE" if experts(config.text) else "")
    )
    if name.endswith(("EmbeddingModel", "ForTextEncoding", "Model")):
        target += "EmbeddingModel"
    elif name.endswith(("ForSequenceClassification", "ClassificationModel")):
        target += "ForSequenceClassification"
    else:
        target += "ForCausalLM"
    target = name if name.startswith("Transformers") else target
    shipped = facts()["architectures"].get(target, {})
    why = f"no model of vLLM's own; Transformers has {name} and vLLM can run it as {target}"
    if name in registry.removed:
        why += f"; vLLM's own was removed after {registry.removed[name]}"
    module = registry.models.get(target, ("", ""))[0]
    return Serving(
        "transformers",
        target,
        target,
        module,
        target,
        "transformers_backend",
        shipped.get("traits"),
        origin,
        why,
    )


def _nobody(names: list[str], registry: Registry, origin: str) -> Serving:
    name = names[0] if names else ""
    for one in names:
        if one in registry.removed:
            why = f"vLLM had it until {registry.removed[one]}"
            return Serving("removed", one, read_from=origin, why=why)
        if one in registry.moved:
            return Serving(
                "moved", one, read_from=origin, why=f"vLLM points to a plugin: {registry.moved[one]}"
            )
    why = "no registry has it" if name else "config.json names no architecture"
    return Serving("nobody", name, read_from=origin, why=why)
