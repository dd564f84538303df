"""The outputs of a model beside its hidden states, and which of them belong to which request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from omni_runners.errors import PayloadError

ALONE = "model_outputs"  # the name of an output that came without one
# vllm-omni's marks of outputs for some requests only, in the order of these ids
SPARSE, SPARSE_IDS = "meta.sparse_audio", "meta.req_id"
_YES = ("1", "true", "yes", "on")


def flat(outputs: Any, prefix: str = "") -> dict[str, Any]:
    """``{"codes": {"audio": x}}`` as ``{"codes.audio": x}``; None values are left out.

    What is no dictionary is the output of its request alone.
    """
    found: dict[str, Any] = {}
    if outputs is not None and not isinstance(outputs, Mapping):
        outputs = {ALONE: list(outputs) if isinstance(outputs, torch.Tensor) else outputs}
    for name, value in (outputs or {}).items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = value
    return found


def by_request(outputs: Mapping[str, Any], request_ids: Sequence[str], tokens: int) -> dict[str, Any]:
    """The outputs as tensors (tokens, …), or lists with one tensor, or None, for each of ``request_ids``.

    Raises :class:`PayloadError` for a value that is neither.
    """
    sparse: list[int | None] | None = None
    if any(str(one).lower() in _YES for one in _listed(outputs.get(SPARSE))):
        having = {one: index for index, one in enumerate(_listed(outputs.get(SPARSE_IDS)))}
        sparse = [having.get(one) for one in request_ids]
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == tokens:
            found[name] = value
        elif name not in (SPARSE, SPARSE_IDS) and isinstance(
            value, torch.Tensor | list | tuple | int | float
        ):
            found[name] = _per_request(name, value, len(request_ids), sparse)
    return found


def _per_request(name: str, value: Any, count: int, sparse: list[int | None] | None) -> list[Any]:
    if not isinstance(value, list | tuple):
        whole = torch.as_tensor(value)
        value = [whole] * count if not whole.dim() or count == 1 else list(whole.split(1))
    if sparse is not None:
        value = [value[one] if one is not None and one < len(value) else None for one in sparse]
    if len(value) == 1:  # the same for all
        value = list(value) * count
    if len(value) != count:
        raise PayloadError(
            f"the model gave {len(value)} rows or values as {name!r} to {count} requests",
            expected="one row for each token, or one tensor, or None, for each request, in the step's order",
            try_="an empty tensor or None for a request that has nothing in this step",
        )
    return [None if isinstance(one, str) else one for one in value]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
