"""Derive the facts of models that the skill ships: ``python -m bench.model_facts`` writes them.

What configuration classes default to, and which architectures vLLM registers with which abilities. They
answer where no vLLM is at hand; with one, its own source does. Transformers' and vLLM's classes are read by
their syntax, never imported. ``make bench-analyze`` fails when the file is stale.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from npu_upgrade.checkpoint.config import FACTS, Architecture, ConfigFacts, Facts
from npu_upgrade.checkpoint.registry import ModelSources, literal, read_registry
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.sources.tree import SourceTree, open_source

TRANSFORMERS = "pypi:transformers==5.23.0"
VLLM = "pypi:vllm==0.30.0"
_CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"
_CONFIG = "vllm/transformers_utils/config.py"
_AUTO = "src/transformers/models/auto/modeling_auto.py"
_PLACES = ("src/transformers/models/", "transformers/models/", "vllm/transformers_utils/configs/")
_FIELDS = ("defaults", "aliases", "parts", "copies")
# what the analysis reads of a configuration, and so the only defaults worth keeping
_KEYS = """
attention_chunk_size attention_head_dim attn_layer_offset attn_layer_period attn_type_list block_configs
compress_ratios d_model decoder_layers encoder_layers first_k_dense_replace full_attention_interval
head_dim hidden_size hidden_size_per_head hybrid_override_pattern index_head_dim index_topk
intermediate_size is_encoder_decoder kv_lora_rank layer_types layers_block_type linear_attn_config
linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads
linear_value_head_dim mamba_d_conv mamba_d_head mamba_d_state mamba_expand mamba_n_groups mamba_n_heads
max_position_embeddings max_seq_len max_seq_length max_sequence_length max_target_positions
max_window_layers model_max_length moe_intermediate_size moe_num_experts moe_top_k moe_topk
mtp_num_hidden_layers multi_query multi_query_group_num n_embd n_head n_head_kv n_layer n_positions
n_routed_experts n_shared_experts new_decoder_architecture num_attention_groups num_attention_heads
num_experts num_experts_per_tok num_experts_per_token num_hidden_layers num_key_value_heads num_kv_heads
num_local_experts num_mtp_modules num_nextn_predict_layers original_max_position_embeddings q_lora_rank
qk_nope_head_dim qk_rope_head_dim seq_len seq_length sliding_window sliding_window_pattern
tie_word_embeddings top_k_experts use_sliding_window v_head_dim video_token_id video_token_index vocab_size
"""
KEYS = frozenset(_KEYS.split())


def derive(transformers: str = TRANSFORMERS, vllm: str = VLLM) -> str:
    """The text of the facts of these two sources."""
    library, engine = open_source(transformers), open_source(vllm)
    own, common = read_classes(engine), read_classes(library)
    types = {one.model_type: name for name, one in common.items() if one.model_type}
    types |= {kind: name for kind, name in config_registry(engine.read(_CONFIG)).items() if name in own}
    classes = common | own
    registry, models = read_registry(engine), ModelSources(engine)
    architectures = {}
    for name, (module, cls) in registry.models.items():
        found = models.find(module, cls)
        has = models.traits(found) if found else None
        architectures[name] = Architecture(module, cls, registry.kinds[name], has)
    facts = Facts(
        read_from=[transformers, vllm],
        configs={k: _facts(classes[name], classes) for k, name in types.items() if name in classes},
        architectures=architectures,
        base_models=auto_models(library.read(_AUTO)),
        transformers=frozenset(wrapped_models(library) - registry.models.keys()),
        latent_types=frozenset(latent_types(engine.read(_CONVERTOR))),
        removed=registry.removed,
        moved=registry.moved,
    )
    return _as_text(facts)


@dataclass
class ConfigClass:
    """One class, with fields as in :class:`ConfigFacts`, but the sub-configurations' classes as ``parts``."""

    name: str
    model_type: str = ""
    bases: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)


def _facts(one: ConfigClass, classes: dict[str, ConfigClass]) -> ConfigFacts:
    """Only what the analysis reads."""
    wanted = KEYS | {one.aliases.get(key, key) for key in KEYS}
    parts = {key: classes[name].model_type for key, name in one.parts.items() if name in classes}
    return ConfigFacts(
        {key: value for key, value in one.defaults.items() if key in wanted},
        {key: value for key, value in one.aliases.items() if {key, value} & KEYS},
        {key: kind for key, kind in parts.items() if kind},
        {key: value for key, value in one.copies.items() if key in KEYS},
        one.text,
    )


def config_registry(source: str) -> dict[str, str]:
    """Model type -> class of vLLM's own configuration registry."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="_CONFIG_REGISTRY"), value=ast.Call(keywords=keywords)):
                for word in keywords:
                    value = literal(word.value)
                    found |= {word.arg: value} if word.arg else value or {}
    return found


def auto_models(source: str) -> dict[str, str]:
    """Model type -> base model class, what vLLM takes when a config.json names no architecture."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="MODEL_MAPPING_NAMES")], value=value):
                pairs = [literal(one) for one in ast.walk(value) if isinstance(one, ast.Tuple)]
                return dict(one for one in pairs if one and len(one) == 2 and isinstance(one[1], str))
    return {}


def wrapped_models(tree: SourceTree) -> set[str]:
    """Model classes of Transformers whose attention can be replaced, so that vLLM can run them itself."""
    found: set[str] = set()
    for path in tree.list("src/transformers/models/"):
        if path.rpartition("/")[2].startswith("modeling_"):
            text = tree.read(path)
            own_attention = re.search(r"^class \w*Attention\w*\(nn\.Module\):", text, re.MULTILINE)
            replaceable = not own_attention or "ALL_ATTENTION_FUNCTIONS.get_interface(" in text
            if replaceable or "_supports_attention_backend = True" in text:
                exported = re.search(r"^__all__ = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
                found |= set(re.findall(r"\w+", exported[1])) if exported else set()
    kinds = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model", "ForSequenceClassification")
    return {name for name in found if name.endswith(kinds) and not name.endswith("PreTrainedModel")}


def latent_types(source: str) -> set[str]:
    """The model types vLLM runs with latent attention (MLA) when they have its ranks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "is_deepseek_mla":
            lists = [item for item in ast.walk(node) if isinstance(item, ast.Tuple) and len(item.elts) > 4]
            return {kind for item in lists for kind in ast.literal_eval(item)}
    return set()


def read_classes(tree: SourceTree) -> dict[str, ConfigClass]:
    """The configuration classes of a transformers or vLLM source by name, with what their bases bring."""
    found: dict[str, ConfigClass] = {}
    for prefix in _PLACES:
        for path in tree.list(prefix):
            name = path.rpartition("/")[2]
            if name.endswith(".py") and (name.startswith("configuration_") or prefix.startswith("vllm")):
                found |= {one.name: one for one in classes_of(tree.read(path))}
    return {name: _with_bases(one, found) for name, one in found.items()}


def classes_of(source: str) -> Iterator[ConfigClass]:
    """The configuration classes of one module, each as written (bases not followed)."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            yield _read(node)


def _read(node: ast.ClassDef) -> ConfigClass:
    one = ConfigClass(node.name, bases=tuple(_last(base) for base in node.bases))
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                _take(one, name, value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                _take(one, name, value)
            case ast.FunctionDef(name="__init__", args=arguments):
                for name, value in _given(arguments):
                    _default(one, name, value)
                one.copies |= _copies(statement)
            case ast.FunctionDef(name="__post_init__"):
                one.copies |= _copies(statement)
            case ast.FunctionDef(name="get_text_config"):
                one.text = _text_path(statement)
    return one


def _take(one: ConfigClass, name: str, value: ast.expr) -> None:
    if name == "model_type":
        one.model_type = literal(value) or ""
    elif name == "attribute_map":
        one.aliases = literal(value) or {}
    elif name in ("sub_configs", "sub_configs_defaults") and isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        one.parts = {str(key.value): _last(part) for key, part in pairs if isinstance(key, ast.Constant)}
    else:
        _default(one, name, value)


def _default(one: ConfigClass, name: str, value: ast.expr) -> None:
    try:
        one.defaults[name] = _folded(value)
    except ValueError:
        return


def _folded(node: ast.expr) -> Any:
    """A literal, or a product of literals such as ``4096 * 32``; raises :class:`ValueError` for others."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _folded(node.left) * _folded(node.right)
    return ast.literal_eval(node)


def _given(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    plain = arguments.posonlyargs + arguments.args
    for argument, value in zip(reversed(plain), reversed(arguments.defaults), strict=False):
        yield argument.arg, value
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if value is not None:
            yield argument.arg, value


def _copies(method: ast.FunctionDef) -> dict[str, str]:
    """``self.a = self.b`` (or ``= b``, an argument) that no condition guards."""
    found: dict[str, str] = {}
    for statement in method.body:
        match statement:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.Attribute(value=ast.Name(id="self"), attr=other) | ast.Name(id=other),
            ) if name != other:
                found[name] = other
    return found


def _text_path(method: ast.FunctionDef) -> list[str]:
    """``thinker_config`` of ``return self.thinker_config.get_text_config()``; empty for anything else."""
    for statement in method.body:
        value = statement.value if isinstance(statement, ast.Return) else None
        while isinstance(value, (ast.Call, ast.Attribute)):
            if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
                return [value.attr] if value.value.id == "self" else []
            value = value.func if isinstance(value, ast.Call) else value.value
    return []


def _with_bases(one: ConfigClass, known: dict[str, ConfigClass], depth: int = 0) -> ConfigClass:
    merged = ConfigClass(one.name, one.model_type, one.bases)
    parents = [known[base] for base in reversed(one.bases) if base in known and depth < 8]
    for source in [*(_with_bases(each, known, depth + 1) for each in parents if each is not one), one]:
        for name in _FIELDS:
            getattr(merged, name).update(getattr(source, name))
        merged.text = source.text or merged.text
    return merged


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _as_text(facts: Facts) -> str:
    """JSON with a line for each entry of each table, so that a change is a line."""
    parts = []
    for name, value in sorted(msgspec.to_builtins(facts).items()):
        if isinstance(value, dict):
            lines, ends = [f"{json.dumps(key)}: {json.dumps(value[key])}" for key in sorted(value)], "{}"
        else:
            rows = sorted(value) if isinstance(getattr(facts, name), frozenset) else value
            lines, ends = [json.dumps(item) for item in rows], "[]"
        parts.append(f"{json.dumps(name)}: {ends[0]}\n" + ",\n".join(lines) + f"\n{ends[1]}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    write_atomic(FACTS, derive())
    print(f"{FACTS} is written from {TRANSFORMERS} and {VLLM}")
