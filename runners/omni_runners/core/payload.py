"""A step's tensors on their way from the device to the scheduler, in ``ModelRunnerOutput.pooler_output``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from vllm.v1.outputs import AsyncModelRunnerOutput

from omni_runners.core.rows import BatchRows


class Column(NamedTuple):
    """Rows of one tensor as bytes: ``data`` is a numpy array (rows, bytes per row).

    numpy has no bfloat16, so ``dtype`` is the tensor's own and ``shape`` that of one row.
    """

    data: Any
    dtype: torch.dtype
    shape: tuple[int, ...]


class StepPayload(NamedTuple):
    """What a step gives to the requests that want it.

    ``columns`` are shared: request ``r`` has rows ``spans[r]`` of each. ``own`` has for a request what was
    given per request. ``error`` says why there is nothing.
    """

    spans: dict[str, slice]
    columns: dict[str, Column]
    own: dict[str, dict[str, Column]]
    error: str | None = None


class HostCopy:
    """A copy to host memory, started at once and waited for in :meth:`result`.

    ``tensors`` maps a name to a tensor (rows, …) or to one tensor per request of ``rows``.
    """

    def __init__(self, rows: BatchRows, wanted: list[int], tensors: Mapping[str, Any]) -> None:
        self._rows, self._wanted = rows, wanted
        self._own: dict[str, dict[str, torch.Tensor]] = {rows.request_ids[index]: {} for index in wanted}
        self._shared: dict[str, torch.Tensor] = {}
        self._event: Any = None
        for name, value in tensors.items():
            if isinstance(value, torch.Tensor):
                self._shared[name] = self._copy(self._wanted_rows(value))
                continue
            for index in wanted:
                self._own[rows.request_ids[index]][name] = self._copy(torch.atleast_1d(value[index]))
        if self._event is not None:
            self._event.record()

    def _wanted_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        if len(self._wanted) == len(self._rows.request_ids):
            return tensor[: self._rows.total]
        return torch.cat([tensor[self._rows.span(index)] for index in self._wanted])

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            return tensor.clone()  # the next step may write into the same memory
        if self._event is None:
            # torch.Event is another class under torch_npu; this one is right on every device
            self._event = torch.get_device_module(tensor.device).Event()
        return tensor.to("cpu", non_blocking=True)

    def result(self, sampled: list[list[int]]) -> StepPayload:
        """Wait for the copy, and leave out rows of rejected drafts; ``sampled`` are the step's new tokens."""
        if self._event is not None:
            self._event.synchronize()
        spans, start = {}, 0
        for index in self._wanted:
            kept = self._rows.kept(index, len(sampled[index]) if index < len(sampled) else 0)
            spans[self._rows.request_ids[index]] = slice(start, start + kept.stop - kept.start)
            start += self._rows.counts[index]
        columns = {name: _column(tensor) for name, tensor in self._shared.items()}
        own = {
            one: {name: _column(value) for name, value in values.items()} for one, values in self._own.items()
        }
        return StepPayload(spans, columns, own)


class Failure:
    """In place of a copy: why the requests that want one get none."""

    def __init__(self, request_ids: list[str], error: str) -> None:
        self._payload = StepPayload({one: slice(0, 0) for one in request_ids}, {}, {}, error)

    def result(self, sampled: list[list[int]]) -> StepPayload:
        """The failure, the same as :meth:`HostCopy.result` gives a payload."""
        return self._payload


class OutputWithPayload(AsyncModelRunnerOutput):
    """Any asynchronous output of a runner, with the payload added when it is read."""

    def __init__(self, inner: AsyncModelRunnerOutput, copy: HostCopy | Failure) -> None:
        self._inner, self._copy = inner, copy

    def get_output(self) -> Any:
        """The runner's output, once it is on the host."""
        output = self._inner.get_output()
        output.pooler_output = self._copy.result(output.sampled_token_ids)
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


def _column(tensor: torch.Tensor) -> Column:
    rows = tensor.shape[0]
    data = tensor.contiguous().view(rows, -1).view(torch.uint8).numpy() if tensor.numel() else _nothing(rows)
    return Column(data, tensor.dtype, tuple(tensor.shape[1:]))


def _nothing(rows: int) -> Any:
    return torch.empty((rows, 0), dtype=torch.uint8).numpy()
