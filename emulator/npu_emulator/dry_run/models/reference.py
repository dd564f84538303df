"""A torch reference of the tiny Qwen3: what the runner should give, in float32 and without a cache."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear, silu

from npu_emulator.dry_run.engine import Output


@functools.cache
def _load(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config, load_file(folder / "model.safetensors")


@torch.inference_mode()
def hidden_states(folder: Path, tokens: list[int]) -> torch.Tensor:
    """The final hidden states (tokens, hidden size) of one sequence."""
    config, weights = _load(folder)
    states = weights["model.embed_tokens.weight"][torch.tensor(tokens)]
    for layer in range(config["num_hidden_layers"]):
        states = _layer(config, weights, f"model.layers.{layer}.", states)
    return _norm(states, weights["model.norm.weight"], config)


def _layer(config, weights, prefix, states):
    part = _norm(states, weights[prefix + "input_layernorm.weight"], config)
    states = states + _attention(config, weights, prefix + "self_attn.", part)
    part = _norm(states, weights[prefix + "post_attention_layernorm.weight"], config)
    gate = silu(linear(part, weights[prefix + "mlp.gate_proj.weight"]))
    up = linear(part, weights[prefix + "mlp.up_proj.weight"])
    return states + linear(gate * up, weights[prefix + "mlp.down_proj.weight"])


def _attention(config, weights, prefix, states):
    size, tokens = config["head_dim"], states.shape[0]
    query, key, value = (
        linear(states, weights[prefix + f"{name}_proj.weight"]).view(tokens, -1, size) for name in "qkv"
    )
    query = _rotate(_norm(query, weights[prefix + "q_norm.weight"], config), config)
    key = _rotate(_norm(key, weights[prefix + "k_norm.weight"], config), config)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    result = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), is_causal=True
    )
    return linear(result.transpose(0, 1).reshape(tokens, -1), weights[prefix + "o_proj.weight"])


def _rotate(states, config):
    size = states.shape[-1]
    frequency = config["rope_theta"] ** (-torch.arange(0, size, 2) / size)
    angle = torch.arange(states.shape[0])[:, None, None] * frequency
    cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()
    first, second = states.chunk(2, -1)
    return states * cos + torch.cat((-second, first), -1) * sin


def _norm(states, weight, config):
    return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weight


@torch.inference_mode()
def generate(folder: Path, prompts, sampling: dict[str, Any]) -> list[Output]:
    """Greedy tokens and their log-probabilities for each prompt, with a repetition penalty when asked."""
    _, weights = _load(folder)
    results = []
    for prompt in prompts:
        tokens, logprobs = list(prompt), []
        for _ in range(sampling["max_tokens"]):
            logits = linear(hidden_states(folder, tokens)[-1], weights["lm_head.weight"])
            chosen = int(_penalised(logits, tokens, sampling.get("repetition_penalty", 1.0)).argmax())
            logprobs.append(float(logits.log_softmax(-1)[chosen]))
            tokens.append(chosen)
        results.append(Output(tokens[len(prompt) :], logprobs, {}))
    return results


def _penalised(logits, tokens, penalty):
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[torch.tensor(sorted(set(tokens)))] = True
    changed = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, changed, logits)
