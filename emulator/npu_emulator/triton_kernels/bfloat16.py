"""Numbers of bfloat16 in Triton's interpreter, which keeps them as uint16 and would compute with their bits.

As on the device each operation widens to float32, and its result is rounded to the nearest, ties to even.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_OPERATIONS = (
    "binary_op",
    "ternary_op",
    "unary_op",
    "create_fma",
    "create_erf",
    "create_rsqrt",
    "create_dot",
)
_NAN = 0x7FC0


def install() -> None:
    """Let the interpreter compute with the values of bfloat16, and round what is cast to it."""
    builder = interpreter.InterpreterBuilder
    for name in _OPERATIONS:
        setattr(builder, name, _widened(getattr(builder, name)))
    builder.get_bf16 = lambda self, value: _narrow(np.array([value], np.float32))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _cast(builder.create_fp_to_fp)
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _along_an_axis(kind.apply_impl)


def _widened(real):
    def operation(self, *given):
        narrow = [_is_bfloat16(one) for one in given if isinstance(one, interpreter.TensorHandle)]
        if not any(narrow):
            return real(self, *given)
        result = real(self, *(_wide(one) if _is_bfloat16(one) else one for one in given))
        # the last operand has the type of the result; a comparison gives truth values
        return _narrow(result.data) if narrow[-1] and result.data.dtype != np.bool_ else result

    return operation


def _cast(real):
    def cast(self, src, dst_type, *rounding):
        kinds, to_zero = (src.dtype.scalar, dst_type.scalar), rounding and "RTZ" in str(rounding[0])
        if tl.bfloat16 not in kinds or any(one.primitive_bitwidth == 8 for one in kinds) or to_zero:
            return real(self, src, dst_type, *rounding)
        wide = _wide(src) if _is_bfloat16(src) else src
        if dst_type.scalar == tl.bfloat16:
            return _narrow(wide.data)
        if dst_type.scalar == tl.float32:
            return wide
        return interpreter.InterpreterBuilder.cast_impl(self, wide, dst_type)

    return cast


def _along_an_axis(real):
    def apply(self, blocks):
        narrow = [_is_bfloat16(one.handle) for one in blocks]
        if not any(narrow):
            return real(self, blocks)
        wide = (_like(one, _wide(one.handle)) if _is_bfloat16(one.handle) else one for one in blocks)
        found = real(self, tuple(wide))
        results = []
        for at, one in enumerate(found if isinstance(found, tuple | list) else [found]):
            rounds = narrow[min(at, len(narrow) - 1)] and one.dtype == tl.float32  # else the place of a value
            results.append(_like(one, _narrow(one.handle.data)) if rounds else one)
        return results

    return apply


def _like(tensor, handle):
    kind = tensor.type
    return tl.tensor(handle, tl.block_type(handle.dtype, kind.shape) if kind.is_block() else handle.dtype)


def _is_bfloat16(value) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16


def _wide(handle):
    bits = handle.data.astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), tl.float32)


def _narrow(array):
    """The nearest numbers of bfloat16 to those of an array."""
    wide = np.ascontiguousarray(array, np.float32)
    bits = wide.view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    data = np.where(np.isnan(wide), _NAN, nearest).astype(np.uint16)
    return interpreter.TensorHandle(data.reshape(np.shape(array)), tl.bfloat16)
