"""Schedulers that take the payload off a step's output before vLLM's scheduler sees it.

``--scheduler-cls omni_runners.schedulers.ARScheduler``; with asynchronous scheduling ``ARAsyncScheduler``,
for a generation stage ``GenerationScheduler`` or ``GenerationAsyncScheduler``.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from safetensors.torch import save
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import RequestStatus

from omni_runners import options
from omni_runners.collector import Collected
from omni_runners.core.payload import StepPayload
from omni_runners.errors import InterfaceError, PayloadError
from omni_runners.payload_files import PayloadFiles
from omni_runners.plugin import check_pair


class _Pending(NamedTuple):
    request: Any
    how: str
    collected: Collected


class PayloadSchedulerMixin:
    """Put in front of a scheduler of vLLM's: it hands a request's tensors over, in parts or when it ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_pair(self.vllm_config)
        self._omni_files = PayloadFiles.from_environment()
        self._omni_pending: dict[str, _Pending] = {}

    def add_request(self, request: Any) -> None:
        """Remember how the request gets its tensors; all its rows have to be computed then."""
        how = options.delivery(request.request_id, request.sampling_params)
        if how and request.request_id not in self._omni_pending:  # which the next part of its input would be
            self._omni_pending[request.request_id] = _Pending(request, how, Collected(self._omni_files.limit))
            request.skip_reading_prefix_cache = True
        super().add_request(request)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Keep the payload, let vLLM do its work, and hand over what is there."""
        step, ended = model_runner_output.pooler_output, {}
        if isinstance(step, StepPayload):
            model_runner_output.pooler_output = None
            ended = {model_runner_output.req_ids[index]: why for index, why in step.ended.items()}
            self._omni_collect(scheduler_output, model_runner_output.req_ids, step)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        for request_id, why in ended.items():
            self._omni_end(request_id, why, outputs)
        for of_client in outputs.values():
            for output in of_client.outputs:
                pending = self._omni_pending.get(output.request_id)
                over = output.finish_reason is not None
                if (
                    pending
                    and pending.how == options.PARTS
                    and (not over or output.request_id in self.requests)
                ):
                    _add_reference(output, _part(pending.collected))
                elif pending and over:
                    self._omni_deliver(output)
        return outputs

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """A request that ends early leaves nothing behind."""
        result = super().finish_requests(*args, **kwargs)
        for one in [one for one in self._omni_pending if one not in self.requests]:
            del self._omni_pending[one]
        return result

    def shutdown(self) -> None:
        """The engine ends: its files go, also those that nobody read."""
        super().shutdown()
        self._omni_files.close()

    def _omni_collect(self, scheduler_output: Any, request_ids: list[str], step: StepPayload) -> None:
        started = {new.req_id for new in scheduler_output.scheduled_new_reqs}
        started |= scheduler_output.scheduled_cached_reqs.resumed_req_ids
        for index, one in enumerate(request_ids):
            pending = self._omni_pending.get(one)
            if step.spans[index] is None or pending is None:  # it finished while this step was under way
                continue
            if one in started and not pending.request.resumable:
                pending.collected.restart()
            pending.collected.add(index, step)

    def _omni_end(self, request_id: str, why: str, outputs: dict[int, EngineCoreOutputs]) -> None:
        """End a request that its model cannot go on with; who asked is told why."""
        every = [output for of_client in outputs.values() for output in of_client.outputs]
        found = next((output for output in every if output.request_id == request_id), None)
        request = self.requests.get(request_id)
        if found is None and request is None:  # it ended while this step was under way
            return
        if found is None:
            found = EngineCoreOutput(request_id, [])
            outputs.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(found)
        if request is not None:
            self.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        self._omni_pending.pop(request_id, None)
        found.finish_reason, found.stop_reason = FinishReason.ABORT, why
        _add_reference(found, {"error": why})

    def _omni_deliver(self, output: Any) -> None:
        request, how, collected = self._omni_pending.pop(output.request_id)
        if output.request_id in self.requests:  # more of its input is to come
            self._omni_pending[output.request_id] = _Pending(request, how, Collected(self._omni_files.limit))
        try:
            # nothing was computed from the last token; speculation may have gone beyond it
            data = save(collected.tensors(request.num_tokens - 1))
            place = {"data": data} if how == options.PARTS else {"path": str(self._omni_files.write(data))}
            reference = place | {"bytes": len(data)}
        except PayloadError as error:
            reference = {"error": str(error)}
        _add_reference(output, reference)
        if how == options.CHOICE:
            whole = {options.PAYLOAD: reference, "stop_reason": output.stop_reason}
            output.stop_reason = json.dumps(whole)


def _part(collected: Collected) -> dict[str, Any]:
    first, tensors = collected.part()
    return {"first": first, "data": save(tensors)}


def _add_reference(output: Any, reference: dict[str, Any]) -> None:
    output.kv_transfer_params = {**(output.kv_transfer_params or {}), options.PAYLOAD: reference}


class GenerationSchedulerMixin(PayloadSchedulerMixin):
    """One step per request, with its whole prompt."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        tokens, longest = (
            vllm_config.scheduler_config.max_num_batched_tokens,
            vllm_config.model_config.max_model_len,
        )
        if tokens < longest:
            raise InterfaceError(
                f"a generation stage runs a request in one step, and a step has {tokens} tokens",
                expected=f"max_num_batched_tokens of at least max_model_len, {longest}",
                try_=f"--max-num-batched-tokens {longest}",
            )
        vllm_config.scheduler_config.enable_chunked_prefill = False
        super().__init__(vllm_config, *args, **kwargs)

    def add_request(self, request: Any) -> None:
        """One token, so that the asynchronous scheduler does not plan a second step either."""
        request.max_tokens = 1
        super().add_request(request)


class ARScheduler(PayloadSchedulerMixin, Scheduler):
    """For an AR stage."""


class ARAsyncScheduler(PayloadSchedulerMixin, AsyncScheduler):
    """For an AR stage with asynchronous scheduling."""


class GenerationScheduler(GenerationSchedulerMixin, Scheduler):
    """For a generation stage."""


class GenerationAsyncScheduler(GenerationSchedulerMixin, AsyncScheduler):
    """For a generation stage with asynchronous scheduling."""
