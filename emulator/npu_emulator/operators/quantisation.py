"""Quantisation of activations to int8: by the largest value of each token, or by given scales."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

_INT8 = (None, torch.int8, torch.qint8, 1, 12)  # the numbers are those of torch's ScalarType
_LARGEST = 127


@reference("npu::npu_dynamic_quant")
def npu_dynamic_quant(x, *, smooth_scales=None, group_index=None, dst_type=None):
    """Values (…, D) in int8, and the scale (…,) of each row in float32."""
    operator = "npu_dynamic_quant"
    require(x.dim() > 1, operator, f"x has more than one dimension, got {tuple(x.shape)}")
    require(x.dtype in (torch.float16, torch.bfloat16), operator, f"x is float16 or bfloat16, got {x.dtype}")
    if dst_type not in _INT8:
        raise lacking(operator, f"dst_type {dst_type}")
    if group_index is not None:
        raise lacking(operator, "group_index")
    values = x.float()
    if smooth_scales is not None:
        fits = tuple(smooth_scales.shape) == (x.shape[-1],) and smooth_scales.dtype == x.dtype
        expected = f"smooth_scales is ({x.shape[-1]},) of {x.dtype}"
        require(fits, operator, f"{expected}, got {tuple(smooth_scales.shape)} of {smooth_scales.dtype}")
        values = values * smooth_scales.float()
    scale = values.abs().amax(-1) / _LARGEST
    rounded = torch.where(scale[..., None] > 0, values / scale[..., None], 0).round()
    return rounded.to(torch.int8), scale


@reference("npu::npu_quantize")
def npu_quantize(input, scales, zero_points, dtype, axis=1, div_mode=True):
    """Values in int8: divided by ``scales``, without ``div_mode`` multiplied with them, plus an offset."""
    operator = "npu_quantize"
    kinds = (torch.float16, torch.bfloat16, torch.float32)
    require(input.dtype in kinds, operator, f"input is floating point, got {input.dtype}")
    scale_kinds = kinds[1:] if div_mode else kinds
    require(scales.dtype in scale_kinds, operator, f"scales is one of {scale_kinds}, got {scales.dtype}")
    if dtype not in _INT8[1:]:
        raise lacking(operator, f"dtype {dtype}")
    if not div_mode:  # then -2 is the only axis that is not the last
        axis = -2 if axis == -2 else -1
    factors = _along(operator, input, scales, axis)
    values = input.float() / factors if div_mode else input.float() * factors
    if zero_points is not None:
        fits = zero_points.shape == scales.shape
        require(fits, operator, f"offsets like scales {tuple(scales.shape)}, got {tuple(zero_points.shape)}")
        values = values + _along(operator, input, zero_points, axis)
    return values.round().clamp(-_LARGEST - 1, _LARGEST).to(torch.int8)


def _along(operator, input, parts, axis):
    """``parts``, one or as many as ``input`` has along ``axis``, in a shape that spreads over it."""
    require(-input.dim() <= axis < input.dim(), operator, f"axis {axis} of {input.dim()} dimensions")
    count = input.shape[axis]
    require(parts.numel() in (1, count), operator, f"one scale or {count}, got {parts.numel()}")
    shape = [1] * input.dim()
    shape[axis] = parts.numel()
    return parts.float().reshape(shape)
