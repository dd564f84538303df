"""Which rows of a step belong to which request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BatchRows:
    """The requests of one step in batch order; request ``i`` has rows ``starts[i]:starts[i + 1]``.

    ``drafts`` is the number of speculative tokens at the end of each request's rows.
    """

    request_ids: list[str]
    starts: list[int]
    drafts: list[int]

    @property
    def total(self) -> int:
        """Rows of the step, without padding."""
        return self.starts[-1]

    @property
    def counts(self) -> list[int]:
        """Rows of each request."""
        return [stop - start for start, stop in zip(self.starts, self.starts[1:], strict=False)]

    def span(self, index: int) -> slice:
        """The rows of request ``index``."""
        return slice(self.starts[index], self.starts[index + 1])

    def kept(self, index: int, sampled: int) -> slice:
        """The rows of request ``index`` without those of rejected drafts, ``sampled`` tokens being new."""
        accepted = max(sampled - 1, 0)
        rejected = max(self.drafts[index] - accepted, 0)
        return slice(self.starts[index], self.starts[index + 1] - rejected)


def batch_rows(batch: Any, scheduler_output: Any) -> BatchRows:
    """The rows of a step from the runner's batch: V2's InputBatch tells its offsets, V1's has the order."""
    request_ids = list(batch.req_ids)
    offsets = getattr(batch, "query_start_loc_np", None)
    if offsets is not None:
        starts = offsets[: len(request_ids) + 1].tolist()
    else:
        starts = [0]
        for one in request_ids:
            starts.append(starts[-1] + scheduler_output.num_scheduled_tokens.get(one, 0))
    speculative = scheduler_output.scheduled_spec_decode_tokens
    return BatchRows(request_ids, starts, [len(speculative.get(one, ())) for one in request_ids])
