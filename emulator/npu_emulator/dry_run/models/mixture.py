"""A two-layer Qwen3-MoE with random weights: eight experts, two for each token."""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models import dense, files

CONFIG = dense.CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def experts(prefix: str, count: int, hidden: int, wide: int) -> dict[str, tuple[int, ...]]:
    """The weights of ``count`` experts and of the gate that chooses among them."""
    found = {prefix + "gate.weight": (count, hidden)}
    for expert in range(count):
        found |= feed_forward(f"{prefix}experts.{expert}.", hidden, wide)
    return found


def feed_forward(prefix: str, hidden: int, wide: int) -> dict[str, tuple[int, ...]]:
    """The weights of one gated feed-forward layer."""
    return {
        prefix + "gate_proj.weight": (wide, hidden),
        prefix + "up_proj.weight": (wide, hidden),
        prefix + "down_proj.weight": (hidden, wide),
    }


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The weights of the checkpoint: those of a dense model, with experts in place of its wide layers."""
    found = {name: shape for name, shape in dense.shapes(config).items() if ".mlp." not in name}
    for layer in range(config["num_hidden_layers"]):
        found |= experts(
            f"model.layers.{layer}.mlp.",
            config["num_experts"],
            config["hidden_size"],
            config["moe_intermediate_size"],
        )
    return found


def make(folder: Path) -> None:
    """Write config, weights and tokenizer into ``folder``."""
    files.write(folder, CONFIG, shapes(CONFIG))
