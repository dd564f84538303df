"""Gather each request's rows over its steps, on the scheduler's side, until the request ends."""

from __future__ import annotations

import math
from typing import Any

import torch

from omni_runners.errors import PayloadError
from omni_runners.payload_files import LIMIT


class _Rows:
    """The rows of one tensor so far, as bytes; the first ``sent`` of them have left as parts."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...], per_token: bool) -> None:
        self.dtype, self.shape, self.per_token, self.data = dtype, shape, per_token, bytearray()
        self.sent = 0

    def tensor(self, tokens: int | None, first: int = 0) -> torch.Tensor:
        """(rows, …) from row ``first``, at most ``tokens`` rows in all where there is one per token."""
        data = self.data[first * self.dtype.itemsize * math.prod(self.shape) :]
        if not data:
            return torch.empty((0, *self.shape), dtype=self.dtype)
        rows = torch.frombuffer(data, dtype=self.dtype).view(-1, *self.shape)
        return rows[: tokens - first] if self.per_token and tokens is not None else rows


class Collected:
    """The tensors of one request. ``limit`` is in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit, self._rows, self._bytes = limit, {}, 0
        self._error: str | None = None
        self._names: set[str] | None = None  # of those with one row for each token

    def restart(self) -> None:
        """The request was preempted and is computed anew."""
        self._rows, self._bytes, self._error, self._names = {}, 0, None, None

    def add(self, index: int, step: Any) -> None:
        """Append what a StepPayload has for the request with number ``index``."""
        self._error = self._error or step.errors.get(index)
        if self._error:
            return
        names = step.columns.keys()
        if self._names is not None and self._names != names:
            changed = ", ".join(sorted(self._names ^ names))
            self._fail(
                f"the model gave rows of {changed} in some steps and not in others",
                "the same names in all steps of a request, where there is one row for each token",
                "a list with None for requests that have nothing in a step",
            )
            return
        self._names = set(names)
        for name, column in step.of(index):
            self._append(name, column)

    def _append(self, name: str, column: Any) -> None:
        rows = self._rows.setdefault(name, _Rows(column.dtype, column.shape, column.per_token))
        if (rows.dtype, rows.shape) != (column.dtype, column.shape):
            self._fail(
                f"rows of {name!r} are {column.dtype} {column.shape} and were {rows.dtype} {rows.shape}",
                "rows of one shape and type in all steps of a request",
                "pad them in the model",
            )
        elif self._bytes + column.data.nbytes > self._limit:
            self._fail(
                f"the request's tensors have more than {self._limit} bytes",
                f"at most {self._limit} bytes",
                f"shorter requests, or raise {LIMIT}",
            )
        elif not self._error:
            rows.data += memoryview(column.data).cast("B") if column.data.nbytes else b""
            self._bytes += column.data.nbytes

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

    def part(self) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
        """What is new since the last part: the number of each tensor's first row, and its rows."""
        first = {name: rows.sent for name, rows in self._rows.items()}
        new = {name: rows.tensor(None, rows.sent) for name, rows in self._rows.items()}
        for name, tensor in new.items():
            self._rows[name].sent += len(tensor)
        return first, new
