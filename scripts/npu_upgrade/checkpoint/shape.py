"""The numbers of a model as vLLM derives them from its configuration: heads, experts, lengths, layers.

Each rule is what vLLM 0.30 does with the loaded configuration; ``make bench-analyze`` compares both.
"""

from __future__ import annotations

from typing import Any

import msgspec

from npu_upgrade.checkpoint.config import Config, facts

_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
_KV_HEADS = (
    *("n_head_kv", "num_kv_heads", "num_key_value_heads"),
    *("multi_query_group_num", "num_attention_groups"),
)
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_EXPERTS_PER_TOKEN = (
    *("num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
    *("moe_topk", "moe_top_k"),
)
# rope types whose max_position_embeddings is the scaled length already
_SCALED = {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn"}
_STATE_ONLY = {"mamba", "falcon_mamba", "timm_wrapper", "medusa"}
_NO_LENGTH = 2048
_PLAIN_LAYERS = {"attention", "full_attention"}


class Shape(msgspec.Struct):
    """``head_size`` is that of the cache (rank and rope for latent attention); ``max_len`` in tokens."""

    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    experts: int
    experts_per_token: int
    mla: bool
    max_len: int


def shape_of(config: Config, tokenizer_length: int | None = None, encoder_length: int | None = None) -> Shape:
    """The shape of the text model. ``encoder_length`` is what a sentence-transformers folder says."""
    text = config.text
    mla, per_token = is_latent(config), text.first(_EXPERTS_PER_TOKEN, 0)
    return Shape(
        hidden_size=text.number("hidden_size"),
        layers=layers(text),
        heads=heads(config),
        kv_heads=kv_heads(config),
        head_size=head_size(config, mla),
        vocab_size=text.number("vocab_size"),
        experts=experts(text),
        experts_per_token=max(
            map(_whole, per_token if isinstance(per_token, list) else [per_token]), default=0
        ),
        mla=mla,
        max_len=max_len(text, tokenizer_length, encoder_length),
    )


def is_latent(config: Config) -> bool:
    """Whether the cache holds latents (MLA): a model type vLLM lists, and its rank is set."""
    text = config.text
    if text.model_type not in facts().latent_types:
        return False
    return text.get("head_dim" if text.has("compress_ratios") else "kv_lora_rank") is not None


def layers(text: Config) -> int:
    """Layers with a cache or state each; LongCat's have two attentions."""
    if text.model_type.startswith("longcat_flash") and "num_hidden_layers" not in text.given:
        return 2 * text.number("num_layers")
    return text.number("num_hidden_layers")


def heads(config: Config) -> int:
    """Attention heads of the text model."""
    decoder = _nested(config.text, "transf_decoder", "config_dict")
    return _whole(decoder.get("num_attention_heads")) or config.text.number("num_attention_heads")


def kv_heads(config: Config) -> int:
    """Heads of keys and values before any parallelism; as many as attention heads where none are named."""
    text = config.text
    if config.model_type in _STATE_ONLY:
        return 0
    is_falcon = config.model_type in ("falcon", "RefinedWeb", "RefinedWebModel")
    if is_falcon and text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    if config.model_type == "dbrx":
        return _whole(_nested(text, "attn_config").get("kv_n_heads")) or heads(config)
    if config.model_type == "nemotron-nas":
        return _from_blocks(text)
    value = _whole(text.first(_KV_HEADS))
    if not value and text.get("multi_query") is True:
        return 1
    # a class that leaves it None fills in the number of attention heads
    return max(value, text.number("num_global_key_value_heads")) or heads(config)


def _from_blocks(text: Config) -> int:
    blocks = text.get("block_configs")
    for block in blocks if isinstance(blocks, list) else []:
        attention = (block.get("attention") if isinstance(block, dict) else None) or {}
        if group := _whole(attention.get("n_heads_in_group")):
            return text.number("num_attention_heads") // group
    return text.number("num_attention_heads")


def head_size(config: Config, mla: bool) -> int:
    """The size of one cached head."""
    text = config.text
    if config.model_type in _STATE_ONLY:
        return 0
    if mla and not text.has("compress_ratios"):
        return text.number("kv_lora_rank") + text.number("qk_rope_head_dim")
    if config.model_type == "zamba2":
        return text.number("attention_head_dim")
    copied = text.known.copies.get("head_dim", "")
    size = text.number(copied) or max(text.number("head_dim"), text.number("global_head_dim"))
    if size > 0:
        return size
    if text.get("hidden_size_per_head") is not None:
        return text.number("hidden_size_per_head")
    count = heads(config)
    decoder = _nested(text, "transf_decoder", "config_dict")
    return (_whole(decoder.get("hidden_size")) or text.number("hidden_size")) // count if count else 0


def experts(text: Config) -> int:
    """Routed experts, 0 for a dense model; the most where layers differ."""
    value = text.first(_EXPERTS, 0)
    if isinstance(value, list):
        return _whole(value[0]) if value else 0
    blocks = text.get("block_configs")
    found = [_whole(value)]
    if not value and isinstance(blocks, list):
        moe = (block for block in blocks if isinstance(block, dict) and block.get("block_type") == "moe")
        found += [_whole(block.get("n_routed_experts")) for block in moe]
    return max(found)


def max_len(text: Config, tokenizer_length: int | None = None, encoder_length: int | None = None) -> int:
    """The length vLLM serves by default, in tokens."""
    given = [text.get(name) for name in _LENGTHS]
    known = [value for value in given if isinstance(value, (int, float)) and not isinstance(value, bool)]
    length: float = min(known, default=float("inf"))
    length = text.get("model_max_length") or length
    if tokenizer_length:
        length = min(length, tokenizer_length)
    if not isinstance(length, (int, float)) or length in (float("inf"), float("-inf")) or length != length:
        length = _NO_LENGTH
    ropes = rope_parameters(text)
    factor = 1.0
    if "gemma3" not in text.model_type:
        for rope in ropes:
            if rope_type(rope) not in _SCALED:
                factor = rope.get("factor", factor)
    length *= factor if isinstance(factor, (int, float)) else 1.0
    if encoder_length:
        length = encoder_length
    if any(rope_type(rope) == "longrope" for rope in ropes):
        length = text.number("original_max_position_embeddings") or length
    return int(length)


def rope_parameters(text: Config) -> list[dict[str, Any]]:
    """The rope's parameters, one object per kind of layer where they differ."""
    found = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(found, dict) or not found:
        return []
    nested = [value for value in found.values() if isinstance(value, dict)]
    if nested and len(nested) == sum(value is not None for value in found.values()):
        return nested
    return [found]


def rope_type(rope: dict[str, Any]) -> str:
    """The kind of scaling, by the name it has today."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return {"su": "longrope", "mrope": "default"}.get(kind, kind) if isinstance(kind, str) else "default"


def is_hybrid(config: Config, traits: list[str] | None) -> bool:
    """Whether layers with a state stand beside layers with a cache.

    By the class that serves it (``traits``), unless the configuration has attention only.
    """
    if traits is not None and "is_hybrid" not in traits:
        return False
    layers = config.get("layer_types")
    if traits is not None:
        return not isinstance(layers, list) or not all(kind in _PLAIN_LAYERS for kind in layers)
    kinds = set(layer_kinds(config))
    return "state" in kinds and len(kinds) > 1


def _nested(config: Config, *names: str) -> dict[str, Any]:
    value: Any = config.raw
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


MOST_LAYERS = 100_000
_KINDS = {
    "full": """full_attention attention full global_attention global hybrid dense full_attn
        deepseek_sparse_attention compressed_sparse_attention""",
    "sliding": """sliding_attention sliding local_attention local chunked_attention swa window_attention
        sliding_window_attention hybrid_sliding reference_sliding_attention""",
    "state": """linear_attention mamba mamba2 recurrent conv linear kda gdn lightning_attention
        gated_delta_net short_conv""",
    "none": "mlp moe none noop",
}
_NAMES = {name: kind for kind, names in _KINDS.items() for name in names.split()}
# every n-th layer is full where a configuration with a window says nothing (classes of Transformers 5.23)
_EVERY = {
    **dict.fromkeys(("gemma2", "gpt_oss", "vaultgemma"), 2),
    **dict.fromkeys(("cohere2", "olmo3", "exaone4", "exaone_moe"), 4),
    **dict.fromkeys(("gemma3n_text",), 5),
    **dict.fromkeys(("gemma3_text", "gemma4_text", "gemma4_unified_text"), 6),
}
_PATTERN = {"*": "full", "M": "state", "-": "none", "E": "none"}


def layer_kinds(config: Config) -> list[str]:
    """What every layer of the text model keeps, in order; empty when the number of layers is unknown.

    ``full``: keys and values of every token; ``sliding``: of a window; ``state``: one state per sequence
    (Mamba, linear attention); ``none``: no attention (a layer of experts or of an MLP alone).
    """
    text = config.text
    count = min(text.number("num_hidden_layers"), MOST_LAYERS)
    for rule in (_listed, _by_pattern, _by_blocks, _by_attn_type, _by_linear_config, _by_period):
        kinds = rule(config if rule is _by_attn_type else text)
        if kinds:
            return (kinds + [kinds[-1]] * count)[:count] if count else kinds
    if not sliding_window(text):
        return ["full"] * count
    first = text.number("max_window_layers") if text.get("use_sliding_window") is True else 0
    return ["sliding" if layer >= first else "full" for layer in range(count)]


def sliding_window(text: Config) -> int:
    """Tokens of the window, 0 where there is none or it is switched off."""
    if text.get("use_sliding_window") is False:
        return 0
    return text.number("sliding_window") or text.number("attention_chunk_size")


def _listed(text: Config) -> list[str]:
    names = text.get("layer_types") or text.get("layers_block_type") or text.get("block_types")
    if not isinstance(names, list) or not names or len(names) > MOST_LAYERS:
        return []
    if text.model_type == "zamba2":
        return ["full" if name == "hybrid" else "state" for name in names]
    return [_NAMES.get(name, "full") if isinstance(name, str) else "full" for name in names]


def _by_pattern(text: Config) -> list[str]:
    pattern = text.get("hybrid_override_pattern")
    return [_PATTERN.get(sign, "full") for sign in pattern[:MOST_LAYERS]] if isinstance(pattern, str) else []


def _by_blocks(text: Config) -> list[str]:
    blocks = text.get("block_configs")
    return [_block(block) for block in blocks[:MOST_LAYERS]] if isinstance(blocks, list) else []


def _block(block: Any) -> str:
    block = block if isinstance(block, dict) else {}
    attention = block.get("attention")
    if isinstance(attention, dict):
        return "none" if attention.get("no_op") or attention.get("replace_with_linear") else "full"
    return _NAMES.get(block.get("block_type", ""), "full")


def _by_attn_type(config: Config) -> list[str]:
    kinds = config.get("attn_type_list")
    return ["full" if kind == 1 else "state" for kind in kinds] if isinstance(kinds, list) else []


def _by_linear_config(text: Config) -> list[str]:
    linear = text.get("linear_attn_config")
    if not isinstance(linear, dict) or not isinstance(linear.get("kda_layers"), list):
        return []
    state = set(map(str, linear["kda_layers"]))  # counted from one
    count = min(text.number("num_hidden_layers"), MOST_LAYERS)
    return ["state" if str(layer + 1) in state else "full" for layer in range(count)]


def _by_period(text: Config) -> list[str]:
    """Every n-th layer is attention (or full attention) and the others are not."""
    count = min(text.number("num_hidden_layers"), MOST_LAYERS)
    interval = text.number("full_attention_interval")
    if interval or "linear_num_value_heads" in text.given:
        interval = interval or 4
        return ["state" if (layer + 1) % interval else "full" for layer in range(count)]
    if (period := text.number("attn_layer_period")) and text.has("mamba_d_state"):
        offset = text.number("attn_layer_offset")
        return ["full" if layer % period == offset else "state" for layer in range(count)]
    if text.number("state_size") and not text.number("num_attention_heads"):
        return ["state"] * count
    return _windows(text, count)


def _windows(text: Config, count: int) -> list[str]:
    """Windows with a full layer in between, by a pattern of letters or every n-th."""
    letters = text.get("sliding_window_pattern")
    if isinstance(letters, str) and letters and sliding_window(text):
        return ["sliding" if letters[layer % len(letters)] == "L" else "full" for layer in range(count)]
    pattern = text.number("sliding_window_pattern") or text.number("_sliding_window_pattern")
    pattern = pattern or _EVERY.get(text.model_type, 0)
    if pattern > 1 and sliding_window(text):
        return ["sliding" if (layer + 1) % pattern else "full" for layer in range(count)]
    return []
