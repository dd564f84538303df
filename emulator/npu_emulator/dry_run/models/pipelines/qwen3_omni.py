"""Qwen3-Omni: a thinker answers text, picture and sound, a talker and a decoder say it.

The thinker's tokens and their log-probabilities are held against transformers' own model on the CPU, in
bfloat16 as the stages compute. The sound has no reference, since there a rounding may choose another code:
asked again it is the same. The talker's code predictor always samples, so its weights leave two codes, of
which each time one has all the probability.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "Qwen3OmniMoeForConditionalGeneration"
OPTIONS = ()
DEPLOY = "qwen3_omni_moe.yaml"
WORKERS = ("ar", "generation")  # the kinds
WITHOUT_NPU = True  # transformers would take its kernels
_TOKENS, _FRAMES = 5, 12  # of an answer: of text, and of sound
_SPEAKER = "chelsie"
_THINKER, _TALKER, _CODES, _GROUPS = 64, 64, 2048, 16
_CODE, _CERTAIN, _QUIET, _HEARD = 100, 1e5, 0.01, 4.0
# ids that the code of vllm-omni holds
_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|vision_pad|>": 151654,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
    "<|audio_start|>": 151669,
    "<|audio_end|>": 151670,
    "<tts_pad>": 151671,
    "<tts_text_bos>": 151672,
    "<tts_text_eod>": 151673,
    "<tts_text_bos_single>": 151674,
    "<|audio_pad|>": 151675,
}
_NAMED = {  # as the processor calls them
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}


def reduce(deploy: dict) -> None:
    """Put the stages on one device, and make smaller what only sizes the profiling."""
    parts.reduce(deploy, (512, 512, 2048), (0.4, 0.3, 0.2))


def _accepted_layer() -> int:
    """The number of the thinker's layer that goes to the talker.

    Releases before 0.30 name it in their code, whatever the configuration says.
    """
    (package,) = importlib.util.find_spec("vllm_omni").submodule_search_locations
    path = Path(package, "model_executor/stage_input_processors/qwen3_omni.py")
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.search(r'^_HIDDEN_LAYER_KEY = "(\d+)"', text, re.MULTILINE)
    return int(found[1]) if found else 1


def make(folder: Path) -> None:
    """Write the checkpoint with transformers' own classes, and the thinker's answers."""
    import torch
    import transformers

    parts.qwen_omni_files(folder, _SPECIAL, _NAMED, "Qwen3OmniMoeProcessor", 16)
    model = parts.seeded(transformers.Qwen3OmniMoeForConditionalGeneration(_config()), 0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "code_predictor.lm_head" in name:
                chosen = value[_CODE] * _CERTAIN
                value.zero_()
                value[_CODE], value[2 * _CODE] = chosen, -chosen
            elif "code2wav.decoder" in name and len(value) == 1:  # one channel: the sound
                value.mul_(_QUIET)
            elif "codec_head" in name:
                value.mul_(value.shape[-1] ** 0.5)
            elif _is_between(name):  # many layers that are heard would leave each choice to the rounding
                value.mul_(_QUIET)
            elif name.endswith(("o_proj.weight", "proj2.weight", "mlp.2.weight")):
                value.mul_(_HEARD)
    model = model.to(torch.bfloat16)
    parts.answer_by_thinker(folder, "qwen3-omni", model, _TOKENS, parts.messages)
    model.save_pretrained(folder)
    write_json(folder / "generation_config.json", {"pad_token_id": _SPECIAL["<|endoftext|>"]})


def _is_between(name: str) -> bool:
    """Whether a weight ends a part of a thinker's layer between the first and the one that goes on."""
    found = re.match(r"thinker\.model\.layers\.(\d+)\..*(o_proj|down_proj)\.weight", name)
    return found is not None and 0 < int(found[1]) < _accepted_layer()


def _config():
    import transformers

    accepted = _accepted_layer()
    layers = {
        "hidden_size": _THINKER,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 128,
    }
    rope = {
        "rope_type": "default",
        "rope_theta": 1000000,
        "mrope_section": [24, 20, 20],
        "mrope_interleaved": True,
        "interleaved": True,
    }
    experts = {
        "moe_intermediate_size": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "rope_parameters": rope,
        "max_position_embeddings": 65536,
    }
    audio = {
        "num_mel_bins": 128,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        "output_dim": _THINKER,
        "n_window": 50,
        "n_window_infer": 800,
        "conv_chunksize": 500,
        "downsample_hidden_size": 16,
        "max_source_positions": 1500,
        "activation_function": "gelu",
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": _THINKER,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 64,
        "image_size": 128,  # vLLM reads these two, transformers does not write them
        "apply_vit_abs_pos_embed": True,
        "deepstack_visual_indexes": [0, 1],
    }
    ids = {
        "audio_token_id": _SPECIAL["<|audio_pad|>"],
        "image_token_id": _SPECIAL["<|image_pad|>"],
        "video_token_id": _SPECIAL["<|video_pad|>"],
        "audio_start_token_id": _SPECIAL["<|audio_start|>"],
        "vision_start_token_id": _SPECIAL["<|vision_start|>"],
        "position_id_per_seconds": 13,
    }
    talker = {
        "code_predictor_config": layers
        | {
            "hidden_size": _TALKER,
            "vocab_size": _CODES,
            "num_code_groups": _GROUPS,
            "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
        },
        "text_config": layers
        | experts
        | {"hidden_size": _TALKER, "vocab_size": 3072, "shared_expert_intermediate_size": 64},
        "num_code_groups": _GROUPS,
        "thinker_hidden_size": _THINKER,
        "accept_hidden_layer": accepted,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "audio_end_token_id": _SPECIAL["<|audio_end|>"],
        "speaker_id": {_SPEAKER: 2301, "ethan": 2302, "aiden": 2303},
        "spatial_merge_size": 2,
        "seconds_per_chunk": 2,
    }
    decoder = {
        "codebook_size": _CODES,
        "num_quantizers": _GROUPS,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "decoder_dim": 128,
        "sliding_window": 72,
        "max_position_embeddings": 8000,
    }
    thinker = {
        "audio_config": audio,
        "vision_config": vision,
        "text_config": layers
        | experts
        | {
            "vocab_size": parts.QWEN_WORDS,
            "num_hidden_layers": accepted + 1,
            "mlp_only_layers": [*range(1, accepted)],  # a mixture in each would be most of the minutes
        },
        "audio_end_token_id": _SPECIAL["<|audio_end|>"],
        "vision_end_token_id": _SPECIAL["<|vision_end|>"],
        "user_token_id": parts.QWEN_ROLES["user"],
    }
    config = transformers.Qwen3OmniMoeConfig(
        thinker_config=thinker | ids,
        talker_config=talker | ids,
        code2wav_config=decoder,
        enable_audio_output=True,
        im_start_token_id=_SPECIAL["<|im_start|>"],
        im_end_token_id=_SPECIAL["<|im_end|>"],
        tts_pad_token_id=_SPECIAL["<tts_pad>"],
        tts_bos_token_id=_SPECIAL["<tts_text_bos>"],
        tts_eos_token_id=_SPECIAL["<tts_text_eod>"],
        **{f"{role}_token_id": number for role, number in parts.QWEN_ROLES.items()},
    )
    config.architectures = [ARCHITECTURE]
    return config


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The answer's tokens, the log-probability of each, and its sound as samples in steps of 16 bits."""
    talker = {"max_tokens": _FRAMES, "repetition_penalty": 1.0}
    return parts.ask_aloud(running, prompt, more, _TOKENS, talker, speaker=_SPEAKER)
