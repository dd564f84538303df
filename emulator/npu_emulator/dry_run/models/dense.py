"""A two-layer Qwen3 with random weights: large enough to tell tokens apart, and quick."""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models import files

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": files.VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint, by Hugging Face name."""
    hidden, wide, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    found = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    found["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        found |= {
            prefix + "self_attn.q_proj.weight": (heads * size, hidden),
            prefix + "self_attn.k_proj.weight": (kv_heads * size, hidden),
            prefix + "self_attn.v_proj.weight": (kv_heads * size, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, heads * size),
            prefix + "self_attn.q_norm.weight": (size,),
            prefix + "self_attn.k_norm.weight": (size,),
            prefix + "mlp.gate_proj.weight": (wide, hidden),
            prefix + "mlp.up_proj.weight": (wide, hidden),
            prefix + "mlp.down_proj.weight": (hidden, wide),
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
        }
    return found


def make(folder: Path) -> None:
    """Write config, weights and tokenizer into ``folder``."""
    files.write(folder, CONFIG, shapes(CONFIG))
