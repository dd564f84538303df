"""The AR runner: tokens as vLLM gives them, and tensors per request in ``pooler_output``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from vllm.distributed import get_tp_group
from vllm.v1.outputs import AsyncModelRunnerOutput

from omni_runners.core.model_calls import Around, ModelCalls
from omni_runners.core.model_sampler import DrawsOnV2, ModelSampler, fit
from omni_runners.core.payload import HostCopy, OutputWithPayload
from omni_runners.core.requests import Requests
from omni_runners.core.rows import BatchRows, batch_rows
from omni_runners.interfaces import prefers_own_sampler

HIDDEN = "hidden"  # the name of the final hidden states in a payload


class _Step(NamedTuple):
    scheduler_output: Any
    batch: Any  # V2's InputBatch, None before it is made and in V1


class ARRunnerMixin(DrawsOnV2):
    """Put in front of any model runner of vLLM's lineage, V1 or V2.

    It relies on ``load_model``, ``execute_model``, ``sample_tokens``, V1's ``_sample``, V2's ``sample`` and
    ``prepare_inputs``, ``execute_model_state`` and ``get_model()``: see references/runner-hooks.md.
    """

    # an existing runner may be given this class: what its __init__ would set has to be here
    _omni_step: _Step | None = None
    _omni_copy: HostCopy | None = None
    _omni_calls: ModelCalls
    _omni_delivers = True
    _omni_generation = False

    def load_model(self, *args: Any, **options: Any) -> Any:
        """Load the model as ever, and hook its optional methods. Raises InterfaceError."""
        result = super().load_model(*args, **options)
        model = self.get_model()
        config = self.vllm_config
        self._omni_requests = Requests(frozenset(getattr(model, "gpu_resident_buffer_keys", ())))
        talker = getattr(config.model_config, "subtalker_sampling_params", None) or {}
        told = (self._omni_rows_at_hand, self._omni_sampling_at_hand, self._omni_starts_at_hand)
        around = Around(*told, self.max_num_tokens, talker, self._omni_generation)
        self._omni_calls = ModelCalls(model, self._omni_entry(model), self._omni_requests, around)
        # V2 makes the embeddings of images after its last hook
        self._omni_calls.check(config, self._omni_is_v1 or not self.supports_mm_inputs)
        if prefers_own_sampler(model) and not self._omni_generation:
            self._omni_sampler = ModelSampler(model, self._omni_requests)
        self._omni_delivers = _reads_payloads(config.scheduler_config)
        return result

    def global_request_id(self, request_id: str) -> str:
        """The request's name in all stages, for key-value transfer."""
        return self._omni_requests.global_id(request_id)

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """Run the step as ever; on the last pipeline rank, start to copy out what requests want."""
        if options.get("dummy_run"):  # V2 warms up through here
            return super().execute_model(scheduler_output, *args, **options)
        self._omni_requests.update(scheduler_output)
        self._omni_calls.begin(scheduler_output.finished_req_ids)
        self._omni_copy, self._omni_step = None, _Step(scheduler_output, None)
        if self._omni_sampler and self._omni_is_v1:
            # without it V1 keeps no history; every step, since vllm-ascend may rebuild its batch
            self.input_batch.logitsprocs_need_output_token_ids = True
        try:
            result = super().execute_model(scheduler_output, *args, **options)
            state = self.execute_model_state
            if state is not None and isinstance(state.hidden_states, torch.Tensor):
                batch = getattr(state, "input_batch", None)
                rows = batch_rows(self.input_batch if batch is None else batch, scheduler_output)
                self._omni_copy = self._omni_copied(state.hidden_states, rows)
        finally:
            self._omni_step = None
        return result

    def prepare_inputs(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """V2 makes its batch here, which the model's preprocess has to know."""
        batch = super().prepare_inputs(scheduler_output, *args, **options)
        if self._omni_step is not None:
            self._omni_step = self._omni_step._replace(batch=batch)
            # the embeddings of images are there in the forward only
            self._omni_calls.prepare(None if self.supports_mm_inputs else batch.input_ids, None)
            self._omni_calls.tell_step(batch.input_ids, batch.positions, None)
        return batch

    def _model_forward(self, *args: Any, **options: Any) -> Any:
        """V1 runs the model, or replays its graph, in here; preprocess comes before."""
        forward, calls = super()._model_forward, self._omni_calls
        if calls.preprocesses or calls.tells_step or hasattr(self.get_model(), "prepare_runner_inputs"):
            bound = inspect.signature(forward).bind(*args, **options)
            given = calls.inputs(bound.arguments, self.input_ids.gpu)
            embeddings, ids = given.get("inputs_embeds"), given.get("input_ids")
            if ids is None and embeddings is not None:  # of images, or of the prompt itself
                ids = self.input_ids.gpu[: len(embeddings)]
            calls.prepare(ids, embeddings)
            bound.arguments.update(given)
            if calls.preprocesses:
                bound.arguments["input_ids"] = ids
            calls.tell_step(bound.arguments.get("input_ids"), given["positions"], embeddings)
            args, options = bound.args, bound.kwargs
        return forward(*args, **options)

    def sample_tokens(self, *args: Any, **options: Any) -> Any:
        """Sample as ever, and add the payload to the step's output."""
        copy, self._omni_copy = self._omni_copy, None
        output = super().sample_tokens(*args, **options)
        ended = dict(self._omni_requests.ended)
        if copy is None or output is None or not self._omni_delivers or not (copy.wanted or ended):
            return output
        if isinstance(output, AsyncModelRunnerOutput):
            return OutputWithPayload(output, copy, ended)
        if output.req_ids:  # never write into vLLM's shared empty output
            output.pooler_output = copy.result(output.sampled_token_ids, ended)
        return output

    def _sample(self, logits: Any, spec_decode_metadata: Any, *args: Any, **options: Any) -> Any:
        """V1: let the model draw where it wants to; never with speculative tokens."""
        batch, output = self.input_batch, None
        if logits is not None and logits.shape[-1] < batch.vocab_size:
            batch.sampling_metadata = fit(batch.sampling_metadata, logits.shape[-1])
        if self._omni_sampler and logits is not None and spec_decode_metadata is None:
            batch.update_async_output_token_ids()
            names = list(batch.req_ids)
            output = self._omni_sampler.draw(logits[: len(names)], batch.sampling_metadata, names)
        if output is not None:
            return output
        return super()._sample(logits, spec_decode_metadata, *args, **options)

    def _omni_sampling_at_hand(self) -> dict[str, Any]:
        """What a model's forward and head are told of sampling; a V2 runner has no such metadata then."""
        metadata = self.input_batch.sampling_metadata if self._omni_is_v1 else None
        return {"sampling_metadata": metadata, "sampler": self.sampler}

    def _omni_starts_at_hand(self) -> torch.Tensor:
        """The first rows of the step's requests, and the end: the runner's own memory."""
        if self._omni_is_v1:
            return self.query_start_loc.gpu[: self.input_batch.num_reqs + 1]
        return self._omni_step.batch.query_start_loc

    @property
    def _omni_is_v1(self) -> bool:
        return hasattr(self, "input_batch")

    def _omni_rows_at_hand(self) -> BatchRows | None:
        """The rows of the step whose forward is about to run; None in a dummy run."""
        if self._omni_step is None:
            return None
        batch = self.input_batch if self._omni_is_v1 else self._omni_step.batch
        return batch_rows(batch, self._omni_step.scheduler_output)

    @torch.inference_mode()
    def _omni_copied(self, hidden: torch.Tensor, rows: BatchRows) -> HostCopy | None:
        """Before sampling: a drafter's graph may write into the memory of the hidden states."""
        outputs, errors = self._omni_calls.finish(hidden[: rows.total], rows)
        if get_tp_group().rank_in_group:  # the executor reads the first rank's output
            return None
        why = ""
        if _prefill_ranks(self.vllm_config) > 1:
            why = "prompts are split over prefill context parallel ranks, their rows reordered"
        elif hidden.shape[0] < rows.total:
            why = f"the runner keeps {hidden.shape[0]} of {rows.total} rows on each rank"
        wanted = [i for i, one in enumerate(rows.request_ids) if self._omni_requests.wants_payload(one)]
        errors = dict.fromkeys(wanted, why) if why else {i: errors[i] for i in wanted if i in errors}
        tensors = {} if errors else self._omni_payload(hidden, outputs)
        return HostCopy(rows, wanted, tensors, errors)

    def _omni_entry(self, model: Any) -> Callable[..., Any]:
        return model.forward

    def _omni_payload(self, hidden: torch.Tensor, outputs: dict[str, Any]) -> dict[str, Any]:
        return {HIDDEN: hidden, **outputs}


def _prefill_ranks(config: Any) -> int:
    return getattr(config.parallel_config, "prefill_context_parallel_size", 1)


def _reads_payloads(config: Any) -> bool:
    """Whether the engine's scheduler knows payloads; vLLM's own takes what it finds for a pooled vector."""
    return not config.get_scheduler_cls().__module__.startswith("vllm.")
