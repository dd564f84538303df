"""A DeepSeek-V3-like model with random weights: latent attention, one dense layer and one with experts.

The head sizes are those of the real models, since latent attention on the device knows no others.
"""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models import files
from npu_emulator.dry_run.models.mixture import experts, feed_forward

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": files.VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "moe_intermediate_size": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "num_nextn_predict_layers": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint, by Hugging Face name."""
    hidden = config["hidden_size"]
    found = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        found |= {prefix + f"{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
        found |= _attention(prefix + "self_attn.", config)
        if layer < config["first_k_dense_replace"]:
            found |= feed_forward(prefix + "mlp.", hidden, config["intermediate_size"])
        else:
            found |= _experts(prefix + "mlp.", config)
    return found


def _attention(prefix: str, config: dict) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    low, latent, rope = config["q_lora_rank"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    return {
        prefix + "q_a_proj.weight": (low, hidden),
        prefix + "q_a_layernorm.weight": (low,),
        prefix + "q_b_proj.weight": (heads * (nope + rope), low),
        prefix + "kv_a_proj_with_mqa.weight": (latent + rope, hidden),
        prefix + "kv_a_layernorm.weight": (latent,),
        prefix + "kv_b_proj.weight": (heads * (nope + value), latent),
        prefix + "o_proj.weight": (hidden, heads * value),
    }


def _experts(prefix: str, config: dict) -> dict[str, tuple[int, ...]]:
    hidden, wide, count = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    found = experts(prefix, count, hidden, wide) | {prefix + "gate.e_score_correction_bias": (count,)}
    return found | feed_forward(prefix + "shared_experts.", hidden, wide * config["n_shared_experts"])


def make(folder: Path) -> None:
    """Write config, weights and tokenizer into ``folder``."""
    files.write(folder, CONFIG, shapes(CONFIG))
