"""A BLIP-2 with random weights whose answers depend on the picture: a tower, a Q-Former, and a small OPT.

Nothing of it needs torchvision, so that it runs on any vLLM. Biases are zero, since ones as of a norm would
drown the picture, and the output matrix is not the embedding's, which would repeat the last token.
"""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models import dense, files

IMAGE = files.FIRST_MORE
SIDE, PATCH = 56, 14  # pixels
QUERIES = 8  # tokens that a picture becomes

TEXT = {
    **{key: dense.CONFIG[key] for key in ("num_hidden_layers", "torch_dtype")},
    "vocab_size": IMAGE + 1,  # the tokenizer's: every answer is text
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 128,
    "word_embed_proj_dim": 128,
    "ffn_dim": 256,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
    "do_layer_norm_before": True,
    "activation_function": "relu",
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {
    "model_type": "blip_2_vision_model",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
}
QUERYING = {
    "model_type": "blip_2_qformer",
    "hidden_size": 64,
    "encoder_hidden_size": VISION["hidden_size"],
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "cross_attention_frequency": 1,
}
CONFIG = {
    "architectures": ["Blip2ForConditionalGeneration"],
    "model_type": "blip-2",
    "image_token_index": IMAGE,
    "num_query_tokens": QUERIES,
    "text_config": TEXT,
    "vision_config": VISION,
    "qformer_config": QUERYING,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
_IMAGES = {
    "image_processor_type": "BlipImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
    **dict.fromkeys(("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"), True),
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
_PROCESSOR = {"processor_class": "Blip2Processor", "num_query_tokens": QUERIES}


def shapes() -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint, as transformers names them."""
    import torch
    from transformers import AutoConfig, Blip2ForConditionalGeneration

    kind = dict(CONFIG)
    config = AutoConfig.for_model(kind.pop("model_type"), **kind)
    with torch.device("meta"):
        model = Blip2ForConditionalGeneration(config)
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}


def make(folder: Path) -> None:
    """Write config, weights, tokenizer and processors into ``folder``."""
    import torch

    found = shapes()
    none = {name: torch.zeros(shape) for name, shape in found.items() if name.endswith("bias")}
    random = {name: shape for name, shape in found.items() if name not in none}
    files.write(folder, CONFIG, random, more=("<image>",), weights=none)
    files.write_json(folder / "preprocessor_config.json", _IMAGES | {"processor_class": "Blip2Processor"})
    files.write_json(folder / "processor_config.json", _PROCESSOR)
