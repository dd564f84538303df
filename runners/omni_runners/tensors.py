"""Tensors in a request's information: how another process sends them, and how they are read."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import torch


def pack(tensor: torch.Tensor) -> dict[str, Any]:
    """A tensor as data that JSON takes, for ``omni_info`` in a request's extra arguments."""
    whole = tensor.detach().cpu().contiguous()
    return {
        "tensor_data": base64.b64encode(whole.flatten().view(torch.uint8).numpy().tobytes()).decode(),
        "tensor_shape": list(whole.shape),
        "tensor_dtype": str(whole.dtype).removeprefix("torch."),
    }


def unpacked(sent: Any) -> dict[str, Any]:
    """A request's information with its tensors; "a.b" as a key is the key b in the dictionary a.

    ``sent`` is a dictionary, or an object whose ``entries`` are one, as vllm-omni's stages send it. An entry
    is a value, what :func:`pack` made, or an object with the same fields as attributes.
    """
    found: dict[str, Any] = {}
    for key, entry in (getattr(sent, "entries", sent) or {}).items():
        outer, _, inner = key.partition(".") if hasattr(sent, "entries") else (key, "", "")
        value = _value(entry)
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[outer] = value
    return found


def _value(entry: Any) -> Any:
    if isinstance(entry, Mapping) and "tensor_data" not in entry:
        return {key: _value(one) for key, one in entry.items()}
    data = _field(entry, "tensor_data")
    if data is not None:
        raw = base64.b64decode(data) if isinstance(data, str) else data
        dtype = getattr(torch, _field(entry, "tensor_dtype"))
        shape = _field(entry, "tensor_shape")
        return (
            torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
            if raw
            else torch.empty(shape, dtype=dtype)
        )
    if hasattr(entry, "list_data"):
        return entry.scalar_data if entry.list_data is None else entry.list_data
    return entry


def _field(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)
