"""The generation ("diffusion") runner: one forward per request, no logits, no sampling, tensors back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.outputs import SamplerOutput

from omni_runners.core.ar import HIDDEN, ARRunnerMixin
from omni_runners.core.model_sampler import replaced
from omni_runners.interfaces import generation_entry


class GenerationRunnerMixin(ARRunnerMixin):
    """Every request "samples" one end token, so that the stock scheduler finishes it by itself."""

    _omni_generation = True

    def load_model(self, *args: Any, **options: Any) -> Any:
        """Load the model and make its entry what the forward calls. Raises InterfaceError."""
        result = super().load_model(*args, **options)
        model = self.get_model()
        if not hasattr(model, "calls_generation_entry"):
            model.forward = self._omni_entry(model)
        model.forward = self._omni_kept_alive(model.forward)
        model.compute_logits = _one_column
        return result

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """A request to which vllm-omni's scheduler gives the next part of its input starts over with it."""
        parts = getattr(scheduler_output.scheduled_cached_reqs, "prompt_token_ids", None) or {}
        for one in parts if self._omni_is_v1 else ():
            state = self.requests[one]
            state.prompt_token_ids, state.num_prompt_tokens = parts[one], len(parts[one])
            state.output_token_ids.clear()
            self.input_batch.remove_request(one)  # vLLM adds what is scheduled and not there
        return super().execute_model(scheduler_output, *args, **options)

    def _omni_kept_alive(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """No key-value cache depends on this forward: one that fails ends its requests, not the engine."""

        def run(*args: Any, **options: Any) -> Any:
            try:
                return forward(*args, **options)
            except Exception as error:
                rows = self._omni_rows_at_hand()
                if rows is None:  # a dummy run: the model cannot work at all
                    raise
                why = f"{type(self.get_model()).__name__}: {type(error).__name__}: {error}"
                self._omni_requests.fail(rows.request_ids, why)
                return torch.zeros((options["positions"].shape[-1], 1), device=self.device)

        return run

    def _sample(self, logits: Any, *args: Any, **options: Any) -> SamplerOutput:
        """V1: nothing is drawn."""
        ids = torch.full(
            (self.input_batch.num_reqs, 1), self._omni_end, dtype=torch.int32, device=self.device
        )
        return SamplerOutput(sampled_token_ids=ids, logprobs_tensors=None)

    def sample(self, hidden_states: Any, input_batch: Any, *args: Any, **options: Any) -> Any:
        """V2: its own way through one column of logits, with end tokens in place of a draw."""
        with replaced(self.sampler, "sample", self._omni_end_tokens):
            return super().sample(hidden_states, input_batch, *args, **options)

    def _omni_end_tokens(self, logits: torch.Tensor, *args: Any, **options: Any) -> Any:
        ids = torch.full((len(logits),), self._omni_end, dtype=torch.int64, device=logits.device)
        return ids, logits

    def _dummy_sampler_run(self, hidden_states: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        """There is no sampler to warm up."""
        return hidden_states.new_zeros(1)

    @property
    def _omni_end(self) -> int:
        end = self.model_config.hf_text_config.eos_token_id
        return (end[0] if isinstance(end, list | tuple) else end) or 0

    def _omni_entry(self, model: Any) -> Callable[..., Any]:
        return getattr(model, generation_entry(type(model)))

    def _omni_payload(self, hidden: torch.Tensor, outputs: dict[str, Any]) -> dict[str, Any]:
        return outputs or {HIDDEN: hidden}


def _one_column(hidden_states: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    return hidden_states.new_zeros((hidden_states.shape[0], 1), dtype=torch.float32)
