"""An AR stage's Qwen3 with a sampler of its own, which the runner must prefer to vLLM's."""

from __future__ import annotations

import torch
from vllm.v1.outputs import SamplerOutput

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR


class TinyOmniSampler(TinyOmniAR):
    """It always takes the second most likely token."""

    prefer_model_sampler = True

    def sample(self, logits, sampling_metadata):
        second = logits.topk(2, dim=-1).indices[:, 1:]
        return SamplerOutput(sampled_token_ids=second.to(torch.int32), logprobs_tensors=None)


MODEL = TinyOmniSampler
