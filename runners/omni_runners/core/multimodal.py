"""Multimodal outputs of a model's forward, kept where graph replay refreshes them.

A replayed graph runs no Python: what the model returned beside its hidden states would be lost. So each
tensor is copied into a buffer of the runner's own. During capture that copy becomes part of the graph, and
every replay of every captured batch writes the same buffer again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from omni_runners.core.rows import BatchRows
from omni_runners.errors import PayloadError

ALONE = "model_outputs"  # the name of an output that came without one
# vllm-omni's marks of outputs for some requests only, in the order of these ids
SPARSE, SPARSE_IDS = "meta.sparse_audio", "meta.req_id"
_YES = ("1", "true", "yes", "on")


class MultimodalOutputs:
    """The multimodal outputs of the step at hand. ``rows`` is the most tokens that a step has."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._buffers: dict[str, torch.Tensor] = {}
        self._per_request: dict[str, list[torch.Tensor]] = {}
        self._given: set[str] | None = None  # names of this step; None when no Python ran

    def begin(self) -> None:
        """A new step starts."""
        self._given = None

    def ran(self) -> None:
        """The model's forward ran, and gave nothing so far."""
        self._given = set()

    def take(self, outputs: Any, tokens: int) -> None:
        """Keep what the model's forward returned for ``tokens`` rows, padding included."""
        self._given = set()
        self._per_request = {}
        for name, value in flat(outputs).items():
            self._given.add(name)
            if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == tokens:
                self._buffer(name, value)[:tokens].copy_(value)
            else:
                self._per_request[name] = value

    def read(self, tokens: int) -> dict[str, Any]:
        """The outputs of this step: tensors (tokens, …), or lists with one tensor per request.

        Raises :class:`PayloadError` when a graph was replayed that has outputs per request.
        """
        if self._given is None and self._per_request:
            raise PayloadError(
                f"the model's forward gives {', '.join(self._per_request)} per request, which a replayed "
                "graph does not repeat",
                expected="tensors with one row per token, or make_omni_output, which runs outside the graph",
                try_='one of the two, or --compilation-config \'{"cudagraph_mode": "PIECEWISE"}\'',
            )
        names = self._buffers.keys() if self._given is None else self._given
        found: dict[str, Any] = {
            name: self._buffers[name][:tokens] for name in names if name in self._buffers
        }
        return found | {name: value for name, value in self._per_request.items() if name in names}

    def _buffer(self, name: str, like: torch.Tensor) -> torch.Tensor:
        found = self._buffers.get(name)
        if found is None or found.shape[0] < like.shape[0]:
            found = like.new_zeros((max(self._rows, like.shape[0]), *like.shape[1:]))
            self._buffers[name] = found
        return found


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


def by_request(outputs: Mapping[str, Any], rows: BatchRows) -> dict[str, Any]:
    """The outputs as tensors (rows, …), or lists with one tensor, or None, for each request of ``rows``.

    Raises :class:`PayloadError` for a value that is neither.
    """
    count = len(rows.request_ids)
    order = list(range(count))
    if any(str(one).lower() in _YES for one in _listed(outputs.get(SPARSE))):
        having = {one: index for index, one in enumerate(_listed(outputs.get(SPARSE_IDS)))}
        order = [having.get(one) for one in rows.request_ids]
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if name in (SPARSE, SPARSE_IDS):
            continue
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == rows.total:
            found[name] = value
        elif isinstance(value, torch.Tensor) and (not value.dim() or count == 1):
            found[name] = [value] * count
        elif isinstance(value, torch.Tensor) and value.shape[0] == count:
            found[name] = list(value.split(1))
        elif isinstance(value, list | tuple):
            found[name] = _per_request(name, value, order)
        elif isinstance(value, bool | int | float):
            found[name] = [torch.tensor(value)] * count
        elif isinstance(value, torch.Tensor):
            raise _misshapen(name, f"a tensor {tuple(value.shape)}", rows)
    return found


def _per_request(name: str, value: Any, order: list[int | None]) -> list[Any]:
    sparse = order != list(range(len(order)))
    if len(value) == 1 and not sparse:
        value = list(value) * len(order)  # the same for all
    if not sparse and len(value) != len(order):
        raise PayloadError(
            f"the model gave a list of {len(value)} as {name!r} to {len(order)} requests",
            expected="one tensor, or None, for each request of the step, in its order",
            try_="an empty tensor or None for a request that has nothing in this step",
        )
    picked = [value[index] if index is not None and index < len(value) else None for index in order]
    return [None if isinstance(one, str) else one for one in picked]


def _misshapen(name: str, what: str, rows: BatchRows) -> PayloadError:
    return PayloadError(
        f"the model gave {what} as {name!r} to {rows.total} tokens of {len(rows.request_ids)} requests",
        expected="one row for each token, one for each request, or a list with one tensor per request",
        try_="do not count the padding of a graph by hand: give rows as the forward got them",
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
