"""Latent attention's own steps: its cache, its rotary part, parts of its context put together."""

from __future__ import annotations

import itertools

import torch

from npu_emulator.operators.attention import attend, paged
from npu_emulator.operators.registry import reference
from npu_emulator.operators.rotary import rotated
from npu_emulator.problems import lacking, require

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_ROPE = 64


def _interleaved(x, cos, sin):
    """Pairs (0, 1), (2, 3), … turned; the result has all first halves before all second ones."""
    halves = torch.cat((x[..., ::2], x[..., 1::2]), -1).float()
    return (halves * cos.float() + rotated(halves, True) * sin.float()).to(x.dtype)


@reference("npu::npu_interleave_rope")
def npu_interleave_rope(x, cos, sin):
    operator = "npu_interleave_rope"
    require(x.dim() == 4 and x.shape[-1] == _ROPE, operator, f"x is (B, N, S, {_ROPE}), got {tuple(x.shape)}")
    require(x.dtype in _FLOATS, operator, f"x must be floating point, got {x.dtype}")
    for name, part in (("cos", cos), ("sin", sin)):
        fits = part.dim() == 4 and part.shape[1] == 1 and part.shape[-1] == _ROPE
        fits = fits and part.shape[0] in (1, x.shape[0]) and part.shape[2] in (1, x.shape[2])
        require(fits, operator, f"{name} is (B, 1, S, {_ROPE}), got {tuple(part.shape)} for {tuple(x.shape)}")
        require(part.dtype == x.dtype, operator, f"{name} has the dtype of x {x.dtype}, got {part.dtype}")
    return _interleaved(x, cos, sin)


@reference("npu::npu_kv_rmsnorm_rope_cache")
def npu_kv_rmsnorm_rope_cache(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None, k_rope_offset=None,
    c_kv_offset=None, v=None, epsilon=1e-5, cache_mode="Norm", is_output_kv=False,
):  # fmt: skip
    """The caches (rotary part, latent part), and the rows (B, 1, S, D) written when they are wanted."""
    operator = "npu_kv_rmsnorm_rope_cache"
    if any(part is not None for part in (k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v)):
        raise lacking(operator, "quantised caches")
    if cache_mode not in ("PA", "PA_BNSD"):
        require(
            cache_mode in ("Norm", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"), operator, f"cache_mode {cache_mode}"
        )
        raise lacking(operator, f"cache_mode {cache_mode}")
    latent, rope = gamma.shape[-1], cos.shape[-1]
    require(kv.dim() == 4 and kv.shape[1] == 1, operator, f"kv is (B, 1, S, D), got {tuple(kv.shape)}")
    require(kv.shape[-1] == latent + rope, operator, f"kv has {latent} + {rope} values, got {kv.shape[-1]}")
    require(kv.dtype in _FLOATS and kv.dtype == gamma.dtype, operator, f"kv {kv.dtype}, gamma {gamma.dtype}")
    require(index.dtype == torch.int64, operator, f"index must be int64, got {index.dtype}")
    tokens = kv.shape[0] * kv.shape[2]
    require(index.numel() == tokens, operator, f"{index.numel()} slots for {tokens} tokens")
    states = kv[..., :latent].float()
    normed = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + epsilon) * gamma.float()
    normed = normed.to(kv.dtype)
    turned = _interleaved(kv[..., latent:], cos, sin)
    for rows, cache in ((turned, k_cache), (normed, ckv_cache)):
        _store(operator, rows.reshape(tokens, -1), cache, index)
    if is_output_kv:
        return k_cache, ckv_cache, turned, normed
    return k_cache, ckv_cache, torch.empty_like(turned), torch.empty_like(normed)


def _store(operator, rows, cache, slots):
    """Into a cache (blocks, block size, 1, D); a negative slot is nowhere."""
    require(
        cache.dim() == 4 and cache.shape[2] == 1 and cache.shape[3] == rows.shape[1],
        operator,
        f"the cache is (blocks, block size, 1, {rows.shape[1]}), got {tuple(cache.shape)}",
    )
    slots = slots.flatten()
    size = cache.shape[1]
    require(bool((slots < cache.shape[0] * size).all()), operator, "a slot is past the cache")
    wanted = slots >= 0
    cache[slots[wanted] // size, slots[wanted] % size, 0] = rows[wanted].to(cache.dtype)


@reference("npu::npu_attention_update")
def npu_attention_update(lse, local_out, update_type):
    """Results (rows, size) over parts of the context, weighted by their softmax sums (rows,) into one."""
    operator = "npu_attention_update"
    require(len(lse) == len(local_out), operator, f"{len(lse)} sums and {len(local_out)} results")
    for one, part in zip(lse, local_out, strict=True):
        require(one.dtype == torch.float32, operator, f"lse must be float32, got {one.dtype}")
        fits = one.dim() == 1 and part.dim() == 2 and len(one) == part.shape[0]
        require(fits, operator, f"lse {tuple(one.shape)} for a result {tuple(part.shape)}")
    # a part without context has no weight
    sums = torch.stack([torch.where(one == float("inf"), float("-inf"), one) for one in lse])
    total = sums.logsumexp(0)
    weights = (sums - total).exp().nan_to_num(0)
    result = (weights[..., None] * torch.stack([part.float() for part in local_out])).sum(0)
    return result.to(local_out[0].dtype), total if update_type else torch.empty_like(total)


def _gather(operator, key_cache, value_cache, block_table, lengths, key, value, starts, cumsum):
    """Rows of paged caches, sequence after sequence, into ``key`` and ``value``."""
    require(block_table.dtype == torch.int32, operator, f"block_table must be int32, got {block_table.dtype}")
    for cache, out in ((key_cache, key), (value_cache, value)):
        require(cache.dtype == out.dtype, operator, f"a cache of {cache.dtype} into {out.dtype}")
        require(cache.shape[2:] == out.shape[1:], operator, f"{tuple(cache.shape)} into {tuple(out.shape)}")
    sums = [int(length) for length in lengths]
    counts = [two - one for one, two in itertools.pairwise(sums)] if cumsum else sums
    offsets = [0] * len(counts) if starts is None else [int(start) for start in starts]
    require(sum(counts) <= key.shape[0], operator, f"{sum(counts)} tokens into {key.shape[0]} rows")
    row = 0
    for blocks, count, offset in zip(block_table, counts, offsets, strict=False):
        for cache, out in ((key_cache, key), (value_cache, value)):
            if count:
                out[row : row + count] = paged(cache, blocks, offset + count)[offset:]
        row += count


@reference("npu::npu_gather_pa_kv_cache")
def npu_gather_pa_kv_cache(
    key_cache, value_cache, block_tables, seq_lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False
):
    _gather(
        "npu_gather_pa_kv_cache", key_cache, value_cache, block_tables, seq_lens, key, value, seq_offset,
        is_seq_lens_cumsum,
    )  # fmt: skip


@reference("atb::npu_paged_cache_load.out")
def npu_paged_cache_load_out(
    key_cache, value_cache, block_table, context_lens, *, seq_starts=None, cumsum=False, key, value
):
    _gather(
        "npu_paged_cache_load",
        key_cache,
        value_cache,
        block_table,
        context_lens,
        key,
        value,
        seq_starts,
        cumsum,
    )
    return key, value


@reference("atb::npu_ring_mla")
def npu_ring_mla(
    q_nope, q_rope, k_nope, k_rope, value, mask, seqlen, head_num, kv_head_num, *, pre_out=None,
    prev_lse=None, qk_scale=1.0, kernel_type=None, mask_type=None, input_layout=None, calc_type=None,
):  # fmt: skip
    """The result (T, N, D) like value's heads, and the softmax sums (N, T); earlier parts are added in."""
    operator = "npu_ring_mla"
    require(q_rope.shape[-1] == k_rope.shape[-1], operator, "q_rope and k_rope have one last dimension")
    if calc_type not in (None, "calc_type_default", "calc_type_first_ring"):
        raise lacking(operator, f"calc_type {calc_type}")
    lengths = seqlen if seqlen.dim() == 2 else torch.stack((seqlen, seqlen))
    query, key = torch.cat((q_nope, q_rope), -1), torch.cat((k_nope, k_rope), -1)
    result = torch.zeros(query.shape[0], head_num, value.shape[-1], dtype=torch.float32)
    sums = torch.full((query.shape[0], head_num), float("-inf"))
    causal = 0 if mask_type in (None, "no_mask") else 3
    start = kv_start = 0
    for tokens, context in lengths.t().tolist():
        rows, columns = slice(start, start + tokens), slice(kv_start, kv_start + context)
        if tokens and context:
            result[rows], sums[rows] = attend(query[rows], key[columns], value[columns], qk_scale, causal)
        start, kv_start = start + tokens, kv_start + context
    if pre_out is not None and calc_type != "calc_type_first_ring":
        lse = [prev_lse.t().reshape(-1).float(), sums.reshape(-1)]
        parts = [pre_out.float().reshape(-1, value.shape[-1]), result.reshape(-1, value.shape[-1])]
        joined, total = npu_attention_update(lse, parts, 1)
        result, sums = joined.view(result.shape), total.view(sums.shape)
    return result.to(q_nope.dtype), sums.t().contiguous()


@reference("atb::npu_ring_mla.out")
def npu_ring_mla_out(*arguments, output, softmax_lse, **options):
    result, sums = npu_ring_mla(*arguments, **options)
    output.copy_(result.view(output.shape))
    softmax_lse.copy_(sums.view(softmax_lse.shape))
    return output, softmax_lse
