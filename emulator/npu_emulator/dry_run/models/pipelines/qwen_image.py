"""Qwen-Image: one diffusion stage from text to a picture, held against diffusers' own pipeline on the CPU."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from npu_emulator.dry_run import engine, server
from npu_emulator.dry_run.models.files import write_json
from npu_emulator.dry_run.models.pipelines import parts

ARCHITECTURE = "QwenImagePipeline"
# in float32: vllm-omni's text encoder keeps the checkpoint's dtype, and rounding would hide what is wrong
OPTIONS = ("--dtype", "float32", "--enforce-eager")
DEPLOY = ""
WORKERS = ()
WITHOUT_NPU = True  # diffusers would take its kernels
_SIZE, _STEPS, _GUIDANCE = 64, 2, 4.0
_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|video_pad|>",
    "<|image_pad|>",
    "<|vision_end|>",
)


def make(folder: Path) -> None:
    """Write the parts of the pipeline with diffusers' and transformers' own classes, and its answers."""
    import diffusers
    import transformers

    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 512,
            "max_position_embeddings": 4096,
            "rope_theta": 1000000.0,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 14,
            "fullatt_block_indexes": [0],
            "window_size": 112,
        },
        image_token_id=_SPECIAL.index("<|image_pad|>"),
        video_token_id=_SPECIAL.index("<|video_pad|>"),
        vision_start_token_id=_SPECIAL.index("<|vision_start|>"),
        vision_end_token_id=_SPECIAL.index("<|vision_end|>"),
    )
    made = {
        "text_encoder": transformers.Qwen2_5_VLForConditionalGeneration(config),
        "transformer": diffusers.QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=64,
            out_channels=16,
            num_layers=2,
            attention_head_dim=32,
            num_attention_heads=2,
            joint_attention_dim=64,
            guidance_embeds=False,
            axes_dims_rope=(8, 12, 12),
        ),
        "vae": diffusers.AutoencoderKLQwenImage(
            base_dim=8,
            z_dim=16,
            dim_mult=[1, 2, 4, 4],
            num_res_blocks=1,
            attn_scales=[],
            temperal_downsample=[False, True, True],
        ),
    }
    for seed, (name, module) in enumerate(made.items()):
        parts.seeded(module, seed).save_pretrained(folder / name)
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(
        base_image_seq_len=256,
        base_shift=0.5,
        max_image_seq_len=8192,
        max_shift=0.9,
        num_train_timesteps=1000,
        shift=1.0,
        shift_terminal=0.02,
        time_shift_type="exponential",
        use_dynamic_shifting=True,
    )
    scheduler.save_pretrained(folder / "scheduler")
    parts.tokenizer(folder / "tokenizer", _SPECIAL, eos_token="<|im_end|>")
    index = {
        "_class_name": ARCHITECTURE,
        "_diffusers_version": diffusers.__version__,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "QwenImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
    }
    write_json(folder / "model_index.json", index)
    drawn = parts.by_diffusers(
        folder,
        ARCHITECTURE,
        negative_prompt=" ",
        true_cfg_scale=_GUIDANCE,
        height=_SIZE,
        width=_SIZE,
        num_inference_steps=_STEPS,
    )

    def picture(text: str, seed: int, _: dict) -> dict:
        return {"answer": drawn(text, seed).images[0].permute(1, 2, 0).float()}

    parts.expect(folder, "qwen-image", picture)


def ask(running, prompt: tuple[int, ...], index: int, more: dict) -> engine.Output:
    """The picture of a prompt, whose noise is drawn from the number ``index``: (height, width, 3), 0 to 1."""
    import numpy
    import torch
    from PIL import Image

    body = {
        "prompt": parts.text(prompt),
        "negative_prompt": " ",
        "true_cfg_scale": _GUIDANCE,
        "size": f"{_SIZE}x{_SIZE}",
        "num_inference_steps": _STEPS,
        "seed": index,
        "generator_device": "cpu",
        "response_format": "b64_json",
        **more,
    }
    data = server.post(running, "/v1/images/generations", body)["data"][0]["b64_json"]
    picture = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    return engine.Output([], [], {"answer": [torch.from_numpy(numpy.array(picture)).float() / 255]})
