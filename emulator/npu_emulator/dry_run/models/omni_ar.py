"""A Qwen3 that uses the hooks of an omni AR stage: preprocess, postprocess, make_omni_output."""

from __future__ import annotations

import torch
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM


class TinyOmniAR(Qwen3ForCausalLM):
    """Its tokens are those of the plain model; its payload has the negated hidden states of each request."""

    have_multimodal_outputs = True
    has_preprocess = True
    has_postprocess = True

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None, **options):
        return super().forward(input_ids, positions, intermediate_tensors, inputs_embeds)

    def preprocess(self, input_ids, input_embeds=None, **info):
        return input_ids, self.model.embed_tokens(input_ids), {"seen": torch.tensor([len(input_ids)])}

    def postprocess(self, hidden_states, multimodal_outputs=None, **info):
        return {"hidden_states": {"last": hidden_states[-1].detach().clone()}}

    def make_omni_output(self, output, **options):
        from vllm_omni.model_executor.models.output_templates import OmniOutput

        if not isinstance(output, torch.Tensor):  # done already, or not the last pipeline rank
            return output
        return OmniOutput(text_hidden_states=output, multimodal_outputs=self.payload(output, **options))

    def payload(self, output, **options) -> dict:
        """The multimodal outputs of one step from its hidden states (tokens, hidden size)."""
        return {"hidden_states": {"last": -output}}


MODEL = TinyOmniAR
