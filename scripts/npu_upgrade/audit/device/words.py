"""Which words speak of one device, so that their absence on another one means nothing."""

from __future__ import annotations

import re

# Features that vllm-ascend has its own version of, under other names.
_REPLACED = re.compile(r"eplb|triton|deep_?gemm|ubatch")
_KERNELS = re.compile(r"triton|cuda(?!_?graph)", re.IGNORECASE)


def is_replaced(text: str) -> bool:
    """Whether it belongs to what vllm-ascend does in its own way."""
    return bool(_REPLACED.search(text))


def speaks_of_kernels(text: str) -> bool:
    """Whether a function, its docstring included, is about Triton or CUDA kernels."""
    return bool(_KERNELS.search(text))
