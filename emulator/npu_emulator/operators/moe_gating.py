"""The choice of experts: scores, groups of experts, the best ``k`` of each token."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_MOST_EXPERTS, _MOST_CHOSEN, _ALIGNED = 2048, 1024, 32
_SOFTMAX, _SIGMOID = 0, 1


def _check(operator, x, k, bias, k_group, group_count, group_select_mode, norm_type):
    require(x.dim() == 2, operator, f"x has two dimensions, got {tuple(x.shape)}")
    require(x.dtype in _FLOATS, operator, f"x must be float16, bfloat16 or float32, got {x.dtype}")
    experts = x.shape[1]
    require(experts <= _MOST_EXPERTS, operator, f"at most {_MOST_EXPERTS} experts, got {experts}")
    require(
        group_count > 0 and experts % group_count == 0, operator, f"{experts} experts in {group_count} groups"
    )
    inside = experts // group_count
    require(1 <= k_group <= group_count, operator, f"k_group is 1 to {group_count}, got {k_group}")
    require(1 <= k <= inside * k_group, operator, f"k is 1 to {inside * k_group}, got {k}")
    aligned = (inside + _ALIGNED - 1) // _ALIGNED * _ALIGNED * group_count
    require(
        k_group == group_count or group_count == 1 or aligned <= _MOST_EXPERTS,
        operator,
        f"the groups aligned to {_ALIGNED} experts have at most {_MOST_EXPERTS}, got {aligned}",
    )
    require(
        group_select_mode == 0 or inside > 1,
        operator,
        f"group_select_mode 1 needs two experts in a group, got {inside}",
    )
    require(norm_type in (_SOFTMAX, _SIGMOID), operator, f"norm_type is 0 or 1, got {norm_type}")
    if bias is not None:
        fits = bias.dtype == x.dtype and tuple(bias.shape) == (experts,)
        require(
            fits,
            operator,
            f"bias must be {x.dtype} with {experts} values, got {bias.dtype} {tuple(bias.shape)}",
        )


def _gating(x, k, bias, k_group, group_count, group_select_mode, norm_type, renorm, factor, eps):
    """Weights (tokens, k) like x, experts (tokens, k) int32, all scores (tokens, experts) float32."""
    wide = x.float()
    scores = wide.softmax(-1) if norm_type == _SOFTMAX else wide.sigmoid()
    wanted = scores if bias is None else scores + bias.float()
    if k_group < group_count:
        groups = wanted.unflatten(1, (group_count, -1))
        best = groups.topk(2, -1).values.sum(-1) if group_select_mode else groups.amax(-1)
        taken = torch.zeros_like(best, dtype=torch.bool).scatter_(1, best.topk(k_group, -1).indices, True)
        wanted = groups.masked_fill(~taken[..., None], float("-inf")).flatten(1)
    experts = wanted.topk(k, -1).indices
    weights = scores.gather(1, experts)
    if renorm or norm_type == _SIGMOID:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return (weights * factor).to(x.dtype), experts.int(), scores


@reference("npu::npu_moe_gating_top_k")
def npu_moe_gating_top_k(
    x, k, *, bias=None, k_group=1, group_count=1, group_select_mode=0, renorm=0, norm_type=0, out_flag=False,
    routed_scaling_factor=1.0, eps=1e-20,
):  # fmt: skip
    operator = "npu_moe_gating_top_k"
    _check(operator, x, k, bias, k_group, group_count, group_select_mode, norm_type)
    require(renorm == 0, operator, f"renorm is 0, got {renorm}")
    return _gating(
        x, k, bias, k_group, group_count, group_select_mode, norm_type, 0, routed_scaling_factor, eps
    )


@reference("_C_ascend::moe_gating_top_k")
def moe_gating_top_k(
    x, k, k_group, group_count, group_select_mode, renorm, norm_type, out_flag, routed_scaling_factor, eps,
    bias_opt=None,
):  # fmt: skip
    operator = "moe_gating_top_k"
    _check(operator, x, k, bias_opt, k_group, group_count, group_select_mode, norm_type)
    require(renorm in (0, 1), operator, f"renorm is 0 or 1, got {renorm}")
    return _gating(
        x, k, bias_opt, k_group, group_count, group_select_mode, norm_type, renorm, routed_scaling_factor, eps
    )


@reference("npu::npu_moe_gating_top_k_softmax")
def npu_moe_gating_top_k_softmax(x, finished=None, k=1):
    """Weights, experts, and for each the row of the tokens counted expert after expert."""
    operator = "npu_moe_gating_top_k_softmax"
    require(x.dim() in (2, 3), operator, f"x has two or three dimensions, got {tuple(x.shape)}")
    require(x.dtype in _FLOATS, operator, f"x must be float16, bfloat16 or float32, got {x.dtype}")
    most = min(x.shape[-1], _MOST_CHOSEN)
    require(0 < k <= most, operator, f"k is 1 to {most}, got {k}")
    weights, experts = x.float().softmax(-1).topk(k, -1)
    if finished is not None:
        fits = finished.dtype == torch.bool and finished.shape == x.shape[:-1]
        require(fits, operator, f"finished is bool of the shape {tuple(x.shape[:-1])}")
        experts = experts.masked_fill(finished[..., None], x.shape[-1])
    rows = torch.arange(x.shape[:-1].numel() * k, dtype=torch.int32).view(k, -1).t().reshape(experts.shape)
    return weights.to(x.dtype), experts.int(), rows.contiguous()
