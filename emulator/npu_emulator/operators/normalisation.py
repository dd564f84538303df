"""RMS normalisation, alone and fused with the residual addition; layer normalisation."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import reference
from npu_emulator.problems import require

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def _rms(x, gamma, epsilon, beta=None):
    wide = x.float()
    reverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    y = wide * reverse * gamma.float()
    return (y if beta is None else y + beta.float()).to(x.dtype), reverse


def _check(operator, x, gamma):
    require(x.dtype in _FLOATS, operator, f"input must be float16, bfloat16 or float32, got {x.dtype}")
    require(
        tuple(gamma.shape) == tuple(x.shape[-gamma.dim() :]),
        operator,
        f"gamma must have the last dimensions of the input {tuple(x.shape)}, got {tuple(gamma.shape)}",
    )


def _check_sum(operator, x1, x2, gamma):
    require(
        x1.shape == x2.shape,
        operator,
        f"x1 and x2 must have one shape, got {tuple(x1.shape)} and {tuple(x2.shape)}",
    )
    require(x1.dtype == x2.dtype, operator, f"x1 and x2 must have one dtype, got {x1.dtype} and {x2.dtype}")
    _check(operator, x1, gamma)


@reference("npu::npu_rms_norm")
def npu_rms_norm(x, gamma, epsilon=1e-6):
    _check("npu_rms_norm", x, gamma)
    return _rms(x, gamma, epsilon)


@reference("npu::npu_add_rms_norm")
def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    _check_sum("npu_add_rms_norm", x1, x2, gamma)
    total = x1 + x2
    y, reverse = _rms(total, gamma, epsilon)
    return y, reverse, total


@reference("_C_ascend::npu_add_rms_norm_bias")
def npu_add_rms_norm_bias(x1, x2, gamma, beta=None, epsilon=1e-6):
    _check_sum("npu_add_rms_norm_bias", x1, x2, gamma)
    total = x1 + x2
    y, reverse = _rms(total, gamma, epsilon, beta)
    return y, reverse, total


@reference("_C_ascend::npu_gemma_rms_norm")
def npu_gemma_rms_norm(x, gamma, epsilon=1e-6):
    _check("npu_gemma_rms_norm", x, gamma)
    return _rms(x, 1.0 + gamma.float(), epsilon)


@reference("npu::npu_layer_norm_eval")
def npu_layer_norm_eval(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    shape = list(normalized_shape)
    require(input.dtype in _FLOATS, "npu_layer_norm_eval", f"input is of floats, got {input.dtype}")
    require(
        list(input.shape[-len(shape) :]) == shape,
        "npu_layer_norm_eval",
        f"normalized_shape {shape} is the end of the input's {tuple(input.shape)}",
    )
    wide = [None if one is None else one.float() for one in (weight, bias)]
    return torch.nn.functional.layer_norm(input.float(), shape, *wide, eps).to(input.dtype)
