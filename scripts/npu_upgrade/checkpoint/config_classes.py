"""The defaults and aliases that configuration classes give to a config.json, read from their source.

A config.json may leave out whatever its class has a default for, and may use the class's own names.
Transformers' and vLLM's classes are read by their syntax, never imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.sources.tree import SourceTree

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
_PLACES = ("src/transformers/models/", "transformers/models/", "vllm/transformers_utils/configs/")


@dataclass
class ConfigClass:
    """One class: ``defaults`` of :data:`KEYS`, ``aliases`` (another name -> the attribute it stands for),
    ``parts`` (attribute -> class of the sub-configuration), ``copies`` (attribute -> the one it is set to)
    and ``text`` (the attribute path to the text model's configuration, where the class says so itself)."""

    name: str
    model_type: str = ""
    bases: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)


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
        one.model_type = _literal(value) or ""
    elif name == "attribute_map":
        one.aliases = _literal(value) or {}
    elif name in ("sub_configs", "sub_configs_defaults") and isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        one.parts = {str(key.value): _last(part) for key, part in pairs if isinstance(key, ast.Constant)}
    else:
        _default(one, name, value)


def _default(one: ConfigClass, name: str, value: ast.expr | None) -> None:
    try:
        one.defaults[name] = None if value is None else _folded(value)
    except ValueError:
        return


def _folded(node: ast.expr) -> Any:
    """A literal, or a product of literals such as ``4096 * 32``; raises :class:`ValueError` for others."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _folded(node.left) * _folded(node.right)
    return ast.literal_eval(node)


def _given(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
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
    for base in reversed(one.bases):
        parent = known.get(base)
        if parent and parent is not one and depth < 8:
            parent = _with_bases(parent, known, depth + 1)
            merged.defaults |= parent.defaults
            merged.aliases |= parent.aliases
            merged.parts |= parent.parts
            merged.copies |= parent.copies
            merged.text = parent.text
    merged.defaults |= one.defaults
    merged.aliases |= one.aliases
    merged.parts |= one.parts
    merged.copies |= one.copies
    merged.text = one.text or merged.text
    return merged


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
