"""Qwen2.5-Omni: a thinker answers text, picture and sound, a talker and a diffusion decoder say it.

The thinker's tokens and their log-probabilities are held against transformers' own model on the CPU, in
bfloat16 as the stages compute. The sound has no reference: asked again it is the same. The decoder begins
with noise that nobody can seed; its weights do not look at the noise, and what they make is so large that
the vocoder cuts it off at its two ends, and no noise is left in it.
"""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run import engine
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "Qwen2_5OmniForConditionalGeneration"
OPTIONS = ()
DEPLOY = "qwen2_5_omni.yaml"
WORKERS = ("ar", "generation")  # the kinds
WITHOUT_NPU = True  # transformers would take its kernels
# of an answer: of text, and of sound; the vocoder leaves out twenty steps of two a frame
_TOKENS, _FRAMES = 5, 24
_HIDDEN, _CODES, _MELS, _VOICE = 128, 8193, 80, 16
_LOUD, _QUIET, _HEARD, _REFERENCE = 1e6, 0.01, 4.0, 30
_VOICES = ("Chelsie", "Ethan")
_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|AUDIO|>": 151646,
    "<|audio_bos|>": 151647,
    "<|audio_eos|>": 151648,
    "<|vision_bos|>": 151652,
    "<|vision_eos|>": 151653,
    "<|vision_pad|>": 151654,
    "<|IMAGE|>": 151655,
    "<|VIDEO|>": 151656,
}
_NAMED = {  # as the processor calls them
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}


def reduce(deploy: dict) -> None:
    """Put the stages on one device, and make smaller what only sizes the profiling."""
    parts.reduce(deploy, (512, 512, 2048), (0.4, 0.3, 0.2))


def make(folder: Path) -> None:
    """Write the checkpoint with transformers' own classes, and the thinker's answers."""
    import torch
    import transformers

    parts.qwen_omni_files(folder, _SPECIAL, _NAMED, "Qwen2_5OmniProcessor", 14)
    model = parts.seeded(transformers.Qwen2_5OmniForConditionalGeneration(_config()), 0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("code2wav_dit_model.proj_out.weight"):
                value.mul_(_LOUD)
            elif name.endswith("code2wav_dit_model.input_embed.proj.weight"):
                value[:, :_MELS] = 0  # the noise comes first
            elif name.endswith("code2wav_bigvgan_model.conv_post.weight"):
                value.mul_(_QUIET)
            elif "codec_head" in name:
                value.mul_(value.shape[-1] ** 0.5)
            elif name.endswith(("o_proj.weight", "merger.mlp.2.weight", "audio_tower.proj.weight")):
                value.mul_(_HEARD)
    model = model.to(torch.bfloat16)
    model.token2wav.float()
    parts.answer_by_thinker(folder, "qwen2.5-omni", model, _TOKENS, parts.messages)
    model.save_pretrained(folder)
    random = torch.Generator().manual_seed(0)
    voices = {
        name: {
            "cond": torch.randn(1, _VOICE, generator=random),
            "ref_mel": torch.randn(1, _REFERENCE, _MELS, generator=random),
        }
        for name in _VOICES
    }
    torch.save(voices, folder / "spk_dict.pt")
    write_json(folder / "generation_config.json", {"pad_token_id": _SPECIAL["<|endoftext|>"]})


def _config():
    import transformers

    layers = {
        "hidden_size": _HIDDEN,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000, "mrope_section": [16, 24, 24]},
    }
    audio = {
        "num_mel_bins": 128,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        "output_dim": _HIDDEN,
        "n_window": 100,
        "max_source_positions": 1500,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": _HIDDEN,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 25,
    }
    ids = {
        "audio_token_index": _SPECIAL["<|AUDIO|>"],
        "image_token_index": _SPECIAL["<|IMAGE|>"],
        "video_token_index": _SPECIAL["<|VIDEO|>"],
        "audio_start_token_id": _SPECIAL["<|audio_bos|>"],
        "audio_end_token_id": _SPECIAL["<|audio_eos|>"],
        "vision_start_token_id": _SPECIAL["<|vision_bos|>"],
        "vision_end_token_id": _SPECIAL["<|vision_eos|>"],
    }
    diffusion = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "head_dim": 32,
        "emb_dim": 32,
        "look_ahead_layers": [1],
        "look_backward_layers": [0],
        "num_embeds": _CODES,
        "mel_dim": _MELS,
        "enc_emb_dim": _VOICE,
        "enc_dim": 16,
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_attention_channels": 8,
        "enc_se_channels": 8,
        "dtype": "float32",
    }
    vocoder = {
        "mel_dim": _MELS,
        "upsample_initial_channel": 64,
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1, 3, 5]],
        "dtype": "float32",
    }
    thinker = {
        "audio_config": audio,
        "vision_config": vision,
        "text_config": layers | {"vocab_size": parts.QWEN_WORDS, "tie_word_embeddings": False},
        "user_token_id": parts.QWEN_ROLES["user"],
    }
    config = transformers.Qwen2_5OmniConfig(
        thinker_config=thinker | ids,
        talker_config=layers | ids | {"embedding_size": _HIDDEN, "head_dim": _HIDDEN},
        token2wav_config={"dit_config": diffusion, "bigvgan_config": vocoder},
        enable_audio_output=True,
    )
    config.architectures = [ARCHITECTURE]
    return config


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The answer's tokens, the log-probability of each, and its sound as samples in steps of 16 bits."""
    talker = {"max_tokens": _FRAMES, "repetition_penalty": 1.05}
    return parts.ask_aloud(running, prompt, more, _TOKENS, talker)
