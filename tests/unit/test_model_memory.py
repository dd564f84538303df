from __future__ import annotations

import model_kit as kit
import pytest

from npu_upgrade.checkpoint.config import load
from npu_upgrade.checkpoint.memory import (
    BLOCK,
    GIB,
    Cache,
    Parallel,
    cache,
    grouped,
    longest,
    possible,
    weight_bytes,
)
from npu_upgrade.checkpoint.shape import shape_of
from npu_upgrade.checkpoint.weights import Tensor

BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def kept(keys, **cut):
    config = load(BASE | keys)
    return cache(config, shape_of(config), Parallel(**cut))


def test_bytes_of_a_token_by_the_kind_of_attention():
    assert kept({}).token == 4 * 2 * (16 + 16) * 2
    assert kept({}, tp=2).token == 4 * 1 * (16 + 16) * 2
    assert kept({}, tp=8).token == kept({}, tp=2).token  # heads are replicated, not cut further
    assert kept({}, pp=2).token == kept({}).token // 2
    latent = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert kept(latent).token == kept(latent, tp=8).token == 4 * 576 * 2
    assert kept(latent | {"index_head_dim": 128, "index_topk": 8}).token == 4 * (576 + 128) * 2


def test_windows_and_states_do_not_grow():
    window = kept({"sliding_window": 100})
    assert (window.token, window.window_tokens) == (0, 100)
    assert window.sequence(10_000) == window.sequence(100_000)
    mixed = {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_num_value_heads": 4}
    mixed |= {
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
    }
    hybrid = kept(mixed)
    assert hybrid.token == 2 * 32 * 2
    assert hybrid.state == 3 * ((2 * 16 + 32) * 3 + 4 * 8 * 8) * 2


def test_what_a_rank_holds_of_the_weights():
    size = {"model.layers.0.mlp.experts.0.up_proj.weight": 80, "model.layers.0.self_attn.q_proj.weight": 80}
    size |= {"model.layers.0.self_attn.k_proj.weight": 80, "model.layers.0.mlp.gate.weight": 80}
    size |= {"model.layers.1.mlp.up_proj.weight": 80, "model.embed_tokens.weight": 80, "lm_head.weight": 80}
    tensors = {name: Tensor("BF16", (8, 5), 0, bytes, "x") for name, bytes in size.items()}
    tensors["model.norm.weight"] = Tensor("F32", (20,), 0, 80, "x")  # served in 16 bits
    groups = grouped(tensors)
    assert weight_bytes(groups, Parallel(), 2) == 7 * 80 + 40
    assert weight_bytes(groups, Parallel(tp=8), 2) == 10 + 10 + 40 + 80 + 10 + 10 + 10 + 40
    assert weight_bytes(groups, Parallel(pp=2), 2) == 4 * 80 + 80 + 40


def test_the_longest_sequence():
    one = Cache(token=100, window=0, window_tokens=0, state=1000)
    assert longest(one, 100 * BLOCK + 1000, 10_000) == BLOCK
    assert longest(one, 100 * BLOCK + 999, 10_000) == 0
    assert longest(one, GIB, 10_000) == 10_000
    assert one.sequence(longest(one, 10**6, 10**6)) <= 10**6


def test_cuts_that_are_impossible():
    shape = shape_of(load(BASE))
    assert possible(shape, Parallel(8)) == ""
    assert "not divisible" in possible(shape, Parallel(16))
    assert "no experts" in possible(shape, Parallel(8, ep=True))


@pytest.mark.parametrize("scale", [1, 2])
def test_the_plan_uses_the_headers(tmp_path, scale):
    from npu_upgrade.checkpoint.analysis import analyse
    from npu_upgrade.checkpoint.serving import Sources

    shapes = {
        name: (size[0], size[1] * 1000 * scale) if len(size) > 1 else size
        for name, size in kit.llama_shapes().items()
    }
    shapes["model.embed_tokens.weight"] = (32, 8)
    found = analyse(kit.checkpoint(tmp_path, kit.LLAMA, shapes), Sources())
    assert found.file.memory[0].weights_from == "headers"
    assert weight_bytes(grouped(found.weights.tensors), Parallel(), 1) == found.weights.bytes
