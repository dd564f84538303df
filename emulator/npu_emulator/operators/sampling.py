"""Filters of the logits."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require

_NAME = "npu_top_k_top_p"


def _check(logits, p, k):
    require(logits.dim() == 2, _NAME, f"logits have two dimensions, got {tuple(logits.shape)}")
    require(p is not None or k is not None, _NAME, "p and k cannot both be None")
    for name, limit, dtype in (("p", p, logits.dtype), ("k", k, torch.int32)):
        if limit is None:
            continue
        rows = f"{name} must have {logits.shape[0]} rows, got {tuple(limit.shape)}"
        require(limit.shape == logits.shape[:1], _NAME, rows)
        require(limit.dtype == dtype, _NAME, f"{name} must be {dtype}, got {limit.dtype}")


# vllm-ascend 0.18.0 ... 0.22.1rc1 bring the operator themselves, under their own name
@reference("npu::npu_top_k_top_p", "_C_ascend::npu_apply_top_k_top_p")
def npu_top_k_top_p(logits, p=None, k=None):
    _check(logits, p, k)
    ordered, order = logits.sort(dim=-1)
    if k is not None:
        least = (ordered.shape[1] - k.long()).clamp(min=0)
        ordered = ordered.masked_fill(ordered < ordered.gather(1, least[:, None]), float("-inf"))
    if p is not None:
        hidden = ordered.softmax(-1).cumsum(-1) <= 1 - p[:, None].float()
        hidden[:, -1] = False
        ordered = ordered.masked_fill(hidden, float("-inf"))
    return torch.empty_like(logits).scatter_(-1, order, ordered)
