"""How much memory a model needs per device: weights by the real headers, cache by the kind of attention.

Bytes throughout. What is sharded: experts over expert-parallel ranks, projections over tensor-parallel
ranks, keys and values over at most as many ranks as there are heads; norms, routers and the compressed
projections of latent attention are whole on every rank. Layers are split evenly over pipeline stages.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from npu_upgrade.model.config import Config
from npu_upgrade.model.layers import layer_kinds, sliding_window
from npu_upgrade.model.safetensors import Tensor
from npu_upgrade.model.shape import Shape

GIB = 1024**3
BLOCK = 128  # tokens of a cache block on Ascend
RESERVE = 3 * GIB  # activations, graphs and communication buffers: an assumption, --reserve-gib changes it
BASELINE_LEN, BASELINE_SEQS = 128 * 1024, 16
_BYTES = {"float32": 4, "float": 4, "float64": 8, "float16": 2, "half": 2, "bfloat16": 2, "float8_e4m3fn": 1}
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d{1,6})\.")
_EXPERT = re.compile(r"\.experts?\.(?:\d+\.)?|\.experts_")
_WHOLE = re.compile(
    r"(?:norm|layernorm|ln_\w+|gate\.weight|gate\.e_score_correction_bias|router|q_a_proj|kv_a_proj\w*|indexer|"
    r"wkv_a|wq_a|fused_qkv_a_proj|rotary_emb|position_embeddings?|shared_expert_gate)\b"
)
_KV = re.compile(r"(?:^|[._])(?:k|v|key|value)_proj\.|\.(?:wk|wv)\.")


@dataclass(frozen=True)
class Card:
    """A device: ``memory`` is what torch_npu offers a process of its nominal size, in bytes."""

    name: str
    memory: int
    tp: int


# nominal 64 GB devices offer 60.97 GiB and 32 GB devices 29.5 GiB to a process
CARDS = {
    "A2": Card("Atlas A2 (64 GB)", int(60.97 * GIB), 8),
    "A2-32G": Card("Atlas A2 (32 GB)", int(29.5 * GIB), 8),
    "A3": Card("Atlas A3 (64 GB per device, two on a card)", int(60.97 * GIB), 16),
}


@dataclass
class Parallel:
    """Ranks. ``ep``: experts are spread over all tensor-parallel ranks instead of each being cut."""

    tp: int = 1
    pp: int = 1
    ep: bool = False


@dataclass
class Cache:
    """What one rank keeps: ``token`` bytes per token of a sequence, ``window`` bytes per token of at most
    ``window_tokens``, ``state`` bytes per sequence."""

    token: int
    window: int
    window_tokens: int
    state: int

    def sequence(self, tokens: int) -> int:
        """Bytes of a sequence of that length, in whole blocks."""
        whole = math.ceil(tokens / BLOCK) * BLOCK
        return self.token * whole + self.window * min(whole, self.window_tokens + BLOCK) + self.state


def dtype_bytes(config: Config, tensors: dict[str, Tensor]) -> int:
    """Bytes of one number of the cache: the model's dtype."""
    for part in (config, config.text):
        name = part.raw.get("dtype") or part.raw.get("torch_dtype")
        if isinstance(name, str):
            return min(_BYTES.get(name.removeprefix("torch."), 2), 4)
    kinds = {one.dtype for one in tensors.values()}
    return 4 if kinds == {"F32"} else 2


def cache(config: Config, shape: Shape, parallel: Parallel, size: int) -> Cache:
    """The cache of the rank that holds most layers. ``size``: bytes of one number."""
    kinds = layer_kinds(config)
    if len(kinds) < shape.layers:  # two attentions in a layer
        kinds = kinds + ["full"] * (shape.layers - len(kinds))
    stage = kinds[: math.ceil(len(kinds) / parallel.pp)]
    per_layer = _token_bytes(config, shape, parallel, size)
    window = per_layer * stage.count("sliding")
    return Cache(
        per_layer * stage.count("full"),
        window,
        sliding_window(config.text) if window else 0,
        _state_bytes(config.text, parallel, size) * stage.count("state"),
    )


def _token_bytes(config: Config, shape: Shape, parallel: Parallel, size: int) -> int:
    if shape.mla:
        # latents are on every rank; a sparse indexer keeps its own keys
        return (shape.head_size + config.text.number("index_head_dim")) * size
    heads = max(1, math.ceil(shape.kv_heads / parallel.tp)) if shape.kv_heads else 0
    value = config.text.number("v_head_dim") if "v_head_dim" in config.text.given else shape.head_size
    return heads * (shape.head_size + (value or shape.head_size)) * size


def _state_bytes(text: Config, parallel: Parallel, size: int) -> int:
    """The state of one layer for one sequence."""
    value_heads = text.number("linear_num_value_heads")
    linear = text.get("linear_attn_config")
    if value_heads:
        keys = text.number("linear_num_key_heads") * text.number("linear_key_head_dim")
        values = value_heads * text.number("linear_value_head_dim")
        convolution = (2 * keys + values) * max(text.number("linear_conv_kernel_dim") - 1, 0)
        return (convolution + values * text.number("linear_key_head_dim")) * size // parallel.tp
    if isinstance(linear, dict):
        heads, head = linear.get("num_heads") or 0, linear.get("head_dim") or 0
        kernel = linear.get("short_conv_kernel_size") or 1
        return (3 * heads * head * (kernel - 1) * size + heads * head * head * 4) // parallel.tp
    if text.has("conv_L_cache") or text.get("conv_L_cache"):
        return (
            text.number("hidden_size") * max(int(text.get("conv_L_cache") or 1) - 1, 0) * size // parallel.tp
        )
    return _mamba_bytes(text, size) // parallel.tp


def _mamba_bytes(text: Config, size: int) -> int:
    states = text.number("mamba_d_state") or text.number("ssm_state_size") or text.number("state_size")
    kernel = text.number("mamba_d_conv") or text.number("conv_kernel")
    heads = text.number("mamba_n_heads") or text.number("mamba_num_heads") or text.number("n_mamba_heads")
    head = text.number("mamba_d_head") or text.number("mamba_head_dim") or text.number("mamba_headdim")
    expand = text.number("mamba_expand") or text.number("expand") or 2
    groups = text.number("mamba_n_groups") or text.number("n_groups") or text.number("mamba_ngroups")
    inner = heads * head or text.number("intermediate_size") if not heads else heads * (head or 64)
    inner = inner if heads else expand * text.number("hidden_size")
    convolution = (inner + 2 * groups * states) * max(kernel - 1, 0)
    return (convolution + inner * states) * size


def weight_bytes(config: Config, tensors: dict[str, Tensor], parallel: Parallel, kv_heads: int) -> int:
    """The weights of the rank that holds most, by the headers."""
    layers: dict[int, float] = {}
    outside = 0.0
    ends = {"first": 0.0, "last": 0.0}
    for name, one in tensors.items():
        share = _share(name, one, parallel, kv_heads)
        match = _LAYER.search(name)
        if match and not re.search(r"visual|vision|audio|tower|talker", name):
            layers[int(match[1])] = layers.get(int(match[1]), 0.0) + share
        elif re.search(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embeddings?)\.", name):
            ends["first"] += share
        elif re.search(r"(?:^|\.)(?:lm_head|embed_out|output)\.", name):
            ends["last"] += share
        else:
            outside += share
    stage = math.ceil(len(layers) / parallel.pp) if layers else 0
    ordered = [layers[number] for number in sorted(layers)]
    stages = [sum(ordered[start : start + stage]) for start in range(0, len(ordered), stage or 1)] or [0.0]
    if parallel.pp == 1:
        return int(sum(ordered) + outside + sum(ends.values()))
    return int(max(max(stages), stages[0] + ends["first"] + outside, stages[-1] + max(ends.values())))


def _share(name: str, one: Tensor, parallel: Parallel, kv_heads: int) -> float:
    """The bytes of one tensor that a rank holds."""
    if _EXPERT.search(name):
        return one.bytes / parallel.tp
    if len(one.shape) < 2 or _WHOLE.search(name):
        return one.bytes
    if _KV.search(name) and kv_heads:
        return one.bytes / min(parallel.tp, kv_heads)
    return one.bytes / parallel.tp


def estimated_weights(config: Config, shape: Shape, quantized: float | None) -> int:
    """The size of all weights from the configuration alone, in bytes, when there are no files to read."""
    text, hidden = config.text, shape.hidden_size
    if shape.mla:
        rank, rope, nope = (
            text.number(key) for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim")
        )
        q_rank, value = text.number("q_lora_rank"), text.number("v_head_dim")
        query = (
            (hidden * q_rank + q_rank * shape.heads * (nope + rope))
            if q_rank
            else hidden * shape.heads * (nope + rope)
        )
        attention = (
            query
            + hidden * (rank + rope)
            + rank * shape.heads * (nope + value)
            + shape.heads * value * hidden
        )
    else:
        attention = hidden * shape.head_size * (2 * shape.heads + 2 * shape.kv_heads)
    wide = text.number("intermediate_size") or 4 * hidden
    dense = 3 * hidden * wide
    if shape.experts:
        width = text.number("moe_intermediate_size") or wide
        shared = text.number("n_shared_experts") * width or text.number("shared_expert_intermediate_size")
        sparse = 3 * hidden * (shape.experts * width + shared)
        first = min(text.number("first_k_dense_replace"), shape.layers)
    else:
        sparse, first = dense, 0
    body = shape.layers * attention + first * dense + (shape.layers - first) * sparse
    tied = text.get("tie_word_embeddings")
    table = shape.vocab_size * hidden * (1 if tied else 2)
    return int(body * (quantized or 2) + table * 2)


def plan(
    config: Config,
    shape: Shape,
    tensors: dict[str, Tensor],
    card: Card,
    parallel: Parallel,
    utilisation: float = 0.9,
    reserve: int = RESERVE,
    estimate: int = 0,
) -> dict[str, Any]:
    """One line of the plan: what a device holds, what is left for the cache, and how far it goes."""
    size = dtype_bytes(config, tensors)
    weights = (
        weight_bytes(config, tensors, parallel, shape.kv_heads)
        if tensors
        else estimate // (parallel.tp * parallel.pp)
    )
    left = int(card.memory * utilisation) - weights - reserve
    kept = cache(config, shape, parallel, size)
    length = min(BASELINE_LEN, shape.max_len)
    fits = left // max(kept.sequence(length), 1) if left > 0 else 0
    most = longest(kept, left, shape.max_len)
    return {
        "card": card.name,
        **asdict(parallel),
        "weights_gib": round(weights / GIB, 2),
        "weights_from": "headers" if tensors else "configuration (estimate)",
        "cache_gib": round(max(left, 0) / GIB, 2),
        "cache_bytes_per_token": kept.token + kept.window,
        "state_bytes_per_sequence": kept.state,
        "tokens": left // (kept.token + kept.window) if left > 0 and kept.token + kept.window else 0,
        "max_len": most,
        "at_len": length,
        "sequences": int(fits),
        "baseline": bool(fits >= BASELINE_SEQS),
    }


def longest(kept: Cache, left: int, most: int) -> int:
    """The longest single sequence that fits, at most what the model is made for."""
    if left <= 0 or kept.sequence(BLOCK) > left:
        return 0
    low, high = BLOCK, max(most, BLOCK)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if kept.sequence(middle) <= left else (low, middle - 1)
    return min(low, most)


def possible(shape: Shape, parallel: Parallel) -> str:
    """Why a model cannot be cut so, empty when it can."""
    if shape.heads and shape.heads % parallel.tp:
        return f"{shape.heads} heads are not divisible by {parallel.tp}"
    if parallel.ep and not shape.experts:
        return "no experts"
    return "" if parallel.pp <= max(shape.layers, 1) else f"{shape.layers} layers for {parallel.pp} stages"
