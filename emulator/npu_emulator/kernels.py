"""The native operator library, loaded from the folder that ``build`` filled."""

from __future__ import annotations

import functools
import importlib.util
import os
from types import ModuleType

import torch

NATIVE = "NPU_EMULATOR_NATIVE"


@functools.cache
def _load() -> ModuleType:
    path = os.path.join(os.environ[NATIVE], "_aten_kernels.so")
    spec = importlib.util.spec_from_file_location("_aten_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def __getattr__(name: str):
    """``native`` is loaded on first use: references are importable, and testable, without it."""
    if name != "native":
        raise AttributeError(name)
    return _load()


def as_cpu(value):
    """A CPU tensor over the same memory; anything that is not a tensor is returned as it is."""
    return _load().as_cpu(value) if isinstance(value, torch.Tensor) else value


def to_npu(value, device: int = -1):
    """A new NPU tensor of the same content, on the current device unless one is given; else ``value``."""
    return _load().to_npu(value, device) if isinstance(value, torch.Tensor) else value
