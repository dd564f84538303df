"""A Qwen3 as a stage that embeds: it reads its prompt through the hook of omni, and gives hidden states."""

from __future__ import annotations

from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM


class TinyOmniPooling(Qwen3ForCausalLM):
    """No omni output is made of its hidden states: a pooling stage's are the pooler's, as they are."""

    has_preprocess = True

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None, **options):
        return super().forward(input_ids, positions, intermediate_tensors, inputs_embeds)

    def preprocess(self, input_ids, input_embeds=None, **info):
        return input_ids, self.model.embed_tokens(input_ids), {}


MODEL = TinyOmniPooling
