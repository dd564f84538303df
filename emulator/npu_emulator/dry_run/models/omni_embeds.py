"""An AR stage's Qwen3 that lives on the embeddings of its preprocess, as talkers and audio stages do."""

from __future__ import annotations

import torch

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR


class TinyOmniEmbeds(TinyOmniAR):
    """Token ids tell it nothing: a step or a captured graph that feeds them gives other tokens."""

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None, **options):
        if inputs_embeds is None and intermediate_tensors is None:
            inputs_embeds = torch.zeros_like(self.model.embed_tokens(input_ids))
        return super().forward(input_ids, positions, intermediate_tensors, inputs_embeds)


MODEL = TinyOmniEmbeds
