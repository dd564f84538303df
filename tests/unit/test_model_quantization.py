from __future__ import annotations

import json

import model_kit as kit
import pytest

from npu_upgrade.checkpoint.analysis import analyse
from npu_upgrade.checkpoint.serving import Sources

BLOCK = {"quant_method": "fp8", "weight_block_size": [4, 4], "activation_scheme": "dynamic"}


def fp8(folder, drop=(), add=(), quantization=BLOCK, scale="weight_scale_inv", shape=None):
    """A Llama whose projections are fp8 with a scale for each block (or each weight)."""
    shapes, dtypes = dict(kit.llama_shapes()), {}
    for name, size in kit.llama_shapes().items():
        if "proj.weight" in name:
            key = name.removesuffix("weight") + scale
            shapes[key] = shape or (-(-size[0] // 4), -(-size[1] // 4))
            dtypes |= {name: "F8_E4M3", key: "F32"}
    shapes = {key: size for key, size in shapes.items() if key not in drop} | dict.fromkeys(add, (1,))
    config = kit.LLAMA | ({"quantization_config": quantization} if quantization else {})
    return analyse(kit.checkpoint(folder, config, shapes, dtypes), Sources())


def errors(found):
    return {one.kind for one in found.file.findings if one.severity == "error"}


def test_blocks_with_all_their_scales(tmp_path):
    found = fp8(tmp_path)
    assert errors(found) == set()
    assert found.file.quantization.scheme == "fp8 blocks of 4x4"


def test_a_weight_without_its_scale_and_a_scale_without_its_weight(tmp_path):
    name = "model.layers.1.mlp.up_proj.weight"
    assert "scale-missing" in errors(fp8(tmp_path / "a", drop=(f"{name}_scale_inv",)))
    assert "scale-unpaired" in errors(fp8(tmp_path / "b", drop=(name,)))
    assert "scale-unpaired" in errors(fp8(tmp_path / "c", add=("model.layers.0.mlp.other.weight_scale_inv",)))


def test_scales_of_the_wrong_shape(tmp_path):
    assert "scale-shape" in errors(fp8(tmp_path, shape=(1, 1)))


def test_fp8_that_nothing_declares_or_nothing_is(tmp_path):
    assert "quantization-undeclared" in errors(fp8(tmp_path / "a", quantization=None))
    config = kit.LLAMA | {"quantization_config": BLOCK}
    assert "quantization-absent" in errors(analyse(kit.checkpoint(tmp_path / "b", config), Sources()))


def test_one_scale_per_weight_and_scales_of_the_cache(tmp_path):
    quantization = {"quant_method": "fp8", "activation_scheme": "static"}
    found = fp8(
        tmp_path,
        quantization=quantization,
        scale="weight_scale",
        shape=(1,),
        add=("model.layers.0.self_attn.k_scale",),
    )
    assert errors(found) == set()
    assert found.file.quantization.scheme == "fp8 per tensor"


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_packed_weights_and_their_companions(tmp_path, method):
    config = kit.LLAMA | {"quantization_config": {"quant_method": method, "bits": 4, "group_size": 4}}
    shapes, dtypes = {}, {}
    for name, size in kit.llama_shapes().items():
        stem = name.removesuffix("weight")
        packed = {f"{stem}qweight": "I32", f"{stem}qzeros": "I32", f"{stem}scales": "F16"}
        shapes |= dict.fromkeys(packed, (1, 1)) if "proj" in name else {name: size}
        dtypes |= packed if "proj" in name else {}
    assert errors(analyse(kit.checkpoint(tmp_path / "a", config, shapes, dtypes), Sources())) == set()
    del shapes["model.layers.0.mlp.up_proj.scales"]
    assert "scale-missing" in errors(
        analyse(kit.checkpoint(tmp_path / "b", config, shapes, dtypes), Sources())
    )


def described(folder, change=None):
    """A ModelSlim checkpoint: int8 projections, a description of every tensor."""
    shapes, dtypes, kinds = dict(kit.llama_shapes()), {}, {}
    for name in kit.llama_shapes():
        kinds[name] = "W8A8" if "proj" in name else "FLOAT"
        dtypes |= {name: "I8"} if "proj" in name else {}
    change(kinds) if change else None
    kit.checkpoint(folder, kit.LLAMA, shapes, dtypes)
    (folder / "quant_model_description.json").write_text(json.dumps({"model_quant_type": "W8A8"} | kinds))
    return analyse(folder, Sources())


def test_a_description_of_every_tensor(tmp_path):
    found = described(tmp_path)
    assert (found.file.quantization.method, found.file.quantization.scheme, errors(found)) == (
        "ascend",
        "W8A8",
        set(),
    )
    assert found.file.properties.quantization == ""


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda kinds: kinds.pop("model.layers.0.mlp.up_proj.weight"), "description-lacks"),
        (lambda kinds: kinds.update({"model.layers.9.mlp.up_proj.weight": "W8A8"}), "description-extra"),
        (lambda kinds: kinds.update({"lm_head.weight": "W8A8"}), "description-dtype"),
    ],
)
def test_a_description_that_does_not_fit(tmp_path, change, kind):
    assert kind in errors(described(tmp_path, change))
