"""All that can be said about a checkpoint without running it."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.checkpoint.analysis_file import (
    SCHEMA,
    AnalysisFile,
    Attention,
    Mapping,
    Pattern,
    Properties,
    WeightFiles,
)
from npu_upgrade.checkpoint.config import Config, load
from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.memory import (
    CARDS,
    RESERVE,
    UTILISATION,
    Groups,
    Parallel,
    Plan,
    estimated_weights,
    grouped,
    plan,
    possible,
)
from npu_upgrade.checkpoint.module_tree import ModuleTree, Place
from npu_upgrade.checkpoint.parts import (
    Patterns,
    Tied,
    Tower,
    by_pattern,
    check_layers,
    check_numbers,
    check_ties,
    modalities,
    mtp,
    pattern_of,
    ties,
    wrong_values,
)
from npu_upgrade.checkpoint.quantization import Quantization, check_quantization, read_quantization
from npu_upgrade.checkpoint.reading import SEVERITIES, Finding, error, note, read_object, unsure
from npu_upgrade.checkpoint.serving import Serving, Sources, choose, serving
from npu_upgrade.checkpoint.shape import Shape, is_hybrid, layer_kinds, shape_of, sliding_window
from npu_upgrade.checkpoint.side_files import Files, SideFiles, read_side_files
from npu_upgrade.checkpoint.weights import Weights, read_weights
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.tables import shortened

# scales of caches and activations: vLLM renames them for every model
_SCALE = re.compile(r"[._](?:scale|scale_inv|offset|zero_point|quant_bias|deq_scale)$")
_QUANTIZED_BYTES = {"fp8": 1.0, "modelopt": 1.0, "ascend": 1.0, "awq": 0.55, "gptq": 0.55, "mxfp4": 0.55}
_CUTS = {"A2": (1, 2, 4, 8), "A3": (1, 2, 4, 8, 16), "A2-32G": (1, 2, 4, 8)}
_MOST_PATTERNS = 400


@dataclass(frozen=True)
class Analysis:
    """What was read of a checkpoint, and the ``file`` that is made of it."""

    folder: Path
    config: Config
    shape: Shape
    weights: Weights
    side: SideFiles
    file: AnalysisFile


def analyse(
    folder: Path,
    sources: Sources,
    utilisation: float = UTILISATION,
    reserve: int = RESERVE,
    like: Likeness | None = None,
) -> Analysis:
    """Analyse a folder; ``utilisation`` and ``reserve`` (bytes) are for the memory plan.

    ``like``: the family that a plan says it computes, in whose words its configuration is then read.
    Raises :class:`BadInput` when the folder holds neither a configuration nor weights.
    """
    config, findings = read_config(folder)
    weights = read_weights(folder)
    has_weights = bool(weights.shards or weights.other)
    if not config.raw and not findings and not has_weights:
        raise BadInput(
            f"{folder} holds no config.json and no weights",
            expected="the folder of a checkpoint",
            try_="name the folder that has config.json in it",
        )
    if not config.raw and not findings:
        findings.append(unsure("config-missing", "there is no config.json: what serves it is unknown"))
    findings += weights.findings + wrong_values(config)
    if not has_weights:
        what = "there are no weights here: the configuration alone was judged"
        findings.append(unsure("weights-missing", what))
    quantization = _quantization(folder, config, weights, findings)
    side = read_side_files(folder, config)
    findings += side.findings
    served, modules = serving(config, sources)
    model_type = config.model_type
    if like:
        config = like.in_its_words(config)
    shape = _shape(config, served, side)
    patterns = by_pattern(weights.names)
    predicted, tied = mtp(config, patterns), ties(config, patterns)
    attention = _attention(config, shape, served.traits)
    if weights.complete and config.raw:
        findings += check_layers(config, weights.tensors) + check_numbers(config, weights.tensors)
        findings += check_ties(tied, weights.tensors, _has_head(served))
    if predicted.state == "checkpoint missing":
        what = (
            f"config.json announces {predicted.layers} layers of multi-token prediction, no tensor is of one"
        )
        findings.append(note("mtp-missing", what))
    places = _mapping(config, served, modules, tied, patterns, findings)
    towers = modalities(config, patterns, side.video)
    if config.raw and weights.shards and not side.tokenizer:
        findings.append(note("tokenizer-missing", "there is no tokenizer here"))
    if towers and weights.shards and not side.processor:
        what = "a model of several modalities without a preprocessor_config.json"
        findings.append(note("processor-missing", what))
    per_weight = _QUANTIZED_BYTES.get(quantization.method)
    parts = folder.absolute().parts
    cached = [part for part in parts if part.startswith("models--")]  # a snapshot of the hub's cache
    file = AnalysisFile(
        schema=SCHEMA,
        model=str(folder),
        name=cached[-1].rpartition("--")[2] if cached else parts[-1],
        properties=_properties(config, model_type, shape, served, quantization, towers),
        attention=attention,
        serving=served,
        quantization=quantization,
        weights=WeightFiles(
            len(weights.shards),
            len(weights.tensors),
            weights.bytes,
            dict(Counter(one.dtype for one in weights.tensors.values()).most_common()),
            weights.index is not None,
            weights.other[:10],
        ),
        files=Files(**{name: getattr(side, name) for name in Files.__struct_fields__}),
        mtp=predicted,
        modalities=towers,
        tied=tied,
        mapping=places,
        memory=_memory(config, shape, grouped(weights.tensors), per_weight, utilisation, reserve),
        strategy=choose(served, quantization, sources.ascend, places.missing or 0, attention.kind),
        findings=sorted(dict.fromkeys(findings), key=lambda one: SEVERITIES.index(one.severity)),
    )
    return Analysis(folder, config, shape, weights, side, file)


def _properties(
    config: Config,
    model_type: str,
    shape: Shape,
    served: Serving,
    quantization: Quantization,
    towers: dict[str, Tower],
) -> Properties:
    has = served.traits
    return Properties(
        **msgspec.structs.asdict(shape),
        architecture=served.architecture,
        model_type=model_type,
        text_model_type=config.text.model_type or None,
        hybrid=is_hybrid(config, has),
        attention_free="is_attention_free" in (has or []),
        multimodal="supports_multimodal" in has if has is not None else bool(towers),
        quantization="" if quantization.method == "ascend" else quantization.method,
    )


def read_config(folder: Path) -> tuple[Config, list[Finding]]:
    """The configuration: ``config.json``, or Mistral's ``params.json`` where there is no other."""
    if os.path.lexists(folder / "config.json"):
        raw, found = read_object(folder / "config.json")
        if not raw and not found:
            found = [error("config-empty", "config.json is an empty object", "config.json")]
        return load(raw), found
    if not (folder / "params.json").exists():
        return load({}), []
    raw, found = read_object(folder / "params.json")
    config = {_PARAMS.get(key, key): value for key, value in raw.items()}
    config.setdefault("max_position_embeddings", 128_000)
    kind = "pixtral" if raw.get("vision_encoder") else ("mixtral" if raw.get("moe") else "mistral")
    return load(
        {"architectures": [_MISTRALS[kind]], "model_type": kind.replace("pixtral", "mistral")} | config
    ), found


_PARAMS = {
    **{"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    **{"n_kv_heads": "num_key_value_heads", "hidden_dim": "intermediate_size", "norm_eps": "rms_norm_eps"},
    **{"head_dim": "head_dim", "vocab_size": "vocab_size", "max_seq_len": "max_position_embeddings"},
}
_MISTRALS = {
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "pixtral": "PixtralForConditionalGeneration",
}


def _shape(config: Config, served: Serving, side: SideFiles) -> Shape:
    absolute = config.raw.get("position_embedding_type") == "absolute"
    pools = "is_pooling_model" in (served.traits or []) or served.by == "converted"
    shape = shape_of(config, side.tokenizer_length if absolute and pools else None, side.encoder_length)
    if served.by == "transformers":
        shape.mla = config.text.get("kv_lora_rank") is not None
    if config.text.get("is_causal") is False:
        shape.mla = False
    return shape


def _quantization(folder: Path, config: Config, weights: Weights, findings: list[Finding]) -> Quantization:
    described: list[dict[str, Any] | None] = []
    for name in ("hf_quant_config.json", "quant_model_description.json"):
        raw, problems = read_object(folder / name) if (folder / name).exists() else (None, [])
        described.append(raw)
        findings += problems
    found, problems = read_quantization(config, *described)
    findings += problems
    findings += check_quantization(found, weights.tensors, described[1]) if weights.complete else []
    return found


def _has_head(served: Serving) -> bool:
    """Whether the class that serves generates text, and so needs an output head."""
    generates = served.kind in ("text_generation", "multimodal") and served.by == "native"
    pools = served.traits is None or "is_pooling_model" in served.traits
    return generates and not pools and served.architecture.endswith(("ForCausalLM", "LMHeadModel"))


def _attention(config: Config, shape: Shape, traits: list[str] | None) -> Attention:
    kinds = Counter(layer_kinds(config))
    if shape.mla:
        heads = "dsa" if config.text.number("index_topk") else "mla"
    elif not shape.kv_heads or not shape.heads:
        heads = "none"
    elif shape.kv_heads >= shape.heads:
        heads = "mha"
    else:
        heads = "mqa" if shape.kv_heads == 1 else "gqa"
    kind = heads
    if is_hybrid(config, traits) and kinds["state"]:
        kind = "hybrid"
    elif kinds and set(kinds) <= {"state", "none"}:
        kind = "state"
    return Attention(kind, heads, dict(kinds), sliding_window(config.text))


def _mapping(
    config: Config,
    served: Serving,
    modules: ModuleTree | None,
    tied: Tied,
    patterns: Patterns,
    findings: list[Finding],
) -> Mapping:
    """Each pattern of tensor names in the modules of the class that serves them."""
    if modules is None:
        known = served.by in ("native", "ascend", "converted")
        why = "vLLM's source was not given" if known else served.why
        rows = [Pattern(pattern, len(names)) for pattern, names in patterns.items()]
        return Mapping(False, rows[:_MOST_PATTERNS], why=why)
    rows, missing = [], []
    for pattern, names in patterns.items():
        place = _placed(modules, names[0], config, served, tied)
        rows.append(Pattern(pattern, len(names), place.state, pattern_of(place.name)))
        if place.state == "missing":
            missing.append(f"{pattern} (no {pattern_of(place.at)})")
    if missing:
        what = f"{len(missing)} patterns of tensors have no place in {served.cls}: {shortened(missing, 3)}"
        # a class that pools drops what it has no place for
        severity = note if served.by == "converted" else error
        findings.append(severity("name-unmapped", what, missing[0].partition(" ")[0]))
    states = dict(Counter(row.state or "" for row in rows))
    return Mapping(True, rows[:_MOST_PATTERNS], missing=len(missing), states=states)


def _placed(modules: ModuleTree, name: str, config: Config, served: Serving, tied: Tied) -> Place:
    """Where a tensor goes; a name without a place may be a draft's, a scale or a head that is tied."""
    place = modules.place(name)
    pools = served.by == "converted" or served.architecture != served.cls
    if place.state == "missing" and pools:  # a model that pools may be stored without its head's prefix
        place = min(place, modules.place(f"model.{name}"), key=lambda one: one.state == "missing")
    if place.state != "missing":
        return place
    if _SCALE.search(name):
        place.state = "scale"
    elif mtp(config, by_pattern([name])).tensors:
        place.state = "mtp"
    elif tied.tied and name == tied.head:
        place.state = "tied"
    return place


def _memory(
    config: Config, shape: Shape, groups: Groups, per_weight: float | None, utilisation: float, reserve: int
) -> list[Plan]:
    """The plan for the cards and the cuts that are possible; ``per_weight``: bytes, where no file says it."""
    if not shape.layers or shape.layers > 10_000 or not shape.hidden_size:
        return []
    estimate = 0 if groups else estimated_weights(config, shape, per_weight)
    rows = []
    for card, sizes in _CUTS.items():
        cuts = [Parallel(tp, ep=bool(shape.experts) and tp > 1) for tp in sizes]
        for cut in [*cuts, Parallel(CARDS[card].tp, 2, bool(shape.experts))]:
            if not possible(shape, cut):
                rows.append(plan(shape, config, groups, CARDS[card], cut, utilisation, reserve, estimate))
    return rows
