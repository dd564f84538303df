"""Filters of the logits."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require


@reference("npu::npu_top_k_top_p")
def npu_top_k_top_p(logits, p=None, k=None):
    require(logits.dim() == 2, "npu_top_k_top_p", f"logits have two dimensions, got {tuple(logits.shape)}")
    for name, limit in (("p", p), ("k", k)):
        fits = limit is None or limit.shape == logits.shape[:1]
        require(
            fits,
            "npu_top_k_top_p",
            f"{name} must have {logits.shape[0]} rows, got {None if limit is None else tuple(limit.shape)}",
        )
    ordered, order = logits.sort(dim=-1)
    if k is not None:
        least = (ordered.shape[1] - k.long()).clamp(min=0)
        ordered = ordered.masked_fill(ordered < ordered.gather(1, least[:, None]), float("-inf"))
    if p is not None:
        hidden = ordered.softmax(-1).cumsum(-1) <= 1 - p[:, None].float()
        hidden[:, -1] = False
        ordered = ordered.masked_fill(hidden, float("-inf"))
    return torch.empty_like(logits).scatter_(-1, order, ordered)
