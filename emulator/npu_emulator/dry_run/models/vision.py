"""A Qwen2.5-VL with random weights: a vision tower of two blocks, one of them in windows, and two layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npu_emulator.dry_run.models import dense, files

MARKS = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
START, END, PAD, IMAGE, VIDEO = range(files.FIRST_MORE, files.FIRST_MORE + len(MARKS))
SIDE, PATCH, MERGED = (
    112,
    14,
    2,
)  # pixels of an image's side, of a patch's, patches of a side that become a token

VISION = {
    "model_type": "qwen2_5_vl",
    "depth": 2,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_heads": 2,
    "in_channels": 3,
    "in_chans": 3,
    "out_hidden_size": dense.CONFIG["hidden_size"],
    "patch_size": PATCH,
    "spatial_patch_size": PATCH,
    "spatial_merge_size": MERGED,
    "temporal_patch_size": 2,
    "tokens_per_second": 2,
    "window_size": 56,
    "fullatt_block_indexes": [1],
}
CONFIG = {
    **{key: value for key, value in dense.CONFIG.items() if key not in ("head_dim", "attention_bias")},
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]},
    "vision_start_token_id": START,
    "vision_end_token_id": END,
    "vision_token_id": PAD,
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_config": VISION | {"out_hidden_size": 256},
}
_IMAGES = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "min_pixels": 56 * 56,
    "max_pixels": SIDE * SIDE,
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": MERGED,
}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint, by Hugging Face name."""
    size = config["hidden_size"] // config["num_attention_heads"]
    found = {
        name: shape
        for name, shape in dense.shapes(config | {"head_dim": size}).items()
        if not name.endswith(("q_norm.weight", "k_norm.weight"))
    }
    for layer in range(config["num_hidden_layers"]):
        for name, heads in (
            ("q", "num_attention_heads"),
            ("k", "num_key_value_heads"),
            ("v", "num_key_value_heads"),
        ):
            found[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = (config[heads] * size,)
    return found | _tower("visual.", config["vision_config"])


def _tower(prefix: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    merged = hidden * config["spatial_merge_size"] ** 2
    patch = (config["in_channels"], config["temporal_patch_size"], PATCH, PATCH)
    found: dict[str, tuple[int, ...]] = {prefix + "patch_embed.proj.weight": (hidden, *patch)}
    found[prefix + "merger.ln_q.weight"] = (hidden,)
    found |= _linear(prefix + "merger.mlp.0", merged, merged)
    found |= _linear(prefix + "merger.mlp.2", config["out_hidden_size"], merged)
    for block in range(config["depth"]):
        inside = f"{prefix}blocks.{block}."
        found |= {inside + "norm1.weight": (hidden,), inside + "norm2.weight": (hidden,)}
        found |= _linear(inside + "attn.qkv", 3 * hidden, hidden)
        found |= _linear(inside + "attn.proj", hidden, hidden)
        for name in ("gate_proj", "up_proj"):
            found |= _linear(f"{inside}mlp.{name}", wide, hidden)
        found |= _linear(inside + "mlp.down_proj", hidden, wide)
    return found


def _linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {name + ".weight": (rows, columns), name + ".bias": (rows,)}


def image(seed: int):
    """A seeded picture of coloured squares, SIDE x SIDE pixels."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(seed)
    squares = random.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
    side = SIDE // 8
    return Image.fromarray(squares.repeat(side, 0).repeat(side, 1))


def make(folder: Path) -> None:
    """Write config, weights, tokenizer and image processor into ``folder``."""
    files.write(folder, CONFIG, shapes(CONFIG), more=MARKS, tokenizer="Qwen2Tokenizer")
    kinds = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}
    files.write_json(folder / "preprocessor_config.json", _IMAGES | kinds)
    videos = {"video_processor_type": "Qwen2VLVideoProcessor", "processor_class": "Qwen2_5_VLProcessor"}
    files.write_json(folder / "video_preprocessor_config.json", _IMAGES | videos)
