"""Quantisation of activations to int8, by the largest value of each token or by scales; products of it."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import lacking, require

_INT8 = (None, torch.int8, torch.qint8, 1, 12)  # the numbers are those of torch's ScalarType
_NUMBERED = {3: torch.int32, 5: torch.float16, 15: torch.bfloat16}
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


_MATMUL = "npu_quant_matmul"
_MOST_COLUMNS = 65535
_BEFORE, _AFTER = (torch.int32,), (torch.float16, torch.bfloat16, torch.float32)
"""Types of a bias that is added to the integers, and to what the scales made of them."""
_SCALES = {
    torch.float16: (torch.float32,),
    torch.int8: (torch.float32,),
    torch.bfloat16: (torch.float32, torch.bfloat16),
    torch.int32: (torch.float32, torch.bfloat16),
}
_FLOAT_BIAS = {
    torch.bfloat16: (torch.bfloat16, torch.float32),
    torch.float16: (torch.float16, torch.float32),
}


@reference(f"npu::{_MATMUL}")
def npu_quant_matmul(
    x1, x2, scale, *, offset=None, pertoken_scale=None, bias=None, output_dtype=None, **formats
):  # fmt: skip
    """The product (…, m, n) of int8 (…, m, k) and (…, k, n), scaled by column and row; in int32 as it is."""
    given = sorted(name for name, value in formats.items() if value is not None)
    if given:
        raise lacking(_MATMUL, ", ".join(given))
    if x1.dtype != torch.int8 or x2.dtype != torch.int8:
        raise lacking(_MATMUL, f"x1 of {x1.dtype} with x2 of {x2.dtype}")
    if scale.dtype == torch.int64:
        raise lacking(_MATMUL, "a scale packed into int64")
    kind = torch.int8 if output_dtype in _INT8 else _NUMBERED.get(output_dtype, output_dtype)
    _check_matmul(x1, x2, scale, offset, pertoken_scale, bias, kind)
    product = x1.double() @ x2.double()  # exact: the sums stay far below 2**53
    if bias is not None and bias.dtype in _BEFORE:
        product = product + bias
    if kind == torch.int32:
        return product.to(kind)
    product = product.float() * scale.float()
    if pertoken_scale is not None:
        product = product * pertoken_scale[:, None]
    if bias is not None and bias.dtype in _AFTER:
        product = product + bias.float()
    if kind == torch.int8:
        product = product if offset is None else product + offset
        product = product.round().clamp(-_LARGEST - 1, _LARGEST)
    return product.to(kind)


def _check_matmul(x1, x2, scale, offset, pertoken_scale, bias, kind):
    for name, value in (("x1", x1), ("x2", x2)):
        require(2 <= value.dim() <= 6, _MATMUL, f"{name} has 2 to 6 dimensions, got {value.dim()}")
        last = value.shape[-1]
        require(
            last <= _MOST_COLUMNS,
            _MATMUL,
            f"the last dimension of {name} is at most {_MOST_COLUMNS}, got {last}",
        )
    rows, inner, columns = x1.shape[-2], x1.shape[-1], x2.shape[-1]
    require(inner == x2.shape[-2], _MATMUL, f"x1 has {inner} columns, x2 {x2.shape[-2]} rows")
    require(kind in _SCALES, _MATMUL, f"output_dtype is int8, float16, bfloat16 or int32, got {kind}")
    require(
        scale.dtype in _SCALES[kind],
        _MATMUL,
        f"for {kind} scale is one of {_SCALES[kind]}, got {scale.dtype}",
    )
    for name, value in (("scale", scale), ("offset", offset)):
        fits = value is None or (value.dim() == 1 and value.shape[0] in (1, columns))
        require(
            fits, _MATMUL, f"{name} is (1,) or ({columns},), got {value is not None and tuple(value.shape)}"
        )
    if offset is not None:
        fits = kind == torch.int8 and offset.dtype == torch.float32
        require(fits, _MATMUL, f"offset is float32 and for an int8 result, got {offset.dtype} for {kind}")
    if pertoken_scale is not None:
        fits = kind in _FLOAT_BIAS and pertoken_scale.dtype == torch.float32
        limit = "pertoken_scale is float32 and for a float16 or bfloat16 result"
        require(fits, _MATMUL, f"{limit}, got {pertoken_scale.dtype} for {kind}")
        fits = tuple(pertoken_scale.shape) == (rows,)
        require(fits, _MATMUL, f"pertoken_scale is ({rows},), got {tuple(pertoken_scale.shape)}")
    if bias is not None:
        after = _FLOAT_BIAS.get(kind, ()) if pertoken_scale is not None or kind == torch.bfloat16 else ()
        require(bias.dtype in _BEFORE + after, _MATMUL, f"bias is one of {_BEFORE + after}, got {bias.dtype}")
        fits = bias.shape[-1] == columns and bias.dim() <= 3
        require(
            fits,
            _MATMUL,
            f"bias is ({columns},), (1, {columns}) or (batch, 1, {columns}), got {tuple(bias.shape)}",
        )
