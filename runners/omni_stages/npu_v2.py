"""vllm-omni's V2 runners over vllm-ascend's V2 runner: the NPU side that vllm-omni has not."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm_ascend.worker.v2 import block_table
from vllm_ascend.worker.v2.model_runner import NPUModelRunner
from vllm_ascend.worker.v2.model_states.default import AscendModelState
from vllm_omni.model_executor.models.output_templates import OmniOutput
from vllm_omni.worker_v2.model_states.omni_model_state import OmniModelState
from vllm_omni.worker_v2.omni_ar_model_runner import OmniARModelRunner
from vllm_omni.worker_v2.omni_generation_model_runner import OmniGenerationModelRunner
from vllm_omni.worker_v2.omni_model_runner import OmniGPUModelRunner

from omni_runners.core.model_sampler import DrawsOnV2, ModelSampler
from omni_runners.core.requests import Requests
from omni_runners.interfaces import prefers_own_sampler


class _State(OmniModelState, AscendModelState):
    """vllm-omni's infos and preprocess, vllm-ascend's attention metadata."""

    runner: NPUARModelRunnerV2

    def prepare_inputs(self, input_batch: Any, req_states: Any) -> dict[str, Any]:
        """What the forward gets, preprocessed: vLLM calls the model, or replays its graph, right after."""
        inputs = super().prepare_inputs(input_batch, req_states)
        if not input_batch.is_dummy:
            inputs["input_ids"] = input_batch.input_ids
            self.runner._add_legacy_forward_inputs(inputs, input_batch)
            self.run_preprocess(input_batch, inputs, req_states, self.runner._dispatch_mtp_batch_descriptor)
        return inputs


class _Requests(Requests):
    """What the model's sampler has to know of its requests."""

    def fail(self, request_ids: list[str], why: str) -> None:
        """vllm-omni's schedulers cannot end one request: the model's error goes on, as on V1."""
        raise


class NPUARModelRunnerV2(DrawsOnV2, OmniARModelRunner, NPUModelRunner):
    """Tokens and payloads. vllm-omni's copy of vLLM's ``execute_model`` does not run.

    vllm-omni's V2 side asks no model for its own sampler; here it draws as on V1.
    """

    def load_model(self, *args: Any, **options: Any) -> None:
        """Load the model, whose OmniOutput becomes a tensor for vLLM, and give it a state of both."""
        super().load_model(*args, **options)
        self.uses_inputs_embeds = self.uses_inputs_embeds and self.supports_mm_inputs
        if isinstance(self.model_state, (OmniModelState, DefaultModelState)):
            # vllm-omni's sample_tokens asks a state of omni's for the output, also of a model that has none
            self.model_state = _State(self.vllm_config, self.model, self.encoder_cache, self.device)
            self.model_state.runner = self
        self.model.register_forward_hook(self._omni_after)
        if prefers_own_sampler(self.model):
            self._omni_requests = _Requests()
            self._omni_sampler = ModelSampler(self.model, self._omni_requests)

    def _omni_after(self, module: Any, args: Any, output: Any) -> Any:
        self._last_aux_output = self._last_multimodal_outputs = None
        if isinstance(output, OmniOutput):
            output, self._last_multimodal_outputs = output.text_hidden_states, output.multimodal_outputs
        elif isinstance(output, tuple) and not self.use_aux_hidden_state_outputs:
            output, self._last_aux_output = output
        return output

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """vllm-ascend's step; connectors before it, the model's postprocess after it."""
        dummy = options.get("dummy_run", False)
        if not dummy:
            if self._omni_sampler:
                self._omni_requests.update(scheduler_output)
            self._handle_kv_transfer_pre(scheduler_output)
            self._prepare_native_data_plane(scheduler_output)
            self._last_aux_output = self._last_multimodal_outputs = None
        output = super(OmniGPUModelRunner, self).execute_model(scheduler_output, *args, **options)
        state = self.execute_model_state
        if dummy or output is not None:
            return output if dummy else self._attach_native_data_plane_signals(output)
        if isinstance(self.model_state, _State) and isinstance(state.hidden_states, torch.Tensor):
            self.model_state.run_postprocess(state.hidden_states, state.input_batch)
        return None

    def update_requests(self, scheduler_output: Any) -> None:
        """Also hand on what other stages have sent."""
        super().update_requests(scheduler_output)
        self._sync_native_data_plane_payloads(scheduler_output)


class NPUGenerationModelRunnerV2(OmniGenerationModelRunner, NPUModelRunner):
    """Payloads from one forward, which has no attention."""

    def initialize_kv_cache(self, *args: Any, **options: Any) -> None:
        """There is no cache, and vllm-ascend's V2 block tables look for the smallest of its blocks."""
        block_table.min = partial(min, default=1)
        super().initialize_kv_cache(*args, **options)
