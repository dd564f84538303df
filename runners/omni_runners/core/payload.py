"""A step's tensors on their way from the device to the scheduler, in ``ModelRunnerOutput.pooler_output``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from vllm.v1.outputs import AsyncModelRunnerOutput

from omni_runners.core.rows import BatchRows


class Column(NamedTuple):
    """Rows of one tensor as bytes: ``data`` is a numpy array (rows, bytes per row).

    numpy has no bfloat16, so ``dtype`` is the tensor's own and ``shape`` that of one row. ``per_token``:
    whether there is one row for each token.
    """

    data: Any
    dtype: torch.dtype
    shape: tuple[int, ...]
    per_token: bool = True

    def tensor(self) -> torch.Tensor:
        """(rows, …)."""
        if not self.data.size:
            return torch.empty((len(self.data), *self.shape), dtype=self.dtype)
        return torch.from_numpy(self.data.reshape(-1)).view(self.dtype).view(-1, *self.shape)


@dataclass
class StepPayload(Sequence):
    """What a step gives: for each request of ``ModelRunnerOutput.req_ids`` its tensors by name, or None.

    Rows of all requests lie in shared ``columns``, request ``i`` has ``spans[i]`` of each, and ``own[i]`` has
    what was given for it alone. ``errors`` says why a request got nothing, ``ended`` why it cannot go on.
    """

    spans: list[slice | None]
    columns: dict[str, Column] = field(default_factory=dict)
    own: dict[int, dict[str, Column]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor] | None:
        if self.spans[index] is None or index in self.errors:
            return None
        return {name: column.tensor() for name, column in self.of(index)}

    def of(self, index: int) -> Iterator[tuple[str, Column]]:
        """The columns of one request by name."""
        for name, column in self.columns.items():
            yield name, column._replace(data=column.data[self.spans[index]])
        yield from self.own.get(index, {}).items()


class HostCopy:
    """A copy to host memory, started at once and waited for in :meth:`result`.

    ``tensors`` maps a name to a tensor (rows, …) or to one tensor per request of ``rows``, None where there
    is none. ``errors`` has what went wrong for a request by its number.
    """

    def __init__(
        self, rows: BatchRows, wanted: list[int], tensors: Mapping[str, Any], errors: Mapping[int, str]
    ) -> None:
        self.wanted = wanted
        self._rows, self._errors = rows, dict(errors)
        self._own: dict[int, dict[str, torch.Tensor]] = {index: {} for index in wanted}
        self._shared: dict[str, torch.Tensor] = {}
        self._event: Any = None
        for name, value in tensors.items() if wanted else ():
            if isinstance(value, torch.Tensor):
                self._shared[name] = self._copy(self._wanted_rows(value))
                continue
            for index in wanted:
                if value[index] is not None:
                    self._own[index][name] = self._copy(torch.atleast_1d(torch.as_tensor(value[index])))
        if self._event is not None:
            self._event.record()

    def _wanted_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        if len(self.wanted) == len(self._rows.request_ids):
            return tensor[: self._rows.total]
        return torch.cat([tensor[self._rows.span(index)] for index in self.wanted])

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            return tensor.clone()  # the next step may write into the same memory
        if self._event is None:
            # torch.Event is another class under torch_npu; this one is right on every device
            self._event = torch.get_device_module(tensor.device).Event()
        return tensor.to("cpu", non_blocking=True)

    def result(self, sampled: list[list[int]], ended: Mapping[str, str]) -> StepPayload:
        """Wait for the copy, and leave out rows of rejected drafts; ``sampled`` are the step's new tokens.

        ``ended`` has by id the requests that cannot go on, and why.
        """
        if self._event is not None:
            self._event.synchronize()
        names, start = self._rows.request_ids, 0
        payload = StepPayload([None] * len(names), errors=self._errors)
        payload.ended = {index: ended[one] for index, one in enumerate(names) if one in ended}
        for index in self.wanted:
            kept = self._rows.kept(index, len(sampled[index]) if index < len(sampled) else 0)
            payload.spans[index] = slice(start, start + kept.stop - kept.start)
            start += self._rows.counts[index]
        payload.columns = {name: _column(tensor, True) for name, tensor in self._shared.items()}
        payload.own = {
            index: {name: _column(value, False) for name, value in values.items()}
            for index, values in self._own.items()
        }
        return payload


class OutputWithPayload(AsyncModelRunnerOutput):
    """Any asynchronous output of a runner, with the payload added when it is read."""

    def __init__(self, inner: AsyncModelRunnerOutput, copy: HostCopy, ended: Mapping[str, str]) -> None:
        self._inner, self._copy, self._ended = inner, copy, ended

    def get_output(self) -> Any:
        """The runner's output, once it is on the host."""
        output = self._inner.get_output()
        output.pooler_output = self._copy.result(output.sampled_token_ids, self._ended)
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


def _column(tensor: torch.Tensor, per_token: bool) -> Column:
    rows = tensor.shape[0]
    data = torch.empty((rows, 0), dtype=torch.uint8)
    if tensor.numel():
        data = tensor.contiguous().view(rows, -1).view(torch.uint8)
    return Column(data.numpy(), tensor.dtype, tuple(tensor.shape[1:]), per_token)
