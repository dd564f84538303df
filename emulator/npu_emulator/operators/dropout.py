"""Dropout, which no inference uses, and which torch's pattern matcher traces."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require

_BITS = 128  # the mask is padded to so many


@reference("npu::_npu_dropout")
def npu_dropout(input, p):
    """What is kept divided by 1 - ``p``, and the mask: one bit for each element, lowest first, in uint8."""
    require(0 <= p < 1, "_npu_dropout", f"p is a probability below 1, got {p}")
    count = -(-input.numel() // _BITS) * _BITS
    kept = torch.rand(count, generator=torch.Generator().manual_seed(0)) >= p  # nobody's seed moves
    weights = 2 ** torch.arange(8)
    mask = (kept.view(-1, 8) * weights).sum(-1).to(torch.uint8)
    inside = kept[: input.numel()].view(input.shape)
    return torch.where(inside, input / (1 - p), torch.zeros_like(input)), mask
