"""Tiny models that break as their requests say: ``omni_info`` has a fault's name."""

from __future__ import annotations

import torch
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM
from vllm.v1.outputs import SamplerOutput

from omni_runners.interfaces import OmniOutput
from runner_checks.models import Waveform


def _faults(infos):
    """The faults that requests of this step ask for; each waits for its request's first token."""
    return {info.get("fault") for info in infos or () if info.get("fault") and info.get("generated_len")}


class Broken(Qwen3ForCausalLM):
    """An AR model with everything that may go wrong."""

    prefer_model_sampler = model_sampler_wants_extra_args = True
    has_preprocess = has_postprocess = True

    def preprocess(self, input_ids, input_embeds, **info):
        if info.get("fault") == "preprocess" and not info["_omni_is_prefill"]:
            raise ValueError("no such speaker")
        if info.get("fault") == "preprocess shape":
            return input_ids, input_embeds[:, :3], {}
        return input_ids, input_embeds, {}

    def sample(self, logits, sampling_metadata, per_req_extra_args=None):
        asked = [(extra or {}).get("omni_info", {}).get("fault") for extra in per_req_extra_args]
        late = any(len(history) for history in sampling_metadata.output_token_ids)
        ids = logits.argmax(-1, keepdim=True).to(torch.int32)
        if late and "sample rows" in asked:
            ids = torch.cat((ids, ids))
        if late and "sample raises" in asked:
            raise RuntimeError("the codebook is empty")
        return SamplerOutput(sampled_token_ids=ids, logprobs_tensors=None)

    def make_omni_output(self, hidden_states, model_intermediate_buffer=(), **options):
        faults, rows = _faults(model_intermediate_buffer), hidden_states[:, :2].float()
        if "output raises" in faults:
            raise KeyError("codes")
        found = {"frames": rows}
        if "keys" in faults:
            found = {"other": rows}
        if "dtype" in faults:
            found = {"frames": rows.half()}
        if "rows" in faults:
            found = {"frames": torch.cat((rows, rows, rows))[: 2 * len(rows) + 1]}
        if "list" in faults:
            found |= {"list": [torch.ones(1)] * (len(model_intermediate_buffer) + 2)}
        return OmniOutput(hidden_states, found)

    def postprocess(self, hidden_states, multimodal_outputs=None, **info):
        if info.get("fault") == "postprocess" and info.get("generated_len"):
            raise ValueError("the speaker left")
        return {}


class BrokenWaveform(Waveform):
    """A generation model whose forward fails for some."""

    def diffuse(self, input_ids, seq_token_counts, model_intermediate_buffer=(), **options):
        if any(info.get("fault") == "forward" for info in model_intermediate_buffer):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        return super().diffuse(input_ids, seq_token_counts, **options)


MODELS = (Broken, BrokenWaveform)
