"""All that can be said about a checkpoint without running it, in one value."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.config import Config, load
from npu_upgrade.checkpoint.finding import Finding, error, note, shortened, unsure
from npu_upgrade.checkpoint.layers import layer_kinds, sliding_window
from npu_upgrade.checkpoint.memory import CARDS, Parallel, estimated_weights, grouped, plan, possible
from npu_upgrade.checkpoint.module_tree import ModuleTree, Place
from npu_upgrade.checkpoint.parts import (
    Patterns,
    by_pattern,
    check_layers,
    check_numbers,
    check_ties,
    modalities,
    mtp,
    ties,
    wrong_values,
)
from npu_upgrade.checkpoint.quantization import Quantization, check_quantization, read_quantization
from npu_upgrade.checkpoint.reading import read_object
from npu_upgrade.checkpoint.serving import Serving, Sources, serving
from npu_upgrade.checkpoint.shape import Shape, is_hybrid, shape_of
from npu_upgrade.checkpoint.side_files import SideFiles, read_side_files
from npu_upgrade.checkpoint.strategy import choose
from npu_upgrade.checkpoint.weights import Weights, read_weights
from npu_upgrade.ground.errors import BadInput

# scales of caches and activations: vLLM renames them for every model
_SCALE = re.compile(r"[._](?:scale|scale_inv|offset|zero_point|quant_bias|deq_scale)$")
SCHEMA = "npu-upgrade/model-analysis/1"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_QUANTIZED_BYTES = {"fp8": 1.0, "modelopt": 1.0, "ascend": 1.0, "awq": 0.55, "gptq": 0.55, "mxfp4": 0.55}
SCHEMES = {"A2": (1, 2, 4, 8), "A3": (1, 2, 4, 8, 16), "A2-32G": (1, 2, 4, 8)}


@dataclass
class Analysis:
    """The parts of an analysis; :meth:`as_json` is what is written down and printed."""

    folder: Path
    config: Config
    shape: Shape
    weights: Weights
    quantization: Quantization
    served: Serving
    side: SideFiles
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last part of the folder; of a cache's snapshot, the model's."""
        parts = self.folder.absolute().parts
        cached = [part for part in parts if part.startswith("models--")]
        return cached[-1].rpartition("--")[2] if cached else parts[-1]

    @property
    def properties(self) -> dict[str, Any]:
        """What vLLM's own configuration answers too, by the oracle's names."""
        has = self.served.traits
        return self.shape.as_json() | {
            "architecture": self.served.architecture,
            "model_type": self.config.model_type,
            "text_model_type": self.config.text.model_type or None,
            "hybrid": is_hybrid(self.config, has),
            "attention_free": "is_attention_free" in (has or []),
            "multimodal": "supports_multimodal" in has if has is not None else bool(self.facts["modalities"]),
            "quantization": "" if self.quantization.method == "ascend" else self.quantization.method,
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": str(self.folder),
            "name": self.name,
            "properties": self.properties,
            "attention": self.facts["attention"],
            "serving": self.served.as_json(),
            "quantization": self.quantization.as_json(),
            "weights": {
                "shards": len(self.weights.shards),
                "tensors": len(self.weights.tensors),
                "bytes": self.weights.bytes,
                "dtypes": dict(Counter(one.dtype for one in self.weights.tensors.values()).most_common()),
                "index": self.weights.index is not None,
                "other_formats": self.weights.other[:10],
            },
            "files": self.side.as_json(),
            **{
                key: self.facts[key] for key in ("mtp", "modalities", "tied", "mapping", "memory", "strategy")
            },
            "findings": [one.as_json() for one in self.findings],
        }


def analyse(folder: Path, sources: Sources, options: dict[str, Any] | None = None) -> Analysis:
    """Analyse a folder. ``options``: ``utilisation``, ``reserve`` (bytes) for the memory plan.

    Raises :class:`BadInput` when the folder holds neither a configuration nor weights.
    """
    config, findings = read_config(folder)
    weights = read_weights(folder)
    if not config.raw and not findings and not weights.shards and not weights.other:
        raise BadInput(
            f"{folder} holds no config.json and no weights",
            expected="the folder of a checkpoint",
            try_="name the folder that has config.json in it",
        )
    if not config.raw and not findings:
        findings.append(unsure("config-missing", "there is no config.json: what serves it cannot be told"))
    findings += weights.findings + wrong_values(config)
    if not weights.shards and not weights.other:
        findings.append(
            note("weights-missing", "there are no weights here: the configuration alone was judged")
        )
    quantization = _quantization(folder, config, weights, findings)
    side = read_side_files(folder, config)
    findings += side.findings
    served = serving(config, sources)
    found = Analysis(folder, config, _shape(config, served, side), weights, quantization, served, side)
    _add_facts(found, sources, findings, options or {})
    found.findings = _unique(findings)
    return found


def read_config(folder: Path) -> tuple[Config, list[Finding]]:
    """The configuration: ``config.json``, or Mistral's ``params.json`` where there is no other."""
    path = folder / "config.json"
    if path.exists() or path.is_symlink():
        raw, found = read_object(path)
        if not raw and not found:
            found = [error("config-empty", "config.json is an empty object", "config.json")]
        return load(raw), found
    if (folder / "params.json").exists():
        raw, found = read_object(folder / "params.json")
        return load(_from_params(raw)), found
    return load({}), []


_PARAMS = {
    **{"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    **{"n_kv_heads": "num_key_value_heads", "hidden_dim": "intermediate_size", "norm_eps": "rms_norm_eps"},
    **{"head_dim": "head_dim", "vocab_size": "vocab_size", "max_seq_len": "max_position_embeddings"},
}


def _from_params(raw: dict[str, Any]) -> dict[str, Any]:
    config = {_PARAMS.get(key, key): value for key, value in raw.items()}
    config.setdefault("max_position_embeddings", 128_000)
    kind = "pixtral" if raw.get("vision_encoder") else ("mixtral" if raw.get("moe") else "mistral")
    names = {
        "mistral": "MistralForCausalLM",
        "mixtral": "MixtralForCausalLM",
        "pixtral": "PixtralForConditionalGeneration",
    }
    return {"architectures": [names[kind]], "model_type": "mistral" if kind == "pixtral" else kind} | config


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
    described: dict[str, dict[str, Any] | None] = {}
    for name in ("hf_quant_config.json", "quant_model_description.json"):
        described[name] = None
        if (folder / name).exists():
            described[name], problems = read_object(folder / name)
            findings += problems
    found = read_quantization(
        config, described["hf_quant_config.json"], described["quant_model_description.json"]
    )
    if weights.complete:
        check_quantization(found, weights.tensors, described["quant_model_description.json"])
    findings += found.findings
    return found


def _add_facts(found: Analysis, sources: Sources, findings: list[Finding], options: dict[str, Any]) -> None:
    tensors, config = found.weights.tensors, found.config
    patterns = by_pattern(found.weights.names)
    found.facts["mtp"] = mtp(config, patterns)
    found.facts["modalities"] = modalities(config, patterns, found.side.video)
    found.facts["tied"] = ties(config, patterns)
    found.facts["attention"] = attention(config, found.shape, found.served.traits)
    if found.weights.complete and config.raw:
        findings += check_layers(config, tensors) + check_numbers(config, tensors)
        generates = found.served.kind in ("text_generation", "multimodal") and found.served.by == "native"
        lists_head = found.served.traits is not None and "is_pooling_model" not in found.served.traits
        is_causal = found.served.architecture.endswith(("ForCausalLM", "LMHeadModel"))
        findings += check_ties(found.facts["tied"], tensors, generates and lists_head and is_causal)
    if found.facts["mtp"]["state"] == "checkpoint missing":
        count = found.facts["mtp"]["layers"]
        what = f"config.json announces {count} layers of multi-token prediction, no tensor is of one"
        findings.append(note("mtp-missing", what))
    found.facts["mapping"] = mapping(found, patterns, findings)
    found.facts["memory"] = memory(found, options)
    found.facts["strategy"] = choose(
        found.served,
        found.quantization,
        sources.ascend,
        found.facts["mapping"],
        found.facts["attention"]["kind"],
    )
    if config.raw and not found.side.tokenizer and found.weights.shards:
        findings.append(note("tokenizer-missing", "there is no tokenizer here"))
    if found.facts["modalities"] and not found.side.processor and found.weights.shards:
        findings.append(
            note("processor-missing", "a model of several modalities without a preprocessor_config.json")
        )


def attention(config: Config, shape: Shape, traits: list[str] | None) -> dict[str, Any]:
    """``kind``: mha, gqa, mqa, mla, dsa, hybrid, state or none; and how many layers are of which kind."""
    kinds = Counter(layer_kinds(config))
    heads = "mla" if shape.mla else _by_heads(shape)
    if shape.mla and config.text.number("index_topk"):
        heads = "dsa"
    kind = heads
    if is_hybrid(config, traits) and kinds["state"]:
        kind = "hybrid"
    elif kinds and set(kinds) <= {"state", "none"}:
        kind = "state"
    return {"kind": kind, "heads": heads, "layers": dict(kinds), "window": sliding_window(config.text)}


def _by_heads(shape: Shape) -> str:
    if not shape.kv_heads or not shape.heads:
        return "none"
    return (
        "mqa"
        if shape.kv_heads == 1 and shape.heads > 1
        else ("mha" if shape.kv_heads >= shape.heads else "gqa")
    )


def mapping(found: Analysis, patterns: Patterns, findings: list[Finding]) -> dict[str, Any]:
    """Each pattern of tensor names (numbers as ``*``), its name in vLLM's model, and whether that exists."""
    served = found.served
    if not served.model_class or not served.reader:
        why = "vLLM's source was not given" if served.by in ("native", "ascend", "converted") else served.why
        return {
            "judged": False,
            "why": why,
            "patterns": [{"checkpoint": key, "tensors": len(names)} for key, names in patterns.items()][:400],
        }
    tree = ModuleTree(served.reader, served.model_class)
    rows, missing = [], []
    for pattern, names in patterns.items():
        place = _placed(tree, names[0], found)
        state = place.state
        rows.append(
            {
                "checkpoint": pattern,
                "tensors": len(names),
                "state": state,
                "model": _NUMBER.sub("*", place.name),
            }
        )
        if state == "missing":
            missing.append((pattern, _NUMBER.sub("*", place.at)))
    if missing:
        what = f"{len(missing)} patterns of tensors have no place in {served.cls}: " + shortened(
            [f"{pattern} (no {at})" for pattern, at in missing], 3
        )
        # a class that pools drops what it has no place for
        severity = note if served.by == "converted" else error
        findings.append(severity("name-unmapped", what, missing[0][0]))
    states = Counter(row["state"] for row in rows)
    return {"judged": True, "missing": len(missing), "states": dict(states), "patterns": rows[:400]}


def _placed(tree: ModuleTree, name: str, found: Analysis) -> Place:
    """Where a tensor goes; a name without a place may be a draft's, a scale or a head that is tied."""
    place = tree.place(name)
    pools = found.served.by == "converted" or found.served.architecture != found.served.cls
    if place.state == "missing" and pools:  # a model that pools may be stored without its head's prefix
        place = min(place, tree.place(f"model.{name}"), key=lambda one: one.state == "missing")
    if place.state != "missing":
        return place
    if _SCALE.search(name) or _is_mtp(name, found):
        place.state = "scale" if _SCALE.search(name) else "mtp"
    elif found.facts["tied"]["tied"] and name == found.facts["tied"]["head"]:
        place.state = "tied"
    return place


def _is_mtp(name: str, found: Analysis) -> bool:
    return bool(mtp(found.config, by_pattern([name]))["tensors"])


def memory(found: Analysis, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The plan for the cards and the cuts that are possible."""
    shape, tensors = found.shape, found.weights.tensors
    if not shape.layers or shape.layers > 10_000 or not shape.hidden_size:
        return []
    estimate = (
        0
        if tensors
        else estimated_weights(found.config, shape, _QUANTIZED_BYTES.get(found.quantization.method))
    )
    groups = grouped(tensors)
    extra = {key: options[key] for key in ("utilisation", "reserve") if options.get(key) is not None}
    rows = []
    for card, sizes in SCHEMES.items():
        cuts = [Parallel(tp, ep=bool(shape.experts) and tp > 1) for tp in sizes]
        cuts += [Parallel(CARDS[card].tp, 2, bool(shape.experts))]
        for cut in cuts:
            if not possible(shape, cut):
                rows.append(plan(shape, found.config, groups, CARDS[card], cut, estimate=estimate, **extra))
    return rows


def _unique(findings: list[Finding]) -> list[Finding]:
    order = {"error": 0, "unsure": 1, "note": 2}
    return sorted(dict.fromkeys(findings), key=lambda one: order[one.severity])
