"""Small checkpoints for tests: real safetensors files with zeros in them, written without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.weights import BITS

LLAMA = {
    **{
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 16,
    },
    **{"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 32},
    **{"max_position_embeddings": 128, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
}


def llama_shapes(config: Mapping[str, Any] = LLAMA, prefix: str = "model.") -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama of that configuration."""
    hidden, wide, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    size, kv = hidden // heads, config["num_key_value_heads"]
    shapes = {
        f"{prefix}embed_tokens.weight": (config["vocab_size"], hidden),
        f"{prefix}norm.weight": (hidden,),
    }
    shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        start = f"{prefix}layers.{layer}."
        shapes |= {
            f"{start}self_attn.q_proj.weight": (heads * size, hidden),
            f"{start}self_attn.k_proj.weight": (kv * size, hidden),
            f"{start}self_attn.v_proj.weight": (kv * size, hidden),
            f"{start}self_attn.o_proj.weight": (hidden, heads * size),
            f"{start}mlp.gate_proj.weight": (wide, hidden),
            f"{start}mlp.up_proj.weight": (wide, hidden),
            f"{start}mlp.down_proj.weight": (hidden, wide),
            f"{start}input_layernorm.weight": (hidden,),
            f"{start}post_attention_layernorm.weight": (hidden,),
        }
    return shapes


def shard(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file with these tensors, all zeros."""
    header, place = {}, 0
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name, "BF16")
        size = math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    return with_header(header, bytes(place))


def with_header(header: Any, data: bytes = b"") -> bytes:
    """A file with that header (an object, or bytes as they are) and that data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def checkpoint(
    folder: Path,
    config: Mapping[str, Any] | None = LLAMA,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dtypes: Mapping[str, str] | None = None,
    shards: int = 1,
) -> Path:
    """A folder with a configuration, a tokenizer's file and as many shards, with an index for several."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    shapes = llama_shapes(config or LLAMA) if shapes is None else shapes
    if shards == 1:
        (folder / "model.safetensors").write_bytes(shard(shapes, dtypes))
        return folder
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: shapes[key] for key in list(shapes)[number::shards]}
        (folder / name).write_bytes(shard(part, dtypes))
        weight_map |= dict.fromkeys(part, name)
    write_index(folder, weight_map)
    return folder


def write_index(folder: Path, weight_map: Any) -> None:
    """The index of a folder's shards."""
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)
