"""Multimodal outputs of a model's forward, kept where graph replay refreshes them.

A replayed graph runs no Python: what the model returned beside its hidden states would be lost. So each
tensor is copied into a buffer of the runner's own. During capture that copy becomes part of the graph, and
every replay of every captured batch writes the same buffer again.
"""

from __future__ import annotations

from typing import Any

import torch

from omni_runners.errors import PayloadError
from omni_runners.outputs import flat


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
