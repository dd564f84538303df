"""Histograms: PyTorch counts whole numbers on devices only, and the emulated device counts on the CPU."""

from __future__ import annotations

import torch

from npu_emulator.operators.registry import kernel, reference
from npu_emulator.problems import require


@reference("aten::histc")
def histc(input, bins=100, min=0, max=0):
    """How many elements of ``input`` are in each of ``bins`` ranges from ``min`` to ``max``, in its type."""
    require(bins > 0, "histc", f"bins is positive, got {bins}")
    require(min <= max, "histc", f"min is at most max, got {min} and {max}")
    return torch.histc(input.double(), bins, min, max).to(input.dtype)  # double holds each int32 exactly


_library = torch.library.Library("aten", "IMPL")  # its kernel lives as long as it does
_library.impl("histc", kernel("aten::histc", histc), "PrivateUse1", allow_override=True)
