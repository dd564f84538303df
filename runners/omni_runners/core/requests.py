"""What the runner remembers of each request between steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omni_runners.options import GLOBAL_ID, delivery, info


class Requests:
    """The requests that the scheduler has sent and not finished."""

    def __init__(self) -> None:
        self._infos: dict[str, dict[str, Any]] = {}
        self._wanting: set[str] = set()

    def update(self, scheduler_output: Any) -> None:
        """Forget finished requests, and learn new ones."""
        for one in scheduler_output.finished_req_ids:
            self._infos.pop(one, None)
            self._wanting.discard(one)
        for new in scheduler_output.scheduled_new_reqs:
            if new.req_id not in self._infos:  # a preempted one may come again as new
                self._infos[new.req_id] = info(new.req_id, new.sampling_params)
            if delivery(new.req_id, new.sampling_params):
                self._wanting.add(new.req_id)

    def info(self, request_id: str) -> dict[str, Any]:
        """What is known about a request: what came with it, and what the model's methods added."""
        return self._infos.get(request_id, {})

    def add(self, request_id: str, update: Mapping[str, Any] | None) -> None:
        """Merge what a model's method returned into the request's info."""
        if request_id in self._infos:
            _merge(self._infos[request_id], update or {})

    def wants_payload(self, request_id: str) -> bool:
        """Whether the request asks for its tensors."""
        return request_id in self._wanting

    def global_id(self, request_id: str) -> str:
        """The request's name in all stages, for key-value transfer; its own where none was given."""
        return self.info(request_id).get(GLOBAL_ID, request_id)


def _merge(known: dict[str, Any], update: Mapping[str, Any]) -> None:
    for name, value in update.items():
        if isinstance(value, Mapping) and isinstance(known.get(name), dict):
            _merge(known[name], value)
        else:
            known[name] = value
