"""Tiny models for the runners' tests and benchmark, as a model author would write them; vLLM is needed."""

from __future__ import annotations

import os

import torch
from torch import nn
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM
from vllm.v1.sample.sampler import Sampler

from omni_runners.interfaces import OmniOutput
from omni_runners.models import GenerationModel
from runner_checks import released
from runner_checks.sampler_tokens import DECLINES_AFTER, RECAPTION, THINK_END

CODES = 4


class Multimodal(Qwen3ForCausalLM):
    """Its forward gives a second tensor with one row per token."""

    def forward(self, *args, **options):
        hidden = super().forward(*args, **options)
        if not isinstance(hidden, torch.Tensor):  # a pipeline rank that is not the last
            return hidden
        return OmniOutput(hidden, {"codec": {"frames": hidden[:, :CODES].float() * 2}})


class Thinker(Qwen3ForCausalLM):
    """Has vLLM's sampler draw: </think> as the third token, and <recaption> after every </think>."""

    prefer_model_sampler = True

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.sampler = Sampler()

    def sample(self, logits, sampling_metadata):
        histories = sampling_metadata.output_token_ids
        if len(histories) != len(logits):
            raise RuntimeError(f"{len(histories)} histories for {len(logits)} rows")
        if any(len(history) >= DECLINES_AFTER for history in histories):
            return None
        for row, history in enumerate(histories):
            forced = THINK_END if len(history) == 2 else RECAPTION if history[-1:] == [THINK_END] else None
            if forced is not None:
                logits[row].fill_(float("-inf"))
                logits[row, forced] = 0
        return self.sampler(logits=logits, sampling_metadata=sampling_metadata)


class Talker(Qwen3ForCausalLM):
    """A talker: the embedding of each step after the prompt comes from ``talker_mtp``, which makes codes."""

    has_preprocess = True
    has_postprocess = True

    def preprocess(self, input_ids, input_embeds, **info):
        update = {} if "text" in info else {"text": input_embeds[0].clone()}
        if "last" in info:
            update["mtp_inputs"] = (info["last"], info["text"])
        return input_ids, input_embeds, update

    def talker_mtp(self, input_ids, input_embeds, last_talker_hidden, text_step):
        mixed = input_embeds + 0.5 * torch.tanh(last_talker_hidden) + 0.25 * text_step
        return mixed, mixed.topk(CODES, dim=-1).indices

    def postprocess(self, hidden_states, multimodal_outputs=None, **info):
        return {"last": hidden_states[-1].clone()}

    def make_omni_output(self, hidden_states, model_intermediate_buffer=()):
        none = torch.full((1, CODES), -1, device=hidden_states.device)
        codes = [info.get("codes", {}).get("audio", none) for info in model_intermediate_buffer]
        return OmniOutput(hidden_states, {"codes": {"audio": codes}})


class Waveform(GenerationModel):
    """A generation model whose entry is ``diffuse``; it also tells the tokens of its request."""

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)

    def diffuse(self, input_ids, seq_token_counts, **options):
        embedded = self.embed(input_ids)
        lengths = [torch.tensor([count], device=input_ids.device) for count in seq_token_counts]
        return OmniOutput(None, {"wave": embedded.float() * 3, "length": lengths})

    def load_weights(self, weights):
        for name, weight in weights:
            if name == "model.embed_tokens.weight":
                self.embed.weight.data.copy_(weight)
        return {"embed.weight"}


MODELS = (Multimodal, Thinker, Talker, Waveform)


def register() -> None:
    """Make the models known to vLLM in this process; also as a general plugin of vLLM."""
    from vllm import ModelRegistry

    from runner_checks.broken_models import MODELS as BROKEN

    found = {model.__name__: model for model in (*MODELS, *BROKEN)}
    if released.OMNI in os.environ:
        from runner_checks.real_models import models

        found |= models()
    for name, model in found.items():
        ModelRegistry.register_model(name, model)
