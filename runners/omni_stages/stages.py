"""The stages of vllm-omni over a platform's own model runner, V1: none of vllm-omni's copies of it runs.

vllm-omni's runners copy ``execute_model``, ``sample_tokens``, ``_update_states``, ``_dummy_run`` and
``profile_run`` of the runner below them, to add a few statements each. Here these statements come before
and after the platform's own method; all else (request infos, preprocess, connectors, payloads, prefix cache)
stays the method of vllm-omni that it is. Put in front of a platform's runner:
``class NPUARModelRunner(ARStage, vllm_ascend's NPUModelRunner)``.
"""

from __future__ import annotations

import dataclasses
import inspect
from copy import copy
from types import SimpleNamespace
from typing import Any

import torch
from vllm.sequence import IntermediateTensors
from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput
from vllm_omni.model_executor.models.output_templates import OmniOutput
from vllm_omni.worker import gpu_ar_model_runner, gpu_generation_model_runner, sampling_utils
from vllm_omni.worker.gpu_model_runner import OmniGPUModelRunner
from vllm_omni.worker.mixins import maybe_unpad_input_ids

_OF_VLLM = [field.name for field in dataclasses.fields(ModelRunnerOutput) if field.name != "pooler_output"]


class _Stage:
    """What AR and generation stages share; in front of a runner of vllm-omni's."""

    _omni_step: Any = None  # the SchedulerOutput of the step at hand, None in a dummy run
    _omni_outputs: Any = None  # what the model gave beside hidden states
    _omni_warm = False

    @property
    def _platform(self) -> Any:
        """The platform's own methods: those that vllm-omni's runner copies."""
        return super(OmniGPUModelRunner, self)

    def _dummy_run(self, *args: Any, **options: Any) -> Any:
        return self._platform._dummy_run(*args, **options)

    @torch.inference_mode()
    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """The platform's step, with what connectors brought before it and what they have to tell after it."""
        self._omni_before(scheduler_output)
        self._omni_step = scheduler_output
        try:
            output = self._platform.execute_model(scheduler_output, *args, **options)
        finally:
            self._omni_step = None
        if self.execute_model_state is not None or isinstance(output, IntermediateTensors):
            return output
        return self.attach_omni_connector_output(output)

    def _omni_before(self, step: Any) -> None:
        if not self._omni_warm and hasattr(self.model, "_clear_warmup_state"):
            self.model._clear_warmup_state()
        self._omni_warm = True
        if not hasattr(self, "_omni_connector"):
            return
        for registration in getattr(step, "pending_input_registrations", ()):
            self.register_chunk_recv(registration)
        self.recv_full_payload_inputs(step)
        unsent = self._pending_full_payload_send or {}
        if ended := {one for one in unsent if one not in self.requests} | (
            set(step.finished_req_ids) if unsent else set()
        ):
            self.flush_full_payload_outputs(ended)

    def _update_states(self, scheduler_output: Any) -> Any:
        """The platform's states, then vllm-omni's: infos of new requests, and nothing of finished ones."""
        finished = scheduler_output.finished_req_ids
        new = scheduler_output.scheduled_new_reqs
        for one in finished:
            self.model_intermediate_buffer.pop(one, None)
            if getattr(self, "_omni_connector_initialized", False):
                self.cleanup_finished_request(one)
            for memory in ("_downstream_payload_cache", "_talker_mtp_generators"):
                getattr(self, memory, {}).pop(one, None)
        more = {one.req_id for one in new if one.req_id in self.requests} - finished
        for one in new:
            if one.req_id in more:  # the next part of a streamed input
                self._update_streaming_input_additional_info(one, one.req_id)
        corrections = self._platform._update_states(scheduler_output)
        fresh = [one for one in new if one.req_id not in more]
        self._decode_and_store_request_payloads(SimpleNamespace(scheduled_new_reqs=fresh))
        if finished and hasattr(self.model, "on_requests_finished"):
            self.model.on_requests_finished(finished)
        return corrections

    def _model_forward(self, *args: Any, **options: Any) -> Any:
        """Run the model with what vllm-omni tells it; give its hidden states and keep the rest."""
        forward = self._platform._model_forward
        bound = inspect.signature(forward).bind(*args, **options)
        bound.apply_defaults()
        inputs, told = bound.arguments, bound.arguments.pop("model_kwargs", {})
        told |= self._omni_told(inputs)
        output = forward(**inputs, **told)
        if type(output) is tuple and len(output) == len(OmniOutput._fields):
            output = OmniOutput(*output)  # a replayed graph gives a plain tuple
        bare = not isinstance(output, OmniOutput | IntermediateTensors)
        if bare and self._omni_step is not None and hasattr(self.model, "make_omni_output"):
            output = self.model.make_omni_output(output, **told)
        self._omni_last_model_output = output
        hidden, self._omni_outputs = self.extract_multimodal_outputs(output)
        return hidden

    def _omni_told(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return self._build_model_kwargs_extra()


class ARStage(_Stage, gpu_ar_model_runner.GPUARModelRunner):
    """The runner of an AR stage."""

    _omni_saved: int | None = None  # the step's number in vllm-omni's prefix cache

    def load_model(self, *args: Any, **options: Any) -> None:
        """Load the model, whose ``compute_logits`` may want the sampling metadata."""
        super().load_model(*args, **options)
        model = self.get_model()
        compute = model.compute_logits
        if "sampling_metadata" in inspect.signature(compute).parameters:
            model.compute_logits = lambda hidden, *more: compute(
                hidden, *more, sampling_metadata=self.input_batch.sampling_metadata
            )

    def _omni_before(self, step: Any) -> None:
        self._prefix_cache_step_begin(step)
        leaving = getattr(step, "finished_requests_needing_kv_transfer", {})
        if leaving and hasattr(self.model, "get_kv_transfer_metadata"):
            leaving = self._merge_model_kv_transfer_metadata(leaving)
        self.kv_extracted_req_ids = self.kv_transfer_manager.handle_finished_requests_kv_transfer(
            finished_reqs=leaving,
            kv_caches=self.kv_caches,
            block_size=self.cache_config.block_size,
            cache_dtype=str(self.cache_config.cache_dtype),
            request_id_resolver=self._resolve_global_request_id,
        )
        super()._omni_before(step)

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """The step; one without a forward tells which caches were copied out."""
        output = super().execute_model(scheduler_output, *args, **options)
        if self.execute_model_state is None and self.kv_extracted_req_ids and output is not None:
            output = copy(output)  # vLLM shares the empty one
            output.kv_extracted_req_ids = self.kv_extracted_req_ids
        return output

    def _update_states(self, scheduler_output: Any) -> Any:
        corrections = super()._update_states(scheduler_output)
        self._update_duplex_sampling_states(scheduler_output)
        return corrections

    def _preprocess(self, scheduler_output: Any, tokens: int, *args: Any, **options: Any) -> Any:
        ids, embeddings, positions, *rest = super()._preprocess(scheduler_output, tokens, *args, **options)
        if prepare := getattr(self.model, "prepare_runner_inputs", None):
            count = self.input_batch.num_reqs
            ids, positions = prepare(
                input_ids=ids,
                positions=positions,
                inputs_embeds=embeddings,
                req_ids=self.input_batch.req_ids[:count],
                num_computed_tokens=self.input_batch.num_computed_tokens_cpu[:count],
                num_scheduled_tokens=self._omni_num_scheduled_tokens_np[:count],
                input_ids_buffer=self.input_ids.gpu[:tokens],
            )
        return ids, embeddings, positions, *rest

    def _omni_told(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self._omni_step is not None:
            return super()._omni_told(inputs)
        if inputs["inputs_embeds"] is None and getattr(self.model, "has_preprocess", False):
            inputs["inputs_embeds"] = self.inputs_embeds.gpu[: len(inputs["input_ids"])]
        return {}

    def _model_forward(self, *args: Any, **options: Any) -> Any:
        hidden = super()._model_forward(*args, **options)
        if (step := self._omni_step) is None or not isinstance(hidden, torch.Tensor):
            return hidden
        told = [
            "flush_pending_metadata",
            *([] if step.scheduled_spec_decode_tokens else ["set_batch_req_ids"]),
        ]
        for name in told:
            if callable(tell := getattr(self.model, name, None)):
                tell(self.input_batch.req_ids[: self.input_batch.num_reqs])
        self._omni_saved = self._prefix_cache_save_step(
            hidden,
            self._omni_outputs,
            num_tokens_unpadded=step.total_num_scheduled_tokens,
            num_tokens_padded=len(hidden),
        )
        return hidden

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        """Take from the request what the head of the model has no column for, then draw as vllm-omni does."""
        metadata = self.input_batch.sampling_metadata
        if logits is not None:
            columns = logits.shape[-1]
            if metadata.prompt_token_ids is not None and self.input_batch.vocab_size > columns:
                metadata.prompt_token_ids = metadata.prompt_token_ids.clamp(max=columns)
            sampling_utils.sanitize_min_tokens_stop_ids(metadata.logitsprocs, columns)
        return super()._sample(logits, spec_decode_metadata)

    @torch.inference_mode()
    def sample_tokens(self, *args: Any, **options: Any) -> Any:
        """Sample as the platform does, and give vllm-omni's output with what the platform's has."""
        state = self.execute_model_state
        output = self._platform.sample_tokens(*args, **options)
        if state is None:
            return self.attach_omni_connector_output(output)
        built = self._omni_built(state)
        if isinstance(output, AsyncModelRunnerOutput):
            return _Later(output, built)
        return _with(built, output)

    def _omni_built(self, state: Any) -> Any:
        """vllm-omni's output of the step, without tokens."""
        batch = self.input_batch
        staged = None if self.omni_prefix_cache is None else state.hidden_states.detach().to("cpu")
        built = self._build_omni_model_runner_output_from_snapshot(
            scheduler_output=state.scheduler_output,
            hidden_states=state.hidden_states,
            staged_hidden_states_cpu=staged,
            multimodal_outputs=self._omni_outputs,
            req_ids_output_copy=batch.req_ids.copy(),
            req_id_to_index_output_copy=batch.req_id_to_index.copy(),
            num_scheduled_tokens_np=self._omni_num_scheduled_tokens_np,
            query_start_loc_cpu=self.query_start_loc.cpu.clone(),
            prefix_cache_step_id=self._omni_saved,
            kv_extracted_req_ids=self.kv_extracted_req_ids,
            valid_sampled_token_ids=[],
            prompt_logprobs_dict={},
            **dict.fromkeys(
                ("logprobs_lists", "num_nans_in_logits", "kv_connector_output", "ec_connector_output")
            ),
            cudagraph_stats=None,
        )
        self.kv_extracted_req_ids = None
        built.omni_connector_output = self.get_omni_connector_output()
        return built


class GenerationStage(_Stage, gpu_generation_model_runner.GPUGenerationModelRunner):
    """The runner of a generation stage: nothing is drawn, and vllm-omni's ``sample_tokens`` is no copy."""

    _omni_rows: torch.Tensor | None = None  # in place of hidden states

    def load_model(self, *args: Any, **options: Any) -> None:
        """Load the model, which has no logits."""
        super().load_model(*args, **options)
        self.get_model().compute_logits = lambda hidden, *more: hidden.new_zeros((len(hidden), 1))

    def profile_run(self) -> None:
        """The platform's, with the model's own dummy inputs."""
        self._platform.profile_run()

    def _update_states(self, scheduler_output: Any) -> Any:
        if self.model_config.async_chunk and scheduler_output.total_num_scheduled_tokens:
            self._update_request_states(scheduler_output)
        return super()._update_states(scheduler_output)

    @torch.inference_mode()
    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """The step; its state becomes the one that vllm-omni's ``sample_tokens`` reads."""
        output = super().execute_model(scheduler_output, *args, **options)
        state = self.execute_model_state
        if state is not None:
            kind = gpu_ar_model_runner.ExecuteModelState
            known = {name: getattr(state, name, None) for name in kind._fields}
            self.execute_model_state = kind(**known | {"multimodal_outputs": self._omni_outputs})
        return output

    def _omni_told(self, inputs: dict[str, Any]) -> dict[str, Any]:
        step, batch, tokens = self._omni_step, self.input_batch, inputs["num_tokens_padded"]
        if step is None:
            dummy = getattr(self.model, "get_dummy_runtime_additional_information", None)
            infos = {"runtime_additional_information": dummy(1)} if dummy else {}
            return {"seq_token_counts": [tokens], **infos}
        ids = batch.req_ids
        inputs["input_ids"] = maybe_unpad_input_ids(
            self.model, inputs["input_ids"], step.total_num_scheduled_tokens
        )
        told = {"seq_token_counts": [step.num_scheduled_tokens[one] for one in ids]}
        if getattr(self.model, "requires_request_ids", False):
            told["request_ids"] = list(ids)
        last = self.query_start_loc.gpu[1 : len(ids) + 1] - 1
        told |= {"sampling_metadata": batch.sampling_metadata, "logits_index": last, "sampler": self.sampler}
        return told | super()._omni_told(inputs)

    def _model_forward(self, *args: Any, **options: Any) -> Any:
        hidden = super()._model_forward(*args, **options)
        if isinstance(hidden, IntermediateTensors):
            return hidden
        if self._omni_rows is None:
            self._omni_rows = torch.zeros((self.max_num_tokens, 1), dtype=self.dtype, device=self.device)
        return self._omni_rows


class _Later(AsyncModelRunnerOutput):
    """vllm-omni's output of a step whose tokens are still on the device."""

    def __init__(self, output: AsyncModelRunnerOutput, built: Any) -> None:
        self._output, self._built = output, built

    def get_output(self) -> Any:
        """The whole output."""
        return _with(self._built, self._output.get_output())


def _with(built: Any, output: Any) -> Any:
    return dataclasses.replace(built, **{name: getattr(output, name) for name in _OF_VLLM})
