"""Triton's interpreter over the memory of the emulated NPU, and the CANN extensions of the language."""

from __future__ import annotations

import contextlib
import sys
import types

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from npu_emulator import kernels
from npu_emulator.operators.registry import CALLS
from npu_emulator.triton_kernels import bfloat16, lengths, speed, together


def install() -> None:
    """Let Triton's interpreter read and write NPU tensors in place, and take part in graph capture."""
    with contextlib.suppress(ImportError):
        # vllm-ascend later puts a stub in place of its parent; the real one has to be there first
        import triton.experimental.gluon.nvidia.hopper  # noqa: F401
    executor = interpreter.GridExecutor
    executor._init_args_hst = _arguments
    executor._restore_args_dev = lambda *arguments, **options: None
    executor.__call__ = _recorded(executor.__call__)
    bfloat16.install()
    builder = interpreter.InterpreterBuilder
    builder.binary_op = _comparing(builder.binary_op)
    _install_extensions()
    lengths.install()
    speed.install()
    together.install()


def _arguments(self, arguments, options):
    CALLS["triton::" + self.fn.__name__] += 1

    def enter(value):
        if isinstance(value, tuple):
            return interpreter._tuple_create(value, map(enter, value))
        return kernels.as_cpu(value)

    return [enter(value) for value in arguments], {name: enter(value) for name, value in options.items()}


def _comparing(binary_op):
    """What a comparison gives is a truth value, not of the compared type, which a broadcast would make it."""

    def compare(self, lhs, rhs, op):
        result = binary_op(self, lhs, rhs, op)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1
        return result

    return compare


def _recorded(call):
    def run(self, *arguments, **options):
        if kernels.native.recording():
            kernels.native.record(lambda: call(self, *arguments, **options))
        return call(self, *arguments, **options)

    return run


# ---- triton.language.extra.cann.extension ----


def _array(value):
    return value.handle.data if isinstance(value, tl.tensor) else np.array(value)


def _numbers(values):
    return [
        int(_array(value).item()) if isinstance(value, tl.tensor) else int(getattr(value, "value", value))
        for value in values
    ]


def _tensor(array, like):
    kind = tl.block_type(like.dtype.scalar, list(array.shape)) if array.shape else like.dtype.scalar
    return tl.tensor(interpreter.TensorHandle(np.ascontiguousarray(array), like.handle.dtype), kind)


def _slices(offsets, sizes, strides):
    spans = zip(_numbers(offsets), _numbers(sizes), _numbers(strides), strict=True)
    return tuple(slice(start, start + count * step, step) for start, count, step in spans)


def extract_slice(ful, offsets, sizes, strides, _builder=None, _generator=None, _semantic=None):
    """A strided part of a block."""
    return _tensor(_array(ful)[_slices(offsets, sizes, strides)], ful)


def insert_slice(ful, sub, offsets, sizes, strides, _builder=None, _generator=None, _semantic=None):
    """A block with a strided part replaced."""
    whole = _array(ful).copy()
    whole[_slices(offsets, sizes, strides)] = _array(sub)
    return _tensor(whole, ful)


def get_element(src, indice, _builder=None, _generator=None, _semantic=None):
    """One element of a block."""
    return _tensor(np.array(_array(src)[tuple(_numbers(indice))]), src)


def _install_extensions() -> None:
    import triton.language.extra as extra
    from triton.language.extra import libdevice

    extension = types.ModuleType("triton.language.extra.cann.extension")
    for function in (extract_slice, insert_slice, get_element):
        setattr(extension, function.__name__, function)
    cann = types.ModuleType("triton.language.extra.cann")
    cann.__path__ = []
    cann.libdevice, cann.extension, extra.cann = libdevice, extension, cann
    for module in (cann, extension):
        sys.modules[module.__name__] = module
    sys.modules["triton.language.extra.cann.libdevice"] = libdevice
