"""Rotary position embeddings."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require


def rotated(x, neox):
    """The half-turned partner of ``x``: by halves of the last dimension (NeoX), or by pairs."""
    if neox:
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((-odd, even), -1).flatten(-2)


def _doubled(half, neox):
    return torch.cat((half, half), -1) if neox else half.repeat_interleave(2, -1)


@reference("atb::_npu_rotary_embedding")
def npu_rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    tokens = positions.numel()
    require(
        query.shape[0] == tokens and key.shape[0] == tokens,
        "_npu_rotary_embedding",
        f"query and key have a row for each of {tokens} positions, got {query.shape[0]} and {key.shape[0]}",
    )
    cos, sin = cos_sin_cache.index_select(0, positions.flatten().long()).float().chunk(2, -1)
    cos, sin = _doubled(cos, is_neox)[:, None], _doubled(sin, is_neox)[:, None]
    size = cos.shape[-1]
    for states in (query, key):
        heads = states.view(tokens, -1, head_size)
        part = heads[..., :size].float()
        heads[..., :size].copy_((part * cos + rotated(part, is_neox) * sin).to(states.dtype))


@reference("npu::npu_rotary_mul")
def npu_rotary_mul(x, r1, r2, rotary_mode="half", rotate=None):
    require(
        rotary_mode in ("half", "interleave"),
        "npu_rotary_mul",
        f"rotary_mode is half or interleave, got {rotary_mode}",
    )
    require(
        r1.shape == r2.shape,
        "npu_rotary_mul",
        f"r1 and r2 must have one shape, got {tuple(r1.shape)} and {tuple(r2.shape)}",
    )
    if rotate is not None:
        raise lacking("npu_rotary_mul", "a rotation matrix")
    wide = x.float()
    return (wide * r1.float() + rotated(wide, rotary_mode == "half") * r2.float()).to(x.dtype)


@reference("npu::npu_apply_rotary_pos_emb")
def npu_apply_rotary_pos_emb(query, key, cos, sin, layout="BSND", rotary_mode="half"):
    operator = "npu_apply_rotary_pos_emb"
    if layout not in ("BSND", "BSH", "SBND", "BNSD", "TND") or rotary_mode not in ("half", "interleave"):
        raise lacking(operator, f"layout {layout} with rotary_mode {rotary_mode}")
    require(
        cos.shape == sin.shape and cos.shape[-1] == query.shape[-1] == key.shape[-1],
        operator,
        f"cos and sin have the head size {query.shape[-1]}, got {tuple(cos.shape)} and {tuple(sin.shape)}",
    )
    for states in (query, key):  # in place, as the device does
        wide = states.float()
        states.copy_(wide * cos.float() + rotated(wide, rotary_mode == "half") * sin.float())
    return query, key


@reference("npu::npu_mrope")
def npu_mrope(
    positions,
    query,
    key,
    cos_sin_cache,
    head_size,
    *,
    mrope_section=None,
    rotary_mode="half",
    cache_mode="default",
):
    if cache_mode != "default":
        raise lacking("npu_mrope", f"cache_mode {cache_mode}")
    neox = rotary_mode == "half"
    cos, sin = cos_sin_cache[positions.long()].float().chunk(2, -1)
    if positions.dim() == 2:
        cos, sin = _by_section(cos, mrope_section), _by_section(sin, mrope_section)
    cos, sin = _doubled(cos, neox)[:, None], _doubled(sin, neox)[:, None]
    size = cos.shape[-1]
    results = []
    for states in (query, key):
        turned = states.clone()
        heads = turned.view(states.shape[0], -1, head_size)
        part = heads[..., :size].float()
        heads[..., :size] = (part * cos + rotated(part, neox) * sin).to(states.dtype)
        results.append(turned)
    return tuple(results)


def _by_section(table, section):
    """From the table of each position kind (time, height, width) the columns of its section."""
    if not section or not sum(section):
        return table[0]
    starts = [sum(section[:kind]) for kind in range(len(section))]
    return torch.cat([table[kind, :, start : start + section[kind]] for kind, start in enumerate(starts)], -1)
