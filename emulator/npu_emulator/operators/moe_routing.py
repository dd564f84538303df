"""Tokens sorted by expert, and brought back and summed."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_COUNTS, _PAIRS = 1, 2
_MOST_EXPERTS, _MOST_PAIRED = 10240, 5120
_MOST_CHOSEN = 512


def _check_init(operator, x, experts, scale, offset, number, drop_pad_mode, kind, flag, quant_mode, active):
    require(x.dim() == 2 and experts.dim() == 2, operator, "x and expert_idx have two dimensions")
    require(
        x.shape[0] == experts.shape[0],
        operator,
        f"x and expert_idx have one row for each token, got {x.shape[0]} and {experts.shape[0]}",
    )
    require(x.dtype in (*_FLOATS, torch.int8), operator, f"x must be floating point or int8, got {x.dtype}")
    require(experts.dtype == torch.int32, operator, f"expert_idx must be int32, got {experts.dtype}")
    most = _MOST_PAIRED if kind == _PAIRS else _MOST_EXPERTS
    require(0 < number <= most, operator, f"expert_num is 1 to {most}, got {number}")
    require(drop_pad_mode == 0, operator, f"drop_pad_mode is 0, got {drop_pad_mode}")
    require(kind in (_COUNTS, _PAIRS), operator, f"expert_tokens_num_type is 1 or 2, got {kind}")
    require(bool(flag), operator, "expert_tokens_num_flag is True")
    require(offset is None, operator, "offset is not taken")
    require(
        len(active) == 2 and 0 <= active[0] < active[1] <= number,
        operator,
        f"active_expert_range lies in 0 to {number}, got {list(active)}",
    )
    if quant_mode != -1:
        raise lacking(operator, f"quant_mode {quant_mode}")
    if scale is not None:
        require(
            scale.dtype == torch.float32 and tuple(scale.shape) == tuple(x.shape[:1]),
            operator,
            f"scale is float32 with {x.shape[0]} values, got {scale.dtype} {tuple(scale.shape)}",
        )


def _init_shapes(x, expert_idx, *, expert_tokens_num_type=0, active_expert_range=(), expert_num=-1, **other):
    rows = expert_idx.numel()
    start, end = active_expert_range or (0, expert_num)
    counted = (end - start,) if expert_tokens_num_type == _COUNTS else (expert_num, 2)
    return (
        x.new_empty((rows, x.shape[1])),
        x.new_empty((rows,), dtype=torch.int32),
        x.new_empty(counted, dtype=torch.int64),
        x.new_empty((rows,), dtype=torch.float32),
    )


@reference("npu::npu_moe_init_routing_v2", "_C_ascend::npu_moe_init_routing_custom", meta=_init_shapes)
def npu_moe_init_routing_v2(
    x, expert_idx, *, scale=None, offset=None, active_num=-1, expert_capacity=-1, expert_num=-1,
    drop_pad_mode=0, expert_tokens_num_type=0, expert_tokens_num_flag=False, quant_mode=-1,
    active_expert_range=(), row_idx_type=0, x_dtype=None,
):  # fmt: skip
    operator = "npu_moe_init_routing_v2"
    active = list(active_expert_range) or [0, expert_num]
    _check_init(
        operator, x, expert_idx, scale, offset, expert_num, drop_pad_mode, expert_tokens_num_type,
        expert_tokens_num_flag, quant_mode, active,
    )  # fmt: skip
    flat, chosen = expert_idx.flatten().long(), expert_idx.shape[1]
    require(bool((flat < expert_num).all()), operator, f"an expert is past expert_num {expert_num}")
    inside = (flat >= active[0]) & (flat < active[1])
    # active experts first, in their order and within one in the order of the tokens
    order = torch.where(inside, flat, expert_num).argsort(stable=True)
    valid = int(inside.sum())
    taken = order[:valid]
    if active_num > 0:
        taken = taken[:active_num]
    expanded = torch.zeros(flat.numel(), x.shape[1], dtype=x.dtype)
    expanded[: len(taken)] = x[taken // chosen]
    scales = torch.zeros(flat.numel())
    if scale is not None:
        scales[: len(taken)] = scale[taken // chosen]
    rows = torch.full((flat.numel(),), -1, dtype=torch.int32)
    if row_idx_type == 1:
        rows[: len(taken)] = taken.int()
    else:
        rows[taken] = torch.arange(len(taken), dtype=torch.int32)
    counts = flat[inside].bincount(minlength=expert_num)[active[0] : active[1]]
    return expanded, rows, _counted(counts, active[0], expert_num, expert_tokens_num_type), scales


def _counted(counts, first, number, kind):
    if kind == _COUNTS:
        return counts
    pairs = torch.zeros(number, 2, dtype=torch.int64)
    used = counts.nonzero().flatten()
    pairs[: len(used)] = torch.stack((used + first, counts[used]), 1)
    return pairs


@reference("npu::npu_moe_token_permute")
def npu_moe_token_permute(tokens, indices, num_out_tokens=None, padded_mode=False):
    operator = "npu_moe_token_permute"
    _check_tokens(operator, tokens, padded_mode)
    require(
        indices.dim() in (1, 2) and indices.dtype in (torch.int32, torch.int64),
        operator,
        f"indices are int32 or int64 of two dimensions, got {indices.dtype} {tuple(indices.shape)}",
    )
    chosen = 1 if indices.dim() == 1 else indices.shape[1]
    require(chosen <= _MOST_CHOSEN, operator, f"at most {_MOST_CHOSEN} experts for a token, got {chosen}")
    require(
        indices.shape[0] == tokens.shape[0], operator, f"{indices.shape[0]} indices, {tokens.shape[0]} tokens"
    )
    order = indices.flatten().argsort(stable=True)
    rows = torch.empty_like(order, dtype=torch.int32)
    rows[order] = torch.arange(len(order), dtype=torch.int32)
    most = num_out_tokens or len(order)
    return tokens[order[:most] // chosen], rows


@reference("npu::npu_moe_token_unpermute")
def npu_moe_token_unpermute(
    permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None
):
    operator = "npu_moe_token_unpermute"
    _check_tokens(operator, permuted_tokens, padded_mode)
    require(
        sorted_indices.dim() == 1 and sorted_indices.dtype in (torch.int32, torch.int64),
        operator,
        f"sorted_indices are int32 or int64 of one dimension, got {sorted_indices.dtype}",
    )
    chosen = 1
    if probs is not None:
        chosen = probs.shape[1]
        require(
            probs.numel() == sorted_indices.numel(),
            operator,
            f"probs {tuple(probs.shape)} for {sorted_indices.numel()} indices",
        )
        require(
            probs.dtype in (permuted_tokens.dtype, torch.float32),
            operator,
            f"probs have the dtype of the tokens {permuted_tokens.dtype}, got {probs.dtype}",
        )
    rows = sorted_indices.long()
    kept = (rows < permuted_tokens.shape[0])[:, None]
    states = permuted_tokens.float()[rows.clamp(max=permuted_tokens.shape[0] - 1)] * kept
    states = states.unflatten(0, (-1, chosen))
    if probs is not None:
        states = states * probs.float()[..., None]
    return states.sum(1).to(permuted_tokens.dtype)


def _check_tokens(operator, tokens, padded_mode):
    require(tokens.dim() == 2, operator, f"the tokens have two dimensions, got {tuple(tokens.shape)}")
    require(tokens.dtype in _FLOATS, operator, f"the tokens must be floating point, got {tokens.dtype}")
    require(not padded_mode, operator, "padded_mode is False")


@reference("npu::npu_moe_finalize_routing")
def npu_moe_finalize_routing(
    expanded_permuted_rows, skip1, skip2, bias, scales, expanded_src_to_dst_row, export_for_source_row,
    drop_pad_mode=0,
):  # fmt: skip
    operator = "npu_moe_finalize_routing"
    require(skip2 is None or skip1 is not None, operator, "skip2 needs skip1")
    require(expanded_src_to_dst_row.dtype == torch.int32, operator, "expanded_src_to_dst_row must be int32")
    if drop_pad_mode not in (0, 2):
        raise lacking(operator, f"drop_pad_mode {drop_pad_mode}")
    if bias is not None:
        raise lacking(operator, "an expert bias")
    chosen = 1 if scales is None else scales.shape[1]
    # mode 0 counts expert after expert, mode 2 token after token
    places = expanded_src_to_dst_row.long()
    places = places.view(chosen, -1).t() if drop_pad_mode == 0 else places.view(-1, chosen)
    states = expanded_permuted_rows.float()[places]
    if scales is not None:
        states = states * scales.float()[..., None]
    result = states.sum(1)
    for skip in (skip1, skip2):
        if skip is not None:
            require(skip.shape == result.shape, operator, f"a skip has the shape {tuple(result.shape)}")
            result = result + skip.float()
    return result.to(expanded_permuted_rows.dtype)
