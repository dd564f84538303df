"""Wan2.2 TI2V: one diffusion stage from text to a video, held against diffusers' own pipeline on the CPU.

The video comes as a file that loses colour, so the brightness of its frames is compared.
"""

from __future__ import annotations

import io
import json
import urllib.parse
from pathlib import Path

from npu_emulator.dry_run import engine, server
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "WanPipeline"
OPTIONS = ("--dtype", "float32", "--enforce-eager")
DEPLOY = ""
WORKERS = ()
WITHOUT_NPU = True  # diffusers would take its kernels
_SIZE, _FRAMES, _STEPS, _GUIDANCE, _CHANNELS = 64, 5, 2, 3.0, 48
_SPECIAL = ("<pad>", "</s>", "<unk>")
_SMALLEST_LOSS = {"preset": "ultrafast", "qp": "0"}
_BRIGHTNESS = (0.257, 0.504, 0.098)  # of red, green and blue in a video's first plane, above 16 / 255


def make(folder: Path) -> None:
    """Write the parts of the pipeline with diffusers' and transformers' own classes, and its answers."""
    import diffusers
    import torch
    import transformers

    encoder = transformers.UMT5Config(
        vocab_size=300,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        relative_attention_num_buckets=8,
        feed_forward_proj="gated-gelu",
    )
    made = {
        "text_encoder": transformers.UMT5EncoderModel(encoder),
        "transformer": diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=32,
            in_channels=_CHANNELS,
            out_channels=_CHANNELS,
            text_dim=32,
            freq_dim=32,
            ffn_dim=64,
            num_layers=2,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=1024,
        ),
        "vae": diffusers.AutoencoderKLWan(
            base_dim=8,
            decoder_base_dim=8,
            z_dim=_CHANNELS,
            dim_mult=[1, 2, 4, 4],
            num_res_blocks=1,
            attn_scales=[],
            temperal_downsample=[False, True, True],
            is_residual=True,
            in_channels=12,
            out_channels=12,
            patch_size=2,
            scale_factor_temporal=4,
            scale_factor_spatial=16,
            latents_mean=[0.0] * _CHANNELS,
            latents_std=[1.0] * _CHANNELS,
        ),
    }
    for seed, (name, module) in enumerate(made.items()):
        parts.seeded(module, seed).save_pretrained(folder / name)
    scheduler = diffusers.UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=5.0
    )
    scheduler.save_pretrained(folder / "scheduler")
    _tokenizer(folder / "tokenizer")
    index = {
        "_class_name": ARCHITECTURE,
        "_diffusers_version": diffusers.__version__,
        "boundary_ratio": None,
        "expand_timesteps": True,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "PreTrainedTokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    write_json(folder / "model_index.json", index)
    drawn = parts.by_diffusers(
        folder,
        ARCHITECTURE,
        negative_prompt="",
        height=_SIZE,
        width=_SIZE,
        num_frames=_FRAMES,
        num_inference_steps=_STEPS,
        guidance_scale=_GUIDANCE,
    )

    def brightness(text: str, seed: int, _: dict) -> dict:
        colours = drawn(text, seed).frames[0].permute(0, 2, 3, 1).float().clamp(0, 1)
        return {"answer": colours @ torch.tensor(_BRIGHTNESS) + 16 / 255}

    parts.expect(folder, "wan-ti2v", brightness)


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import BPE

    words = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(BPE(vocab={word: at for at, word in enumerate(words)}, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(list(_SPECIAL))
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    kept = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 512}
    write_json(folder / "tokenizer_config.json", kept | {"tokenizer_class": "PreTrainedTokenizerFast"})


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The video of a prompt, its noise drawn from ``index``: brightness (frames, height, width)."""
    import av
    import torch

    form = {
        "prompt": parts.text(prompt),
        "negative_prompt": "",
        "size": f"{_SIZE}x{_SIZE}",
        "num_frames": _FRAMES,
        "num_inference_steps": _STEPS,
        "guidance_scale": _GUIDANCE,
        "flow_shift": 5.0,
        "seed": index,
        "fps": 8,
        "extra_params": json.dumps({"video_codec_options": _SMALLEST_LOSS}),
        **more,
    }
    found = server.content(running, "/v1/videos/sync", form, urllib.parse.urlencode)
    with av.open(io.BytesIO(found)) as video:
        planes = [frame.to_ndarray(format="yuv420p")[:_SIZE] for frame in video.decode(video=0)]
    return engine.Output(
        [], [], {"answer": [torch.stack([torch.from_numpy(one).float() / 255 for one in planes])]}
    )
