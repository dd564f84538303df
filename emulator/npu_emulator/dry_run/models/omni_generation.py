"""A Qwen3 whose stage runs once and gives a waveform-like payload, as code2wav stages do."""

from __future__ import annotations

import torch

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR

SAMPLE_RATE = 24000


class TinyOmniGeneration(TinyOmniAR):
    """One forward gives everything; there are no tokens."""

    has_preprocess = False
    has_postprocess = False

    def make_omni_output(self, output, **options):
        from vllm_omni.model_executor.models.output_templates import OmniOutput

        if isinstance(output, OmniOutput):
            return output
        rows = options["logits_index"].tolist()
        payload = {
            "model_outputs": [output[row].float() for row in rows],
            "sr": [torch.tensor(SAMPLE_RATE) for _ in rows],
        }
        return OmniOutput(text_hidden_states=None, multimodal_outputs=payload)
