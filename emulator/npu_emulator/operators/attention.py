"""Attention over contiguous or paged keys and values."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

_FUSED = "npu_fused_infer_attention_score"
_CAUSAL, _BAND = 3, 4
_MASK_SIDE = 2048  # of the compressed mask that the sparse modes 2, 3 and 4 ask for
_MOST_HEAD = 512


def attend(query, key, value, scale, sparse_mode=0, before=None, mask=None):
    """Attention of one sequence, in float32.

    ``query`` (tokens, heads, size), ``key`` and ``value`` (context, kv heads, size), the result like query.
    Mode 3 is causal with the last tokens aligned, mode 4 a band that reaches ``before`` tokens back.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), key.float()) * scale
    hidden = _hidden(query.shape[0], key.shape[0], sparse_mode, before)
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0), value.float())


def _hidden(tokens, context, sparse_mode, before):
    if sparse_mode not in (_CAUSAL, _BAND):
        return None
    row = torch.arange(tokens)[:, None] + (context - tokens)
    column = torch.arange(context)[None]
    hidden = column > row
    if sparse_mode == _BAND and before is not None:
        hidden = hidden | (column < row - before)
    return hidden


def paged(cache, blocks, length):
    """The first ``length`` tokens of a sequence from a paged cache (blocks, block size, kv heads, size)."""
    block_size = cache.shape[1]
    count = (length + block_size - 1) // block_size
    taken = cache[blocks[:count].long()]
    return taken.reshape(count * block_size, *cache.shape[2:])[:length]


def _check_fused(query, key, layout, heads, kv_heads, lengths, kv_lengths, block_table, sparse_mode, mask):
    require(layout == "TND" or layout in ("BSH", "BSND", "BNSD"), _FUSED, f"input_layout {layout} is unknown")
    if layout != "TND":
        raise lacking(_FUSED, f"input_layout {layout}")
    require(query.dim() == 3, _FUSED, f"with TND query has three dimensions, got {tuple(query.shape)}")
    require(query.shape[1] == heads, _FUSED, f"num_heads is {heads}, query has {query.shape[1]} heads")
    require(
        heads % kv_heads == 0,
        _FUSED,
        f"num_heads {heads} must be a multiple of num_key_value_heads {kv_heads}",
    )
    require(
        query.shape[2] <= _MOST_HEAD, _FUSED, f"the head size is at most {_MOST_HEAD}, got {query.shape[2]}"
    )
    require(
        query.dtype == key.dtype,
        _FUSED,
        f"query and key must have one dtype, got {query.dtype} and {key.dtype}",
    )
    require(
        lengths is not None and kv_lengths is not None, _FUSED, "TND needs both lists of sequence lengths"
    )
    require(
        len(lengths) == len(kv_lengths), _FUSED, f"{len(lengths)} query and {len(kv_lengths)} key lengths"
    )
    ordered = all(one <= other for one, other in zip(lengths, lengths[1:], strict=False))
    require(ordered, _FUSED, f"actual_seq_lengths is a running sum, got {list(lengths)}")
    require(
        not lengths or lengths[-1] == query.shape[0],
        _FUSED,
        f"actual_seq_lengths ends at the {query.shape[0]} rows of query, got {list(lengths)}",
    )
    if block_table is not None:
        require(
            block_table.shape[0] >= len(lengths),
            _FUSED,
            f"block_table has {block_table.shape[0]} rows for {len(lengths)} sequences",
        )
        require(
            block_table.dtype == torch.int32, _FUSED, f"block_table must be int32, got {block_table.dtype}"
        )
    if sparse_mode in (2, _CAUSAL, _BAND):
        side = (_MASK_SIDE, _MASK_SIDE)
        fits = mask is not None and tuple(mask.shape[-2:]) == side
        require(
            fits,
            _FUSED,
            f"sparse_mode {sparse_mode} needs an atten_mask of {side}, got {None if mask is None else tuple(mask.shape)}",
        )


@reference("npu::npu_fused_infer_attention_score")
def npu_fused_infer_attention_score(
    query, key, value, *, pse_shift=None, atten_mask=None, actual_seq_lengths=None, actual_seq_lengths_kv=None,
    block_table=None, num_heads=1, scale=1.0, pre_tokens=2147483647, next_tokens=2147483647, input_layout="BSH",
    num_key_value_heads=0, sparse_mode=0, block_size=0, softmax_lse_flag=False, **other
):  # fmt: skip
    kv_heads = num_key_value_heads or num_heads
    _check_fused(
        query,
        key,
        input_layout,
        num_heads,
        kv_heads,
        actual_seq_lengths,
        actual_seq_lengths_kv,
        block_table,
        sparse_mode,
        atten_mask,
    )
    unknown = sorted(name for name, given in other.items() if isinstance(given, torch.Tensor))
    if unknown:
        raise lacking(_FUSED, ", ".join(unknown))
    result = torch.zeros(
        *query.shape[:2], value.shape[-1] if block_table is None else query.shape[2], dtype=query.dtype
    )
    start = kv_start = 0
    for row, (end, kv_end) in enumerate(zip(actual_seq_lengths, actual_seq_lengths_kv, strict=True)):
        if end == start or not kv_end:
            keys = values = None  # a padded row
        elif block_table is not None:
            context = int(kv_end)
            keys = _heads(paged(key, block_table[row], context), kv_heads)
            values = _heads(paged(value, block_table[row], context), kv_heads)
        else:
            keys, values = key[kv_start:kv_end], value[kv_start:kv_end]
        kv_start = kv_end
        if keys is not None:
            part = attend(query[start:end], keys, values, scale, sparse_mode, pre_tokens)
            result[start:end] = part.to(result.dtype)
        start = end
    return result, torch.zeros(1)


def _heads(tokens, kv_heads):
    return tokens.reshape(tokens.shape[0], kv_heads, -1)


@reference("npu::npu_fused_infer_attention_score.out")
def npu_fused_infer_attention_score_out(query, key, value, *, workspace=None, out, **options):
    attention, lse = npu_fused_infer_attention_score(query, key, value, **options)
    require(
        out[0].numel() >= attention.numel(),
        _FUSED,
        f"out has {tuple(out[0].shape)}, the result {tuple(attention.shape)}",
    )
    target = out[0]
    if target.numel() == attention.numel():
        target.view(attention.shape).copy_(attention)
    else:
        target[: attention.shape[0]] = attention
    return out[0], out[1]


@reference("npu::_npu_fused_infer_attention_score_get_max_workspace")
def fused_workspace(query, key, value, **options):
    return torch.empty(16, dtype=torch.uint8)


@reference("atb::_npu_paged_attention")
def npu_paged_attention(
    query,
    key_cache,
    value_cache,
    num_kv_heads,
    num_heads,
    scale_value,
    block_table,
    context_lens,
    out,
    workspace=None,
):
    require(
        num_heads % num_kv_heads == 0,
        "_npu_paged_attention",
        f"num_heads {num_heads} is no multiple of num_kv_heads {num_kv_heads}",
    )
    size = query.shape[-1] if query.dim() == 3 else query.shape[-1] // num_heads
    queries, results = query.view(-1, num_heads, size), out.view(-1, num_heads, size)
    for row in range(min(queries.shape[0], block_table.shape[0])):
        length = int(context_lens[row])
        if length > 0:
            keys, values = (paged(cache, block_table[row], length) for cache in (key_cache, value_cache))
            results[row : row + 1] = attend(queries[row : row + 1], keys, values, scale_value, _CAUSAL).to(
                out.dtype
            )


@reference("atb::_npu_paged_attention_get_workspace", "npu::_npu_paged_attention_get_workspace")
def paged_workspace(*arguments, **options):
    return torch.empty(16, dtype=torch.uint8)
