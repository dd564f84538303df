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


def embed(folder: Path, tokens) -> torch.Tensor:
    """The input embeddings (tokens, hidden size)."""
    return _load(folder)[1]["model.embed_tokens.weight"][torch.tensor(tokens)]


def logits(folder: Path, states: torch.Tensor) -> torch.Tensor:
    """The logits (…, vocabulary) of final hidden states."""
    return linear(states, _load(folder)[1]["lm_head.weight"])


def hidden_states(folder: Path, tokens) -> torch.Tensor:
    """The final hidden states (tokens, hidden size) of one sequence."""
    return decode(folder, embed(folder, tokens))


@torch.inference_mode()
def decode(folder: Path, states: torch.Tensor) -> torch.Tensor:
    """The final hidden states (tokens, hidden size) for the input embeddings of one sequence."""
    config, weights = _load(folder)
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


def most_likely(scores: torch.Tensor) -> int:
    """The greedy choice."""
    return int(scores.argmax())


def second_most_likely(scores: torch.Tensor) -> int:
    """The choice of a model with a sampler of its own."""
    return int(scores.topk(2).indices[1])


@torch.inference_mode()
def generate(folder: Path, prompts, sampling: dict[str, Any], choose=most_likely) -> list[Output]:
    """Tokens, log-probabilities and all hidden states for each prompt; a repetition penalty when asked."""
    results = []
    for prompt in prompts:
        tokens, logprobs, states = list(prompt), [], torch.empty(0)
        for _ in range(sampling["max_tokens"]):
            states = hidden_states(folder, tokens)
            scores = logits(folder, states[-1])
            chosen = choose(penalised(scores, tokens, sampling.get("repetition_penalty", 1.0)))
            logprobs.append(float(scores.log_softmax(-1)[chosen]))
            tokens.append(chosen)
        results.append(Output(tokens[len(prompt) :], logprobs, {"hidden": [states]}))
    return results


def penalised(logits, tokens, penalty):
    """``logits`` with those of the tokens seen so far made less likely."""
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[torch.tensor(sorted(set(tokens)))] = True
    changed = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, changed, logits)
