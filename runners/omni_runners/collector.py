"""Gather each request's rows over its steps, on the scheduler's side, until the request ends."""

from __future__ import annotations

from typing import Any

import torch

from omni_runners.errors import PayloadError
from omni_runners.payload_files import LIMIT


class _Rows:
    """The rows of one tensor so far, as bytes."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...], per_token: bool) -> None:
        self.dtype, self.shape, self.per_token, self.data = dtype, shape, per_token, bytearray()

    def tensor(self, tokens: int) -> torch.Tensor:
        """(rows, …), at most ``tokens`` rows where there is one per token."""
        if not self.data:
            return torch.empty((0, *self.shape), dtype=self.dtype)
        whole = torch.frombuffer(self.data, dtype=self.dtype).view(-1, *self.shape)
        return whole[:tokens] if self.per_token else whole


class Collected:
    """The tensors of one request. ``limit`` is in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit, self._rows, self._bytes = limit, {}, 0
        self._error: str | None = None

    def restart(self) -> None:
        """The request was preempted and is computed anew."""
        self._rows, self._bytes, self._error = {}, 0, None

    def add(self, request_id: str, step: Any) -> None:
        """Append what a StepPayload has for the request."""
        self._error = self._error or step.error
        if self._error:
            return
        span = step.spans[request_id]
        for name, column in step.columns.items():
            self._append(name, column, column.data[span], per_token=True)
        for name, column in step.own.get(request_id, {}).items():
            self._append(name, column, column.data, per_token=False)

    def _append(self, name: str, column: Any, data: Any, per_token: bool) -> None:
        rows = self._rows.setdefault(name, _Rows(column.dtype, column.shape, per_token))
        if (rows.dtype, rows.shape) != (column.dtype, column.shape):
            self._fail(
                f"rows of {name!r} are {column.dtype} {column.shape} and were {rows.dtype} {rows.shape}",
                "rows of one shape and type in all steps of a request",
                "pad them in the model",
            )
        elif self._bytes + data.nbytes > self._limit:
            self._fail(
                f"the request's tensors have more than {self._limit} bytes",
                f"at most {self._limit} bytes",
                f"shorter requests, or raise {LIMIT}",
            )
        else:
            rows.data += memoryview(data).cast("B") if data.nbytes else b""
            self._bytes += data.nbytes

    def _fail(self, what: str, expected: str, try_: str) -> None:
        self._error = str(PayloadError(what, expected=expected, try_=try_))
        self._rows = {}

    def tensors(self, tokens: int) -> dict[str, torch.Tensor]:
        """All tensors by name, (rows, …), of a request's first ``tokens``. Raises :class:`PayloadError`."""
        if self._error:
            raise PayloadError(self._error)
        if not self._rows:
            raise PayloadError(
                "the runner gave no rows for this request",
                expected="a worker of omni_runners",
                try_="--worker-cls, such as omni_runners.gpu.ARGPUWorker",
            )
        return {name: rows.tensor(tokens) for name, rows in self._rows.items()}
