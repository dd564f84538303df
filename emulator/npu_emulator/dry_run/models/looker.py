"""A LLaVA with random weights whose answers depend on the picture: CLIP's tower and a Llama of two layers.

Nothing of it needs torchvision, so that it runs on any vLLM.
"""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models import dense, files

IMAGE = files.FIRST_MORE
SIDE, PATCH = 56, 14  # pixels

TEXT = {
    **{key: dense.CONFIG[key] for key in ("vocab_size", "num_hidden_layers", "rms_norm_eps", "torch_dtype")},
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
    "projection_dim": 64,
}
CONFIG = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "image_token_index": IMAGE,
    "image_seq_length": (SIDE // PATCH) ** 2,
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "projector_hidden_act": "gelu",
    "text_config": TEXT,
    "vision_config": VISION,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
_IMAGES = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": SIDE},
    "crop_size": {"height": SIDE, "width": SIDE},
    **dict.fromkeys(("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"), True),
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
_PROCESSOR = {
    "processor_class": "LlavaProcessor",
    "patch_size": PATCH,
    "vision_feature_select_strategy": "default",
    "image_token": "<image>",
    "num_additional_image_tokens": 1,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint, as transformers names them."""
    import torch
    from transformers import AutoConfig, LlavaForConditionalGeneration

    kind = dict(CONFIG)
    config = AutoConfig.for_model(kind.pop("model_type"), **kind)
    with torch.device("meta"):
        model = LlavaForConditionalGeneration(config)
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}


def make(folder: Path) -> None:
    """Write config, weights, tokenizer and processors into ``folder``."""
    files.write(folder, CONFIG, shapes(), more=("<image>",))
    files.write_json(folder / "preprocessor_config.json", _IMAGES | {"processor_class": "LlavaProcessor"})
    files.write_json(folder / "processor_config.json", _PROCESSOR)
