"""The tiny text model with the samplers of real models of vllm-omni: HunyuanImage3's and CosyVoice3's."""

from __future__ import annotations

from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

from runner_checks import released
from runner_checks.sampler_tokens import RECAPTION, THINK_END

SIZE, RATIOS, END = 250, (240, 245), 2  # token ids that play the parts of HunyuanImage3's special tokens
BLOCKED = (77, 78)
RAS = {"top_p": 0.8, "top_k": 25, "win_size": 10, "tau_r": 0.1}


def models() -> dict[str, type]:
    """By name; made of the release that the environment names."""
    hunyuan = released.taken(
        released.HUNYUAN,
        "HunyuanImage3ForConditionalGeneration",
        (
            *("sample", "_row_is_comprehension", "_get_forced_token", "_apply_ratio_restriction"),
            *("prefer_model_sampler", "logitsprocs_need_output_token_ids", "model_sampler_wants_extra_args"),
        ),
        Qwen3ForCausalLM,
    )
    cosyvoice = released.taken(
        released.COSYVOICE,
        "CosyVoice3Model",
        (
            *("sample", "_cosyvoice3_ras_enabled", "_ras_sample_one", "_nucleus_sample_one", "_req_scalar"),
            *("_random_sample_one", "prefer_model_sampler", "_sampling_eps"),
        ),
        Qwen3ForCausalLM,
    )

    class Recaptioner(hunyuan):
        """</think> is followed by <recaption>, a size by a ratio, a ratio by the end."""

        def __init__(self, *, vllm_config, prefix=""):
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            self._sampler = self._blocked_token_ids_tensor = None
            self._blocked_token_ids, self._is_comprehension = set(BLOCKED), False
            self._stage_transitions = {THINK_END: [RECAPTION]}
            self._size_token_id, self._eos_token_id = SIZE, END
            self._start_ratio_id, self._end_ratio_id = RATIOS
            self._ratio_other_slices, self._all_ratio_ids = [(246, 248)], set(range(*RATIOS)) | {246, 247}

    class Speaker(cosyvoice):
        """Draws with repetition-aware sampling where the request does not ask for more."""

        def __init__(self, *, vllm_config, prefix=""):
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            self.config.llm, self.model_stage = {"sampling": RAS}, "cosyvoice3_talker"

    return {one.__name__: one for one in (Recaptioner, Speaker)}
