"""Activations of the feed-forward layers."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require


@reference("npu::npu_swiglu")
def npu_swiglu(x, dim=-1):
    require(x.shape[dim] % 2 == 0, "npu_swiglu", f"dimension {dim} must be even, got {x.shape[dim]}")
    gate, up = x.chunk(2, dim)
    return (torch.nn.functional.silu(gate.float()) * up.float()).to(x.dtype)


@reference("npu::npu_fast_gelu")
def npu_fast_gelu(x):
    # the device's approximation: x * sigmoid(1.702 |x|), mirrored for negative values
    wide = x.float()
    magnitude = wide.abs()
    return (wide / (1 + torch.exp(-1.702 * magnitude)) * torch.exp(0.851 * (wide - magnitude))).to(x.dtype)
