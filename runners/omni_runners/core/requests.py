"""What the runner remembers of each request between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.logger import init_logger

from omni_runners.options import GLOBAL_ID, TALKER_SEED, delivery, extra, info
from omni_runners.tensors import unpacked

logger = init_logger("vllm.omni_runners")


@dataclass
class Request:
    """One request. ``info`` is what the model knows of it, ``asked`` what came with it.

    ``prompt`` has its token ids, ``computed`` counts the tokens whose steps are done, ``scheduled`` those of
    the step at hand.
    """

    params: Any
    prompt: list[int]
    wants_payload: bool
    info: dict[str, Any] = field(default_factory=dict)
    asked: Any = None
    computed: int = 0
    scheduled: int = 0
    generator: torch.Generator | None = None
    talker: torch.Generator | None = None

    @property
    def draws(self) -> bool:
        """Whether the step reaches the end of what is known, so that its token is kept."""
        return self.computed + self.scheduled >= len(self.prompt)

    @property
    def generated(self) -> int:
        """Tokens that were drawn before this step."""
        return max(0, self.computed + self.scheduled - len(self.prompt))


class Requests:
    """The requests that the scheduler has sent and not finished.

    Tensors in their infos are on the host, but those that ``resident`` names: pairs of a key and a key in its
    dictionary.
    """

    def __init__(self, resident: frozenset[tuple[str, str]] = frozenset()) -> None:
        self._known: dict[str, Request] = {}
        self._resident = resident
        self.ended: dict[str, str] = {}  # those that cannot go on, and why

    def update(self, scheduler_output: Any) -> None:
        """Forget finished requests, learn new ones, and what came with this step for others."""
        for one in scheduler_output.finished_req_ids:
            self._known.pop(one, None)
            self.ended.pop(one, None)
        for new in scheduler_output.scheduled_new_reqs:
            self._start(new)
        cached = scheduler_output.scheduled_cached_reqs
        for one, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            self._known[one].computed = computed
        for one, prompt in (getattr(cached, "prompt_token_ids", None) or {}).items():
            self._known[one].prompt = list(prompt)
        for one, more in (getattr(cached, "additional_information", None) or {}).items():
            self.add(one, unpacked(more))
        for one, count in scheduler_output.num_scheduled_tokens.items():
            self._known[one].scheduled = count

    def _start(self, new: Any) -> None:
        """A new request; a preempted one, or the next part of one that is sent in parts, comes so too."""
        asked = info(new.req_id, new.sampling_params)
        known = self._known.setdefault(new.req_id, Request(new.sampling_params, [], False))
        known.params, known.prompt = new.sampling_params, list(new.prompt_token_ids or ())
        known.wants_payload = delivery(new.req_id, new.sampling_params) is not None
        known.computed = new.num_computed_tokens
        if known.asked != asked:  # not again what a preempted one has had
            known.asked = asked
            self.add(new.req_id, unpacked(asked))
        # what another stage of vllm-omni sent along
        for name in ("model_intermediate_buffer", "additional_information"):
            self.add(new.req_id, unpacked(getattr(new, name, None)))

    def __getitem__(self, request_id: str) -> Request:
        return self._known[request_id]

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._known

    def info(self, request_id: str) -> dict[str, Any]:
        """What is known about a request: what came with it, and what the model's methods added."""
        return self._known[request_id].info if request_id in self._known else {}

    def extra(self, request_id: str) -> dict[str, Any] | None:
        """The request's extra arguments; None when it has none."""
        return extra(self._known[request_id].params) or None

    def add(self, request_id: str, update: Mapping[str, Any] | None) -> None:
        """Merge what a model's method returned into the request's info."""
        if request_id not in self._known:
            return
        known = self._known[request_id].info
        for name, value in (update or {}).items():
            if isinstance(value, Mapping):
                inner = known[name] if isinstance(known.get(name), dict) else known.setdefault(name, {})
                inner |= {key: self._kept(one, (name, key)) for key, one in value.items()}
            else:
                known[name] = self._kept(value, (name, ""))

    def _kept(self, value: Any, key: tuple[str, str]) -> Any:
        """A copy of a tensor: the next step may write into its memory."""
        if isinstance(value, torch.Tensor):
            kept = value.detach()
            return kept.clone() if key in self._resident or kept.device.type == "cpu" else kept.cpu()
        if isinstance(value, list):
            return [self._kept(one, key) for one in value]
        return value

    def fail(self, request_ids: list[str], why: str) -> None:
        """These requests cannot go on; their scheduler is told with the step's output.

        Called where an exception is handled, which is logged.
        """
        if not self.ended.keys() >= set(request_ids):
            logger.exception("requests %s end: %s", ", ".join(request_ids), why)
        self.ended = dict.fromkeys(request_ids, why) | self.ended

    def talker_generator(self, request_id: str, device: torch.device) -> torch.Generator | None:
        """The generator of a request whose talker has a seed of its own."""
        known, seed = self._known[request_id], (self.extra(request_id) or {}).get(TALKER_SEED)
        if seed is not None and known.talker is None:
            known.talker = torch.Generator(device=device)
            known.talker.manual_seed(int(seed))
        return known.talker

    def wants_payload(self, request_id: str) -> bool:
        """Whether the request asks for its tensors."""
        return request_id in self._known and self._known[request_id].wants_payload

    def global_id(self, request_id: str) -> str:
        """The request's name in all stages, for key-value transfer; its own where none was given."""
        return self.info(request_id).get(GLOBAL_ID, request_id)
