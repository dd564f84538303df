"""Whole folders: shards against their index, layers against each other, what is beside the weights."""

from __future__ import annotations

import json
import os

import model_kit as kit
import msgspec
import pytest

from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.analysis_file import load_analysis
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_json


def findings(folder, severity="error"):
    return {one.kind for one in analyse(folder, Sources()).file.findings if one.severity == severity}


@pytest.mark.parametrize("shards", [1, 4])
def test_a_sound_checkpoint(tmp_path, shards):
    found = analyse(kit.checkpoint(tmp_path, shards=shards), Sources())
    assert [one for one in found.file.findings if one.severity != "note"] == []
    assert len(found.weights.tensors) == len(kit.llama_shapes())
    assert found.weights.bytes == sum(2 * size for size in map(len_of, kit.llama_shapes().values()))


def len_of(shape):
    total = 1
    for number in shape:
        total *= number
    return total


def changed_index(folder, change):
    path = folder / "model.safetensors.index.json"
    value = json.loads(path.read_text())
    change(value["weight_map"])
    kit.write_index(folder, value["weight_map"])


def first_shard(folder):
    return sorted(folder.glob("*.safetensors"))[0]


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (lambda f: first_shard(f).unlink(), "shard-missing"),
        (lambda f: first_shard(f).write_bytes(b""), "shard-empty"),
        (lambda f: first_shard(f).write_bytes(first_shard(f).read_bytes()[:-8]), "shard-truncated"),
        (
            lambda f: changed_index(f, lambda m: m.update({"model.extra.weight": next(iter(m.values()))})),
            "tensor-missing",
        ),
        (lambda f: changed_index(f, lambda m: m.pop("model.norm.weight")), "tensor-extra"),
        (lambda f: changed_index(f, lambda m: m.update({"x": "../../etc/passwd"})), "index-path"),
        (lambda f: changed_index(f, lambda m: m.update({"x": "/etc/passwd"})), "index-path"),
        (lambda f: changed_index(f, lambda m: m.update({"x": ["a"], "y": None})), "index-path"),
        (lambda f: changed_index(f, lambda m: m.clear()), "index-map"),
        (lambda f: (f / "model.safetensors.index.json").write_text("{"), "json-invalid"),
        (lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": 3}'), "index-map"),
        (lambda f: (f / "config.json").write_text(""), "json-invalid"),
        (lambda f: (f / "config.json").write_text("[]"), "json-no-object"),
        (lambda f: (f / "config.json").write_text('{"a": ' * 100_000), "json-too-deep"),
        (
            lambda f: (f / "config.json").write_text('{"model_type": "llama", "model_type": "x"}'),
            "json-duplicate-key",
        ),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "json-invalid"),
    ],
    ids=range(16),
)
def test_what_is_broken_is_named(tmp_path, break_it, kind):
    folder = kit.checkpoint(tmp_path, shards=3)
    assert kind not in findings(folder)
    break_it(folder)
    assert kind in findings(folder)


@pytest.mark.parametrize("value", [float("nan"), "8", -1, 10**12, True, {"a": 1}])
def test_numbers_that_are_none(tmp_path, value):
    config = kit.LLAMA | {"hidden_size": value}
    folder = kit.checkpoint(tmp_path, config, kit.llama_shapes())
    assert "config-value" in findings(folder)


@pytest.mark.parametrize(
    "key",
    [
        "architectures",
        "rope_scaling",
        "layer_types",
        "quantization_config",
        "auto_map",
        "text_config",
        "vision_config",
        "linear_attn_config",
        "block_configs",
    ],
)
@pytest.mark.parametrize("value", [3, "x", [], [1, None], {"a": {}}, None, True, float("inf")])
def test_any_kind_of_value_is_analysed(tmp_path, key, value):
    folder = kit.checkpoint(tmp_path, kit.LLAMA | {key: value}, kit.llama_shapes())
    found = analyse(folder, Sources()).file
    written = tmp_path / "analysis.json"
    write_json(written, msgspec.to_builtins(found))
    assert load_analysis(written) == found


@pytest.mark.parametrize("text", ["", "{}", "[]", "\xff", '{"schema": "of another version"}'])
def test_a_damaged_analysis_is_refused(tmp_path, text):
    written = tmp_path / "analysis.json"
    assert load_analysis(written) is None
    written.write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match=r"cannot read .*analysis\.json"):
        load_analysis(written)


def without(name):
    return {key: shape for key, shape in kit.llama_shapes().items() if not key.startswith(name)}


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        (without("model.layers.1."), "layer-missing"),
        (without("model.layers.2."), "layer-missing"),
        (without("model.layers.1.self_attn.q_proj"), "tensor-missing"),
        (without("lm_head"), "head-missing"),
        (kit.llama_shapes() | {"model.embed_tokens.weight": (32, 9)}, "shape-hidden"),
        (kit.llama_shapes() | {"model.embed_tokens.weight": (16, 8)}, "shape-vocabulary"),
    ],
)
def test_what_is_missing_is_named(tmp_path, shapes, kind):
    folder = kit.checkpoint(tmp_path, kit.LLAMA, shapes)
    assert kind in findings(folder)


def test_first_layers_may_be_of_another_kind(tmp_path):
    shapes = kit.llama_shapes()
    dense = {key: shape for key, shape in shapes.items() if not (".mlp." in key and ".layers.0." not in key)}
    for layer in (1, 2):
        dense |= {f"model.layers.{layer}.mlp.experts.{e}.up_proj.weight": (4, 8) for e in range(4)}
    assert findings(kit.checkpoint(tmp_path, kit.LLAMA, dense)) == set()


def test_an_expert_that_one_layer_lacks(tmp_path):
    shapes = kit.llama_shapes(kit.LLAMA | {"num_hidden_layers": 4})
    shapes |= {f"model.layers.{n}.mlp.experts.{e}.up_proj.weight": (4, 8) for e in range(4) for n in range(4)}
    del shapes["model.layers.2.mlp.experts.3.up_proj.weight"]
    folder = kit.checkpoint(tmp_path, kit.LLAMA | {"num_hidden_layers": 4}, shapes)
    assert "tensor-missing" in findings(folder)


def test_the_first_layer_may_do_without_a_norm_and_no_other(tmp_path):
    config = kit.LLAMA | {"num_hidden_layers": 4}
    for layer, kinds in ((0, set()), (1, {"tensor-missing"}), (3, set())):
        shapes = kit.llama_shapes(config)
        del shapes[f"model.layers.{layer}.input_layernorm.weight"]
        assert findings(kit.checkpoint(tmp_path / str(layer), config, shapes)) == kinds


def test_layers_of_different_kinds_are_not_compared(tmp_path):
    kinds = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    config = kit.LLAMA | {"num_hidden_layers": 4, "layer_types": kinds}
    shapes = kit.llama_shapes(config) | {f"model.layers.{n}.self_attn.sink.weight": (2, 2) for n in (0, 2, 3)}
    assert findings(kit.checkpoint(tmp_path, config, shapes)) == set()


def test_configuration_alone_and_weights_alone(tmp_path):
    alone = tmp_path / "config"
    alone.mkdir()
    (alone / "config.json").write_text(json.dumps(kit.LLAMA))
    assert findings(alone) == set()
    assert findings(alone, "unsure") == {"weights-missing"}
    weights = kit.checkpoint(tmp_path / "weights", None)
    assert findings(weights) == set()
    assert "config-missing" in findings(weights, "unsure")


def test_other_formats_are_not_judged(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(kit.LLAMA))
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert "weights-not-judged" in findings(tmp_path, "unsure")


def test_code_is_listed_and_never_run(tmp_path):
    folder = kit.checkpoint(
        tmp_path, kit.LLAMA | {"auto_map": {"AutoConfig": "configuration_x.X", "AutoModel": "gone.Y"}}
    )
    text = "from transformers.models.new import Thing\nimport os\nos.mkdir('ran')\n"
    (folder / "configuration_x.py").write_text(text)
    (folder / "broken.py").write_text("def (")
    here = os.getcwd()
    os.chdir(folder)
    try:
        found = analyse(folder, Sources())
    finally:
        os.chdir(here)
    assert not (folder / "ran").exists()
    assert found.side.code == {"broken.py": [], "configuration_x.py": ["transformers.models.new.Thing"]}
    assert {"code-missing", "code-own", "code-unparsable"} <= {one.kind for one in found.file.findings}


def test_mtp_by_configuration_and_weights(tmp_path):
    shapes = kit.llama_shapes() | {"model.layers.3.eh_proj.weight": (8, 16)}
    announced = kit.LLAMA | {"num_nextn_predict_layers": 1}
    cases = [
        (announced, shapes, "ready"),
        (announced, None, "checkpoint missing"),
        (kit.LLAMA, shapes, "not announced"),
    ]
    for number, (config, tensors, state) in enumerate([*cases, (kit.LLAMA, None, "none")]):
        folder = kit.checkpoint(tmp_path / str(number), config, tensors)
        assert analyse(folder, Sources()).file.mtp.state == state


def test_mistral_parameters(tmp_path):
    (tmp_path / "params.json").write_text(
        json.dumps(
            {
                "dim": 4096,
                "n_layers": 32,
                "n_heads": 32,
                "n_kv_heads": 8,
                "head_dim": 128,
                "vocab_size": 32768,
            }
        )
    )
    found = analyse(tmp_path, Sources()).file.properties
    assert (found.architecture, found.layers, found.kv_heads) == ("MistralForCausalLM", 32, 8)
