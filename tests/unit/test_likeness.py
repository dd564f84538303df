"""Which family a checkpoint computes, whatever its names: tensors, keys, and what stays a question."""

from __future__ import annotations

import model_kit as kit
import pytest

from npu_upgrade.checkpoint.config import load
from npu_upgrade.checkpoint.likeness import families, likest
from npu_upgrade.checkpoint.parts import by_pattern

TIDAL = {
    "model.embed_tokens": "net.tokens",
    "model.layers": "net.blocks",
    "model.norm": "net.last_norm",
    "lm_head": "output",
    "self_attn.q_proj": "mixer.wq",
    "self_attn.k_proj": "mixer.wk",
    "self_attn.v_proj": "mixer.wv",
    "self_attn.o_proj": "mixer.wo",
    "gate_proj": "w1",
    "up_proj": "w3",
    "down_proj": "w2",
    "mlp": "feed",
    "input_layernorm": "before_mixer",
    "post_attention_layernorm": "before_feed",
}


def renamed(shapes, names):
    """Patterns of the tensors with their shapes, under other names."""
    found = {}
    for pattern, [name, *_] in by_pattern(shapes).items():
        for old, new in names.items():
            pattern = pattern.replace(old, new)
        found[pattern] = shapes[name]
    return found


def of(shapes, config=kit.LLAMA, own="TidalForCausalLM", **answers):
    return likest(load(config), shapes, own, answers)


def test_a_llama_under_other_names_has_every_place():
    found = of(renamed(kit.llama_shapes(), TIDAL))
    assert (found.family, found.complete) == ("LlamaForCausalLM", True)
    assert found.weights["net.blocks.*.mixer.wq.weight"] == ["model.layers.*.self_attn.q_proj.weight"]
    assert found.weights["net.blocks.*.feed.w3.weight"] == ["model.layers.*.mlp.up_proj.weight"]
    assert found.weights["net.blocks.*.before_feed.weight"] == [
        "model.layers.*.post_attention_layernorm.weight"
    ]
    assert len({target for [target] in found.weights.values()}) == len(found.weights)


def test_every_family_is_itself():
    """Each family's tiny model, asked without its architecture, has a place for each of its tensors."""
    wrong = []
    for name, family in families().items():
        if len(family.types) > 1:
            continue
        config = {key: value for key, value in family.sizes.items() if "." not in key}
        found = likest(load(config | {"model_type": "new"}), family.tensors, name, {"family": name})
        others = [pair for own, pair in found.weights.items() if pair not in ([own], [])]
        wrong += [name] if found.open or others else []
    assert wrong == []


def test_keys_are_told_by_words_and_by_shapes():
    config = {
        key: value for key, value in kit.LLAMA.items() if key not in ("num_hidden_layers", "vocab_size")
    }
    config |= {"n_blocks": 3, "norm_eps": 1e-5}
    found = of(renamed(kit.llama_shapes(), TIDAL), config)
    assert found.keys == {"n_blocks": "num_hidden_layers", "norm_eps": "rms_norm_eps"}
    assert found.values["vocab_size"] == kit.LLAMA["vocab_size"]


def test_a_key_that_nobody_reads_is_one_question():
    config = kit.LLAMA | {"ripple_strength": 0.5}
    shapes = renamed(kit.llama_shapes(), TIDAL)
    found = of(shapes, config)
    assert [one.id for one in found.questions] == ["ripple_strength"]
    assert not found.complete
    assert of(shapes, config, ripple_strength="ignore").complete


def test_what_two_places_fit_is_a_question_and_an_answer_settles_it():
    names = TIDAL | {"gate_proj": "alpha", "up_proj": "beta"}
    shapes = renamed(kit.llama_shapes(), names)
    found = of(shapes)
    asked = {one.id: one.options for one in found.questions}
    alpha = "net.blocks.*.feed.alpha.weight"
    gate, up = (f"model.layers.*.mlp.{name}_proj.weight" for name in ("gate", "up"))
    assert set(asked[alpha]) == {gate, up}
    settled = of(shapes, **{alpha: up, alpha.replace("alpha", "beta"): gate})
    assert settled.weights[alpha] == [up]
    assert settled.complete


def test_fused_projections_are_split_by_rows():
    config = kit.LLAMA | {"num_key_value_heads": 1, "head_dim": 4}
    shapes = renamed(kit.llama_shapes(config), TIDAL)
    layer = "net.blocks.*."
    for parts, fused in (
        (("mixer.wq", "mixer.wk", "mixer.wv"), "mixer.qkv"),
        (("feed.w1", "feed.w3"), "feed.gate_up"),
    ):
        rows = sum(shapes.pop(f"{layer}{part}.weight")[0] for part in parts)
        shapes[f"{layer}{fused}.weight"] = (rows, config["hidden_size"])
    assert of(shapes, config).family == "Phi3ForCausalLM"  # which holds them so itself
    found = of(shapes, config, family="LlamaForCausalLM")
    assert found.complete, found
    assert found.rows == {f"{layer}mixer.qkv.weight": [8, 4, 4], f"{layer}feed.gate_up.weight": [16, 16]}
    assert [one.rpartition("self_attn.")[2] for one in found.weights[f"{layer}mixer.qkv.weight"]] == [
        *("q_proj.weight", "k_proj.weight", "v_proj.weight")
    ]


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        (
            "Qwen3MoeForCausalLM",
            {".mlp.gate.": ".moe.router.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
        ),
        (
            "DeepseekV3ForCausalLM",
            {"kv_a_proj_with_mqa": "kv_down", "kv_b_proj": "kv_up", "self_attn": "attention"},
        ),
        ("Qwen3NextForCausalLM", {"linear_attn": "delta", "self_attn": "attn", "input_layernorm": "norm_1"}),
    ],
)
def test_families_other_than_dense(family, changes):
    known = families()[family]
    names = {
        "model.layers": "trunk.h",
        "model.embed_tokens": "trunk.wte",
        "model.norm": "trunk.ln_f",
    } | changes
    shapes = {}
    for pattern, shape in known.tensors.items():
        if pattern not in known.optional or "lm_head" in pattern:
            for old, new in names.items():
                pattern = pattern.replace(old, new)
            shapes[pattern] = shape
    config = {key: value for key, value in known.sizes.items() if "." not in key} | {"model_type": "new"}
    found = of(shapes, config | {"tie_word_embeddings": False})
    assert found.family == family
    assert not found.open, found.open


def mixture(gate_up, down):
    """Shapes and configuration of a mixture with all experts of a layer in two tensors."""
    known = families()["Qwen3MoeForCausalLM"]
    shapes = {
        one: shape
        for one, shape in known.tensors.items()
        if one not in known.optional and "experts" not in one
    }
    layer = "model.layers.*.mlp.experts."
    shapes |= {f"{layer}gate_up_proj": gate_up, f"{layer}down_proj": down, "lm_head.weight": (520, 136)}
    config = {key: value for key, value in known.sizes.items() if "." not in key} | {
        "tie_word_embeddings": False
    }
    return layer, shapes, config


def test_experts_in_one_tensor_are_taken_apart():
    layer, shapes, config = mixture((14, 176, 136), (14, 136, 88))
    found = of(shapes, config, own="", family="Qwen3MoeForCausalLM")
    assert not found.open, found
    assert found.weights[f"{layer}down_proj"] == [f"{layer}*.down_proj.weight"]
    assert found.weights[f"{layer}gate_up_proj"] == [f"{layer}*.{one}_proj.weight" for one in ("gate", "up")]
    assert found.rows == {f"{layer}gate_up_proj": [88, 88]}
    assert found.assumed == [f"{layer}gate_up_proj holds gate_proj, then up_proj"]
    assert found.orders(f"{layer}gate_up_proj") == ["as-named", "gate_proj,up_proj", "up_proj,gate_proj"]
    answered = {"family": "Qwen3MoeForCausalLM", f"{layer}gate_up_proj": "as-named"}
    assert of(shapes, config, own="", **answered).assumed == []
    answered[f"{layer}gate_up_proj"] = "up_proj,gate_proj"
    turned = of(shapes, config, own="", **answered)
    assert turned.assumed == []
    assert turned.weights[f"{layer}gate_up_proj"] == [f"{layer}*.{one}_proj.weight" for one in ("up", "gate")]
    shapes |= {f"{layer}down_proj": (14, 136, 136), f"{layer}gate_up_proj": (14, 272, 136)}
    square = of(shapes, config | {"moe_intermediate_size": 136}, own="", family="Qwen3MoeForCausalLM")
    assert f"{layer}down_proj is [..., out, in], and not transposed" in square.assumed
    assert square.orders(f"{layer}down_proj") == ["as-named", "transposed"]
    answered = {"family": "Qwen3MoeForCausalLM", f"{layer}down_proj": "transposed"}
    decided = of(shapes, config | {"moe_intermediate_size": 136}, own="", **answered)
    assert decided.turned == [f"{layer}down_proj"]
    assert f"{layer}down_proj" not in str(decided.assumed)


def test_matrices_of_experts_that_lie_the_other_way_are_told_by_their_shapes():
    layer, shapes, config = mixture((14, 136, 176), (14, 88, 136))
    up, down = f"{layer}gate_up_proj", f"{layer}down_proj"
    found = of(shapes, config, own="", family="Qwen3MoeForCausalLM")
    assert (found.open, sorted(found.turned), found.rows) == ([], [down, up], {up: [88, 88]})
    assert found.assumed == [f"{up} holds gate_proj, then up_proj"]


def test_a_tensor_that_no_family_has_is_open():
    shapes = renamed(kit.llama_shapes(), TIDAL) | {"net.blocks.*.lattice": (3, 5, 7)}
    found = of(shapes)
    assert (found.family, found.open, found.complete) == ("LlamaForCausalLM", ["net.blocks.*.lattice"], False)


def test_buffers_are_left_out():
    found = of(renamed(kit.llama_shapes(), TIDAL) | {"net.blocks.*.mixer.rotary_emb.inv_freq": (2,)})
    assert found.weights["net.blocks.*.mixer.rotary_emb.inv_freq"] == []
    assert found.complete


def test_nothing_is_like_nothing():
    assert likest(load({}), {}, "", {}).family == ""


def test_the_one_table_of_a_tied_model_is_its_embedding_whatever_its_name():
    shapes = renamed(kit.llama_shapes(), TIDAL | {"model.embed_tokens": "net.zeta"})
    del shapes["output.weight"]
    found = of(shapes, kit.LLAMA | {"tie_word_embeddings": True})
    assert found.weights["net.zeta.weight"] == ["model.embed_tokens.weight"]
    assert (found.questions, found.missing) == ([], [])


def of_family(name, names, drop=(), **more):
    """The likeness of a family's own tiny model under other names, without the tensors of ``drop``."""
    family, shapes = families()[name], {}
    for pattern, shape in family.tensors.items():
        if not any(part in pattern for part in drop):
            for old, new in names.items():
                pattern = pattern.replace(old, new)
            shapes[pattern] = shape
    config = {key: value for key, value in family.sizes.items() if "." not in key} | more
    return of(shapes, config | {"model_type": "new"})


def test_scales_of_projections_and_an_output_of_words_have_one_place_each():
    names = {"self_attn.q_norm": "look.q_scale", "self_attn.k_norm": "look.k_scale", "self_attn": "look"}
    names |= {"model.embed_tokens": "seeds", "lm_head": "words_out"}
    found = of_family("Qwen3ForCausalLM", names, drop=(".bias",), tie_word_embeddings=False)
    assert (found.family, found.questions, found.open) == ("Qwen3ForCausalLM", [], [])
    assert found.weights["words_out.weight"] == ["lm_head.weight"]


def test_a_key_of_the_same_stem_is_offered():
    found = of_family("Gemma2ForCausalLM", {}, drop=(".bias", "lm_head"), gaze_softcap=20.0)
    options = next(one.options for one in found.questions if one.id == "gaze_softcap")
    assert options == ["attn_logit_softcapping", "final_logit_softcapping", "ignore"]


def test_tensors_that_a_switch_of_the_family_brings_have_a_place():
    found = of_family("StableLmForCausalLM", {"self_attn": "eye", "mlp": "wing"}, drop=("_layernorm.norms",))
    assert (found.family, found.open) == ("StableLmForCausalLM", [])
    assert any(one.endswith("eye.q_proj.bias") for one in found.weights)
