"""An AR stage's Qwen3 with a recurrent layer before it, whose state lies in the cache as a GDN layer's does.

The layer is ours and has no weights: only where its state is kept, read and written is vLLM's and the
runner's. What a real GDN layer computes needs kernels that no index has.
"""

from __future__ import annotations

import torch
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.abstract import MambaBase

from npu_emulator.dry_run.models.omni_ar import TinyOmniAR

# what the configuration of such a model says; the second for vLLM's Qwen2, whose own layers all look back
CONFIG = {"layer_types": ["linear_attention", "full_attention"], "max_window_layers": 2}
KEPT = 0.5  # of a state, with each token
# a state has a vector; vllm-ascend before 0.30.0 wants it as large as the keys of a block of attention
_AROUND = (2, 128)


class Memory(torch.nn.Module, MambaBase):
    """Adds to each token what is left of all tokens before it; the sum so far is the request's state."""

    def __init__(self, vllm_config, prefix: str) -> None:
        super().__init__()
        self.prefix, self.size = prefix, vllm_config.model_config.get_hidden_size()
        self.kv_cache = (torch.empty(0),)
        vllm_config.compilation_config.static_forward_context[prefix] = self

    def get_state_shape(self):
        return ((*_AROUND, self.size),)

    def get_state_dtype(self):
        return (torch.float32,)

    @property
    def mamba_type(self):
        return kind()

    def get_attn_backend(self):
        try:
            from vllm_ascend.ops.gdn_attn_builder import AscendGDNAttentionBackend
        except ImportError:  # releases that patch vLLM's own
            return super().get_attn_backend()
        return AscendGDNAttentionBackend

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        metadata = get_forward_context().attn_metadata
        if metadata is None:  # of a dummy run without attention
            return states
        mine = metadata[self.prefix]
        return self._prompts(states, mine) if mine.num_prefills else self._tokens(states, mine)

    def _tokens(self, states: torch.Tensor, mine) -> torch.Tensor:
        """One token of each request, or none, as a graph can repeat it."""
        starts, cache = mine.non_spec_query_start_loc, self.kv_cache[0][:, 0, 0]
        count = len(starts) - 1
        slots = mine.non_spec_state_indices_tensor[:count].clamp(min=0).long()
        has_token = (starts[1:] > starts[:-1])[:, None]
        before, result = cache[slots], states.clone()
        after = torch.where(has_token, KEPT * before + states[:count], before)
        cache[slots] = after
        result[:count] = torch.where(has_token, after, states[:count])
        return result

    def _prompts(self, states: torch.Tensor, mine) -> torch.Tensor:
        """The next part of each prompt, behind the requests that have one token."""
        result, cache = states.clone(), self.kv_cache[0][:, 0, 0]
        starts = mine.non_spec_query_start_loc.tolist()
        slots = mine.non_spec_state_indices_tensor.tolist()
        for one in range(mine.num_decodes + mine.num_prefills):
            has_state = one < mine.num_decodes or bool(mine.has_initial_state[one])
            state = cache[slots[one]].cpu() if has_state else torch.zeros(self.size)
            sums = []
            for token in states[starts[one] : starts[one + 1]].cpu():
                state = KEPT * state + token
                sums.append(state)
            result[starts[one] : starts[one + 1]].copy_(torch.stack(sums))
            cache[slots[one]].copy_(state)
        return result


def kind():
    """How the release at hand names the metadata of such a layer."""
    wanted = MambaBase.mamba_type.fget.__annotations__["return"]
    return "gdn_attention" if wanted is str else wanted.GDN_ATTN


class Remembering:
    """What a model with a :class:`Memory` declares, and puts before its own layers."""

    is_hybrid = True
    has_inner_state = True

    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.memory = Memory(vllm_config, "model.layers.0.linear_attn")
        most = vllm_config.scheduler_config.max_num_batched_tokens
        # a graph in pieces reads its inputs where they were when it was captured
        self.register_buffer("remembered", torch.zeros(most, self.memory.size), persistent=False)

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None, **options):
        if inputs_embeds is None:
            inputs_embeds = self.model.embed_tokens(input_ids)
        inputs = self.remembered[: len(inputs_embeds)].copy_(self.memory(inputs_embeds))
        return super().forward(input_ids, positions, intermediate_tensors, inputs, **options)

    @classmethod
    def get_mamba_state_shape_from_config(cls, vllm_config):
        return ((*_AROUND, vllm_config.model_config.get_hidden_size()),)

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config):
        return (torch.float32,)

    @classmethod
    def get_mamba_state_copy_func(cls):
        from vllm.model_executor.layers.mamba.mamba_utils import get_temporal_copy_spec

        return (get_temporal_copy_spec,)

    @classmethod
    def get_mamba_state_copy_funcs(cls, kinds):
        return dict.fromkeys(kinds, cls.get_mamba_state_copy_func())


class TinyOmniHybrid(Remembering, TinyOmniAR):
    """Its tokens depend on a state that is neither in its keys nor in its values."""


MODEL = TinyOmniHybrid
