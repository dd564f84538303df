"""The answers to the decisions that a scaffold leaves open, of each checkpoint that nobody serves."""

from __future__ import annotations

from pathlib import Path

_FAMILIES = {
    "dense": ("qwen2", "Qwen2ForCausalLM"),
    "mixture": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "latent": ("deepseek_v2", "DeepseekV3ForCausalLM"),
    "hybrid": ("qwen3_next", "Qwen3NextForCausalLM"),
    "looker": ("blip2", "Blip2ForConditionalGeneration"),
}


def decide(repo: Path, name: str) -> bool:
    """Take every open decision below ``repo``; false when there is none."""
    return False
