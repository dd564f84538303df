"""A GLM-4.5-like model with experts and an MTP layer, whose next token follows from the last one alone.

``python -m npu_emulator.dry_run.models.drafting FOLDER`` writes it. Its layers add nothing to the stream, its
head maps each letter to another one, and the MTP layer looks at the embedding of the token that was just
chosen: so every draft is right, and what a server accepts shows that drafts are made and used.
"""

from __future__ import annotations

import sys
from pathlib import Path

from npu_emulator.dry_run.models import files
from npu_emulator.dry_run.models.mixture import experts, feed_forward

_FIRST, _LETTERS, _STEP = 3, 94, 37  # the printable characters, and how far the next one is
CONFIG = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "vocab_size": files.VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "use_qk_norm": False,
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "moe_intermediate_size": 64,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint, those of the MTP layer behind the last one."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    layers, drafts = config["num_hidden_layers"], config["num_nextn_predict_layers"]
    found = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocabulary, hidden),
    }
    for layer in range(layers + drafts):
        found |= _layer(config, f"model.layers.{layer}.", dense=layer < config["first_k_dense_replace"])
    for layer in range(layers, layers + drafts):
        prefix = f"model.layers.{layer}."
        found |= {f"{prefix}{name}.weight": (hidden,) for name in ("enorm", "hnorm", "shared_head.norm")}
        found |= {
            prefix + "eh_proj.weight": (hidden, 2 * hidden),
            prefix + "embed_tokens.weight": (vocabulary, hidden),
            prefix + "shared_head.head.weight": (vocabulary, hidden),
        }
    return found


def _layer(config: dict, prefix: str, dense: bool) -> dict[str, tuple[int, ...]]:
    hidden, wide, size = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    found = {
        prefix + "self_attn.q_proj.weight": (heads, hidden),
        prefix + "self_attn.k_proj.weight": (kv_heads, hidden),
        prefix + "self_attn.v_proj.weight": (kv_heads, hidden),
        prefix + "self_attn.o_proj.weight": (hidden, heads),
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "post_attention_layernorm.weight": (hidden,),
    }
    if dense:
        return found | feed_forward(prefix + "mlp.", hidden, config["intermediate_size"])
    found |= experts(prefix + "mlp.", config["n_routed_experts"], hidden, wide)
    found |= feed_forward(prefix + "mlp.shared_experts.", hidden, wide * config["n_shared_experts"])
    return found | {prefix + "mlp.gate.e_score_correction_bias": (config["n_routed_experts"],)}


def make(folder: Path) -> None:
    """Write config, weights and tokenizer into ``folder``."""
    from safetensors.torch import load_file, save_file

    files.write(folder, CONFIG, shapes(CONFIG))
    path = folder / "model.safetensors"
    save_file(_settled(load_file(path)), path, metadata={"format": "pt"})


def _settled(weights: dict) -> dict:
    """Random weights made into those of the model that is described above."""
    import torch

    embedding = weights["model.embed_tokens.weight"]
    head = torch.zeros_like(embedding)
    for token in range(len(embedding)):
        head[_FIRST + (token * _STEP) % _LETTERS] += embedding[token]
    for name, value in weights.items():
        if name.endswith("norm.weight"):
            value.fill_(1.0)
        elif name.endswith(("o_proj.weight", "down_proj.weight", "bias")):
            value.zero_()
        elif name.endswith("embed_tokens.weight"):
            value.copy_(embedding)
        elif name.endswith("head.weight"):
            value.copy_(head)
        elif name.endswith("eh_proj.weight"):
            value.zero_()
            value[:, : value.shape[0]] = torch.eye(value.shape[0])
    return weights


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    make(target)
