"""Attention of one sequence, and the reading of keys and values from a paged cache."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require

LEFT_CAUSAL, CAUSAL, BAND = 2, 3, 4  # sparse modes: first tokens aligned, last tokens aligned, a band


def attend(query, key, value, scale, sparse_mode=0, before=None, after=0, mask=None, sink=None):
    """Attention of one sequence, in float32: the result like query, and the log of each softmax's sum.

    ``query`` (tokens, heads, size), ``key`` (context, kv heads, size), ``value`` (context, kv heads, value
    size); the sum (tokens, heads). The band of mode 4 reaches ``before`` tokens back and ``after`` ahead.
    ``mask`` (tokens, context) is true where nothing is seen; ``sink`` (heads) is one more logit. A token that
    sees nothing gives zeros.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), key.float()) * scale
    for hidden in (_hidden(query.shape[0], key.shape[0], sparse_mode, before, after), mask):
        if hidden is not None:
            scores = scores.masked_fill(hidden.bool(), float("-inf"))
    if sink is not None:
        column = sink.float()[:, None, None].expand(-1, query.shape[0], 1)
        scores = torch.cat((scores, column), -1)
        value = torch.cat((value, torch.zeros_like(value[:1])))
    result = torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0), value.float())
    return result, scores.logsumexp(-1).t()


def _hidden(tokens, context, sparse_mode, before, after):
    if sparse_mode not in (LEFT_CAUSAL, CAUSAL, BAND):
        return None
    row = torch.arange(tokens)[:, None] + (0 if sparse_mode == LEFT_CAUSAL else context - tokens)
    column = torch.arange(context)[None]
    if sparse_mode != BAND:
        return column > row
    hidden = column > row + after
    return hidden if before is None else hidden | (column < row - before)


def paged(cache, blocks, length):
    """The first ``length`` tokens of a sequence from a paged cache (blocks, block size, …)."""
    block_size = cache.shape[1]
    count = (length + block_size - 1) // block_size
    taken = cache[blocks[:count].long()]
    return taken.reshape(count * block_size, *cache.shape[2:])[:length]


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
            part, _ = attend(queries[row : row + 1], keys, values, scale_value, CAUSAL)
            results[row : row + 1] = part.to(out.dtype)


@reference("atb::_npu_paged_attention_get_workspace", "npu::_npu_paged_attention_get_workspace")
def paged_workspace(*arguments, **options):
    return torch.empty(16, dtype=torch.uint8)


@reference("atb::_npu_flash_attention_unpad")
def npu_flash_attention_unpad(query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out):
    """Sequences one after another, each seen whole; ``seq_len`` holds the tokens of each."""
    operator = "_npu_flash_attention_unpad"
    lengths = [int(length) for length in seq_len]
    require(
        num_heads % num_kv_heads == 0, operator, f"num_heads {num_heads} is no multiple of {num_kv_heads}"
    )
    require(sum(lengths) <= query.shape[0], operator, f"seq_len {lengths} for {query.shape[0]} rows of query")
    heads = {id(query): num_heads, id(key): num_kv_heads, id(value): num_kv_heads}
    query, key, value = (part.reshape(part.shape[0], heads[id(part)], -1) for part in (query, key, value))
    results, start = out.view(out.shape[0], num_heads, -1), 0
    for length in lengths:
        rows = slice(start, start + length)
        results[rows] = attend(query[rows], key[rows], value[rows], scale_value)[0].to(out.dtype)
        start += length
