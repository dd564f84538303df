from __future__ import annotations

import pytest

from bench.model_facts import classes_of
from npu_upgrade.checkpoint.config import load
from npu_upgrade.checkpoint.shape import is_hybrid, layer_kinds, shape_of

BASE = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 100}


def shape(**keys):
    return shape_of(load(BASE | keys))


def test_defaults_and_aliases_of_the_class():
    assert shape_of(load({"model_type": "gpt2", "n_embd": 1024})).hidden_size == 1024
    assert shape_of(load({"model_type": "gpt2"})).layers == 12
    assert shape(model_type="mixtral").experts == 8
    assert shape(model_type="mixtral", num_experts=4).experts == 4
    assert shape(model_type="llama").kv_heads == 8


@pytest.mark.parametrize(
    ("keys", "length"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({"max_position_embeddings": 100, "seq_length": 50}, 50),
        ({"max_position_embeddings": 100, "model_max_length": 400}, 400),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 4.0}}, 400),
        ({"max_position_embeddings": 100, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "mrope", "mrope_section": [1]}}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"factor": None, "type": "dynamic"}}, 100),
        (
            {
                "max_position_embeddings": 100,
                "original_max_position_embeddings": 25,
                "rope_scaling": {"type": "longrope"},
            },
            25,
        ),
        ({"max_position_embeddings": float("nan")}, 2048),
        ({}, 2048),
    ],
)
def test_length(keys, length):
    assert shape(**keys).max_len == length


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        ({"num_key_value_heads": 2}, 2),
        ({"num_key_value_heads": None}, 8),
        ({"multi_query": True, "model_type": "falcon"}, 1),
        (
            {
                "multi_query": True,
                "model_type": "falcon",
                "new_decoder_architecture": True,
                "num_kv_heads": 4,
            },
            4,
        ),
        ({"multi_query_group_num": 2}, 2),
        ({"model_type": "dbrx", "attn_config": {"kv_n_heads": 2}}, 2),
        ({"model_type": "mamba"}, 0),
        ({}, 8),
    ],
)
def test_heads_of_keys_and_values(keys, heads):
    assert shape(**keys).kv_heads == heads


def test_latent_attention_has_one_head_of_rank_and_rope():
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_key_value_heads": 8}
    assert (
        shape(model_type="deepseek_v3", **latent).mla,
        shape(model_type="deepseek_v3", **latent).head_size,
    ) == (True, 576)
    assert not shape(model_type="llama", **latent).mla
    assert not shape(model_type="deepseek_v2", **latent | {"kv_lora_rank": None}).mla


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_the_text_models_part(name):
    config = load({"model_type": "unheard_of", name: BASE | {"model_type": "llama"}})
    assert shape_of(config).hidden_size == 64
    assert config.text.path == f"{name}."


def test_a_part_in_a_part_and_older_flat_files():
    omni = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": BASE | {"num_experts": 4}}}
    assert shape_of(load(omni)).experts == 4
    assert shape_of(load(BASE | {"model_type": "qwen2_vl", "num_key_value_heads": 2})).kv_heads == 2


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, "ffff"),
        ({"sliding_window": 8}, "ssss"),
        ({"sliding_window": 8, "use_sliding_window": False}, "ffff"),
        ({"layer_types": ["linear_attention", "full_attention", "mamba", "sliding_attention"]}, "tfts"),
        ({"hybrid_override_pattern": "M*-E"}, "tfnn"),
        ({"attn_type_list": [0, 1, 0, 1]}, "tftf"),
        ({"linear_attn_config": {"kda_layers": [1, 2, 3]}}, "tttf"),
        ({"full_attention_interval": 2, "linear_num_value_heads": 4}, "tftf"),
        ({"sliding_window": 8, "sliding_window_pattern": 2}, "sfsf"),
        ({"sliding_window": 8, "sliding_window_pattern": "LLG"}, "ssfs"),
        ({"sliding_window": 8, "model_type": "gpt_oss"}, "sfsf"),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, "fffs"),
        ({"attn_layer_period": 4, "attn_layer_offset": 1, "mamba_d_state": 4}, "tftt"),
        (
            {
                "block_configs": [
                    {"attention": {"no_op": True}},
                    {"attention": {}},
                    {"block_type": "mamba"},
                    3,
                ]
            },
            "nftf",
        ),
    ],
)
def test_kinds_of_layers(keys, kinds):
    letters = {"full": "f", "sliding": "s", "state": "t", "none": "n"}
    assert "".join(letters[kind] for kind in layer_kinds(load(BASE | keys))) == kinds


def test_a_hybrid_class_with_attention_only_is_none():
    plain, mixed = ({"layer_types": [kind, "attention"]} for kind in ("attention", "mamba"))
    assert not is_hybrid(load(BASE | plain), ["is_hybrid"])
    assert is_hybrid(load(BASE | mixed), ["is_hybrid"])
    assert not is_hybrid(load(BASE | mixed), [])
    assert is_hybrid(load(BASE | mixed | {"num_hidden_layers": 2}), None)


def test_configuration_classes_are_read_by_syntax():
    source = """
class AConfig(PreTrainedConfig):
    model_type = "a"
    attribute_map = {"hidden_size": "d_model"}
    sub_configs = {"text_config": BConfig}
    d_model: int = 4 * 8
    heads: int | None = None
    other: list = field(default_factory=list)
    def __post_init__(self):
        self.head_dim = self.rope_dim
        if self.heads is None:
            self.kv = self.heads
    def get_text_config(self, decoder=False):
        return self.thinker.get_text_config()

class BConfig(PretrainedConfig):
    def __init__(self, layers=3, *, vocab=7, rest=None, **kwargs):
        pass
"""
    a, b = classes_of(source)
    assert (a.model_type, a.aliases, a.parts) == ("a", {"hidden_size": "d_model"}, {"text_config": "BConfig"})
    assert (a.defaults, a.copies, a.text) == (
        {"d_model": 32, "heads": None},
        {"head_dim": "rope_dim"},
        ["thinker"],
    )
    assert b.defaults == {"layers": 3, "vocab": 7, "rest": None}
