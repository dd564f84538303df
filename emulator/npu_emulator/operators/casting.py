"""Casts that torch_npu has operators of its own for."""

from __future__ import annotations

from npu_emulator.operators.registry import reference


@reference("npu::_npu_dtype_cast")
def npu_dtype_cast(input, dtype):
    """The same values in another dtype."""
    return input.to(dtype)
