"""A Qwen3 whose stage runs once and gives a waveform-like payload, as code2wav stages do."""

from __future__ import annotations

import torch

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR

SAMPLE_RATE = 24000


class TinyOmniGeneration(TinyOmniAR):
    """One forward gives everything, there are no tokens: the last hidden state stands for the waveform."""

    has_preprocess = False
    has_postprocess = False

    def payload(self, output, **options) -> dict:
        rows = options["logits_index"].tolist()
        return {
            "model_outputs": [output[row].float() for row in rows],
            "sr": [torch.tensor(SAMPLE_RATE) for _ in rows],
        }


MODEL = TinyOmniGeneration
