"""A base for generation models: no attention, no key-value cache, no logits."""

from __future__ import annotations

from typing import Any

from torch import nn

from omni_runners.interfaces import generation_entry


class GenerationModel(nn.Module):
    """What vLLM asks of a model, so that a subclass defines its weights and one entry only.

    The entry gets ``input_ids`` (tokens,), ``positions`` (tokens,), ``intermediate_tensors``,
    ``inputs_embeds``, and, when it names them, ``seq_token_counts``: the tokens of each request. It returns
    a tensor with one row per token, or an OmniOutput.
    """

    is_attention_free = True
    calls_generation_entry = True  # this forward is not the subclass's entry

    def forward(
        self,
        input_ids: Any = None,
        positions: Any = None,
        intermediate_tensors: Any = None,
        inputs_embeds: Any = None,
        **options: Any,
    ) -> Any:
        """Call the entry. Raises InterfaceError when there is none."""
        entry = getattr(self, generation_entry(type(self)))
        return entry(
            input_ids=input_ids,
            positions=positions,
            intermediate_tensors=intermediate_tensors,
            inputs_embeds=inputs_embeds,
            **options,
        )

    def embed_input_ids(self, input_ids: Any) -> Any:
        """Vectors in place of embeddings: vLLM asks every model for them, this one has no use for them."""
        return input_ids.new_zeros((input_ids.shape[0], 1), dtype=self._dtype())

    def compute_logits(self, hidden_states: Any) -> Any:
        """One column: nothing is drawn from it."""
        return hidden_states.new_zeros((hidden_states.shape[0], 1))

    def _dtype(self) -> Any:
        return next(self.parameters()).dtype
