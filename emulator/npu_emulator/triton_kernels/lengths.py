"""Blocks of any length, as Triton for Ascend takes them; Triton itself takes powers of two only."""

from __future__ import annotations

import math

from triton.language import core
from triton.language.semantic import TritonSemantic


def install() -> None:
    """Let kernels use blocks whose length is no power of two, up to Triton's largest."""
    core.validate_block_shape = _elements(core.validate_block_shape)
    TritonSemantic.arange = _arange(TritonSemantic.arange)


def _elements(real):
    def elements(shape):
        if all(isinstance(length, int) for length in shape):
            # the limit on all of them together is checked with the next power of two
            real([2 ** max(math.prod(shape) - 1, 0).bit_length()])
            return math.prod(shape)
        return real(shape)

    return elements


def _arange(real):
    def arange(self, start, end, *, ret_ty=None):
        constants = isinstance(start, int) and isinstance(end, int)
        if not constants or end <= start or (end - start).bit_count() == 1:
            return real(self, start, end, ret_ty=ret_ty)
        kind = ret_ty or core.block_type(core.int32, [end - start])
        made = self.builder.create_make_range(kind.to_ir(self.builder), start, end)
        return self.tensor(made, kind)

    return arange
