"""How much memory a model needs per device: weights by the real headers, cache by the kind of attention.

Bytes throughout. What is sharded: experts over expert-parallel ranks, projections over tensor-parallel
ranks, keys and values over at most as many ranks as there are heads; norms, routers and the compressed
projections of latent attention are whole on every rank. Layers are split evenly over pipeline stages.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass

import msgspec

from npu_upgrade.checkpoint.config import Config
from npu_upgrade.checkpoint.quantization import SCALES
from npu_upgrade.checkpoint.shape import Shape, layer_kinds, sliding_window
from npu_upgrade.checkpoint.weights import Tensor

GIB = 1024**3
MIB = 1024**2
BLOCK = 128  # tokens of a cache block on Ascend
UTILISATION = 0.9  # share of a device that vLLM takes by default
RESERVE = 3 * GIB  # activations, graphs and communication buffers: an assumption, --reserve-gib changes it
BASELINE_LEN, BASELINE_SEQS = 128 * 1024, 16
NUMBER = 2  # bytes of a number of the cache: 32 bit checkpoints are served in 16 bits
_WIDE = {"F32": 2, "F64": 4}  # times the 16 bits they are served in
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d{1,6})\.")
_EXPERT = re.compile(r"\.experts?\.(?:\d+\.)?|\.experts_")
_WHOLE = re.compile(
    r"(?:norm|layernorm|ln_\w+|gate\.weight|gate\.e_score_correction_bias|router|q_a_proj|kv_a_proj\w*|indexer|"
    r"wkv_a|wq_a|fused_qkv_a_proj|rotary_emb|position_embeddings?|shared_expert_gate)\b"
)
_TOWER = re.compile(r"visual|vision|audio|tower|talker")
_FIRST = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embeddings?)\.")
_LAST = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output)\.")
_KV = re.compile(r"(?:^|[._])(?:k|v|key|value)_proj\.|\.(?:wk|wv)\.")


@dataclass(frozen=True)
class Card:
    """A device: ``memory`` is what torch_npu offers a process of its nominal size, in bytes."""

    name: str
    memory: int
    tp: int


# 64 GB devices offer 60.96 to 61.27 GiB by reports of out-of-memory errors; for 32 GB devices it is assumed
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


def cache(config: Config, shape: Shape, parallel: Parallel) -> Cache:
    """The cache of the rank that holds most layers."""
    kinds = layer_kinds(config)
    if len(kinds) < shape.layers:  # two attentions in a layer
        kinds = kinds + ["full"] * (shape.layers - len(kinds))
    stage = kinds[: math.ceil(len(kinds) / parallel.pp)]
    per_layer = _token_bytes(config, shape, parallel)
    window = per_layer * stage.count("sliding")
    return Cache(
        per_layer * stage.count("full"),
        window,
        sliding_window(config.text) if window else 0,
        _state_bytes(config.text, parallel) * stage.count("state"),
    )


def _token_bytes(config: Config, shape: Shape, parallel: Parallel) -> int:
    if shape.mla:
        # latents are on every rank; a sparse indexer keeps its own keys
        return (shape.head_size + config.text.number("index_head_dim")) * NUMBER
    heads = max(1, math.ceil(shape.kv_heads / parallel.tp)) if shape.kv_heads else 0
    value = config.text.number("v_head_dim") if "v_head_dim" in config.text.given else shape.head_size
    return heads * (shape.head_size + (value or shape.head_size)) * NUMBER


def _state_bytes(text: Config, parallel: Parallel) -> int:
    """The state of one layer for one sequence."""
    value_heads = text.number("linear_num_value_heads")
    linear = text.get("linear_attn_config")
    if value_heads:
        keys = text.number("linear_num_key_heads") * text.number("linear_key_head_dim")
        values = value_heads * text.number("linear_value_head_dim")
        convolution = (2 * keys + values) * max(text.number("linear_conv_kernel_dim") - 1, 0)
        return (convolution + values * text.number("linear_key_head_dim")) * NUMBER // parallel.tp
    if isinstance(linear, dict):
        heads, head = linear.get("num_heads") or 0, linear.get("head_dim") or 0
        kernel = linear.get("short_conv_kernel_size") or 1
        return (3 * heads * head * (kernel - 1) * NUMBER + heads * head * head * 4) // parallel.tp
    if text.has("conv_L_cache") or text.get("conv_L_cache"):
        kernel = int(text.get("conv_L_cache") or 1)
        return text.number("hidden_size") * max(kernel - 1, 0) * NUMBER // parallel.tp
    states = text.number("mamba_d_state") or text.number("ssm_state_size") or text.number("state_size")
    kernel = text.number("mamba_d_conv") or text.number("conv_kernel")
    heads = text.number("mamba_n_heads") or text.number("mamba_num_heads") or text.number("n_mamba_heads")
    head = text.number("mamba_d_head") or text.number("mamba_head_dim") or text.number("mamba_headdim")
    expand = text.number("mamba_expand") or text.number("expand") or 2
    groups = text.number("mamba_n_groups") or text.number("n_groups") or text.number("mamba_ngroups")
    inner = heads * (head or 64) if heads else expand * text.number("hidden_size")
    convolution = (inner + 2 * groups * states) * max(kernel - 1, 0)
    return (convolution + inner * states) * NUMBER // parallel.tp


class Plan(msgspec.Struct, frozen=True):
    """What a device holds of a model that is cut so, what is left for the cache, and how far that goes.

    ``weights_from`` is headers or an estimate; ``tokens`` fit into the cache; ``max_len`` is the longest
    sequence, and ``sequences`` of ``at_len`` tokens fit at a time; ``baseline``: whether those are enough.
    """

    card: str
    tp: int
    pp: int
    ep: bool
    weights_gib: float
    weights_from: str
    cache_gib: float
    cache_bytes_per_token: int
    state_bytes_per_sequence: int
    tokens: int
    max_len: int
    at_len: int
    sequences: int
    baseline: bool


Groups = dict[tuple[str, str, int], float]


def grouped(tensors: dict[str, Tensor]) -> Groups:
    """Bytes of all tensors by how they are cut, where they stand and their layer (0 outside of layers).

    Cuts: ``expert``, ``whole``, ``heads`` (keys and values) and ``rows``; places: ``layer``, ``first`` (the
    embedding), ``last`` (the head) and ``every`` (towers and what else each stage may need).
    """
    groups: Groups = defaultdict(float)
    for name, one in tensors.items():
        match = _LAYER.search(name)
        layer = match and not _TOWER.search(name)
        outside = "first" if _FIRST.search(name) else "last" if _LAST.search(name) else "every"
        place = "layer" if layer else outside
        size = one.bytes / (1 if name.endswith(SCALES) else _WIDE.get(one.dtype, 1))
        groups[_cut(name, one), place, int(match[1]) if match and layer else 0] += size
    return groups


def _cut(name: str, one: Tensor) -> str:
    if _EXPERT.search(name):
        return "expert"
    if len(one.shape) < 2 or _WHOLE.search(name):
        return "whole"
    return "heads" if _KV.search(name) else "rows"


def weight_bytes(groups: Groups, parallel: Parallel, kv_heads: int) -> int:
    """The weights of the rank that holds most."""
    ranks = {"expert": parallel.tp, "rows": parallel.tp, "whole": 1}
    ranks["heads"] = min(parallel.tp, kv_heads) if kv_heads else parallel.tp
    layers: dict[int, float] = defaultdict(float)
    places: dict[str, float] = defaultdict(float)
    for (cut, place, layer), size in groups.items():
        if place == "layer":
            layers[layer] += size / ranks[cut]
        else:
            places[place] += size / ranks[cut]
    ordered = [layers[number] for number in sorted(layers)]
    stage = math.ceil(len(ordered) / parallel.pp) or 1
    stages = [sum(ordered[start : start + stage]) for start in range(0, len(ordered), stage)] or [0.0]
    if parallel.pp == 1:
        return int(sum(ordered) + sum(places.values()))
    ends = max(places["first"], places["last"])  # a tied head is the embedding again
    return int(max(max(stages), stages[0] + places["first"] + places["every"], stages[-1] + ends))


def estimated_weights(config: Config, shape: Shape, quantized: float | None) -> int:
    """The size of all weights from the configuration alone, in bytes, when there are no files to read."""
    text, hidden = config.text, shape.hidden_size
    if shape.mla:
        keys = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "q_lora_rank", "v_head_dim")
        rank, rope, nope, q_rank, value = (text.number(key) for key in keys)
        query = (q_rank or hidden) * shape.heads * (nope + rope) + hidden * q_rank
        keys_and_values = hidden * (rank + rope) + rank * shape.heads * (nope + value)
        attention = query + keys_and_values + shape.heads * value * hidden
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
    shape: Shape,
    config: Config,
    groups: Groups,
    card: Card,
    parallel: Parallel,
    utilisation: float,
    reserve: int,
    estimate: int,
) -> Plan:
    """The plan for one card and one cut; ``estimate``: bytes of the weights, where there are no headers."""
    whole = parallel.tp * parallel.pp
    weights = weight_bytes(groups, parallel, shape.kv_heads) if groups else estimate // whole
    left = int(card.memory * utilisation) - weights - reserve
    kept = cache(config, shape, parallel)
    length = min(BASELINE_LEN, shape.max_len)
    fits = left // max(kept.sequence(length), 1) if left > 0 else 0
    per_token = kept.token + kept.window
    return Plan(
        card=card.name,
        tp=parallel.tp,
        pp=parallel.pp,
        ep=parallel.ep,
        weights_gib=round(weights / GIB, 2),
        weights_from="headers" if groups else "configuration (estimate)",
        cache_gib=round(max(left, 0) / GIB, 2),
        cache_bytes_per_token=per_token,
        state_bytes_per_sequence=kept.state,
        tokens=left // per_token if left > 0 and per_token else 0,
        max_len=longest(kept, left, shape.max_len),
        at_len=length,
        sequences=fits,
        baseline=fits >= BASELINE_SEQS,
    )


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
