"""The native operator library, loaded from the folder that ``build`` filled."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

import torch

NATIVE = "NPU_EMULATOR_NATIVE"


def _load() -> ModuleType:
    path = os.path.join(os.environ[NATIVE], "_aten_kernels.so")
    spec = importlib.util.spec_from_file_location("_aten_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native = _load()


def as_cpu(value):
    """A CPU tensor over the same memory; anything that is not a tensor is returned as it is."""
    return native.as_cpu(value) if isinstance(value, torch.Tensor) else value


def to_npu(value, device: int = 0):
    """A new NPU tensor of the same content; anything that is not a tensor is returned as it is."""
    return native.to_npu(value, device) if isinstance(value, torch.Tensor) else value
