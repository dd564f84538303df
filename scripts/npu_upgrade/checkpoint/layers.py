"""What each layer keeps for a sequence: a growing cache, a window of it, a fixed state, or nothing.

``full``: keys and values of every token; ``sliding``: of a window; ``state``: one state per sequence
(Mamba, linear attention); ``none``: no attention (a layer of experts or of an MLP alone).
"""

from __future__ import annotations

from typing import Any

from npu_upgrade.checkpoint.config import Config

MOST_LAYERS = 100_000
_NAMES = {
    **dict.fromkeys(("full_attention", "attention", "full", "global_attention", "global", "hybrid"), "full"),
    **dict.fromkeys(
        ("dense", "deepseek_sparse_attention", "compressed_sparse_attention", "full_attn"), "full"
    ),
    **dict.fromkeys(
        ("sliding_attention", "sliding", "local_attention", "local", "chunked_attention"), "sliding"
    ),
    **dict.fromkeys(("sliding_window_attention", "swa", "window_attention", "hybrid_sliding"), "sliding"),
    **{"reference_sliding_attention": "sliding"},
    **dict.fromkeys(
        ("linear_attention", "mamba", "mamba2", "recurrent", "conv", "linear", "kda", "gdn"), "state"
    ),
    **dict.fromkeys(("lightning_attention", "gated_delta_net", "short_conv"), "state"),
    **dict.fromkeys(("mlp", "moe", "none", "noop"), "none"),
}
# every n-th layer is full where a configuration with a window says nothing (classes of Transformers 5.23)
_EVERY = {
    **dict.fromkeys(("gemma2", "gpt_oss", "vaultgemma"), 2),
    **dict.fromkeys(("cohere2", "olmo3", "exaone4", "exaone_moe"), 4),
    **dict.fromkeys(("gemma3n_text",), 5),
    **dict.fromkeys(("gemma3_text", "gemma4_text", "gemma4_unified_text"), 6),
}
_PATTERN = {"*": "full", "M": "state", "-": "none", "E": "none"}


def layer_kinds(config: Config) -> list[str]:
    """The kind of every layer of the text model, in order; empty when the number of layers is unknown."""
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
    attention = block.get("attention") if isinstance(block, dict) else None
    if isinstance(attention, dict):
        return "none" if attention.get("no_op") or attention.get("replace_with_linear") else "full"
    return _NAMES.get(block.get("block_type", ""), "full") if isinstance(block, dict) else "full"


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
