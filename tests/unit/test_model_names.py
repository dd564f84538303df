"""Names of tensors against a model class, on a small tree in the shape of vLLM's."""

from __future__ import annotations

import pytest

from npu_upgrade.checkpoint.module_tree import ModuleTree
from npu_upgrade.checkpoint.registry import ModelSources, read_registry, registered_by_calls
from npu_upgrade.sources.tree import open_source

REGISTRY = """
_TEXT_GENERATION_MODELS = {"TinyForCausalLM": ("tiny", "TinyForCausalLM")}
_MULTIMODAL_MODELS = {"TinyVL": ("tiny_vl", "TinyVL")}
_VLLM_MODELS = {**_TEXT_GENERATION_MODELS, **_MULTIMODAL_MODELS}
_PREVIOUSLY_SUPPORTED_MODELS = {"OldForCausalLM": "0.9.2"}
_OOT_SUPPORTED_MODELS = {"MovedModel": "https://example.org/plugin"}
"""
TINY = """
import torch.nn as nn
from .interfaces import IsHybrid
from ..layers.linear import QKVParallelLinear, ParallelLMHead, RMSNorm
from .utils import WeightsMapper, AutoWeightsLoader, make_layers

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_proj = QKVParallelLinear()
        self.size = 3

class Layer(nn.Module):
    def __init__(self, config):
        self.self_attn = Attention()
        self.norm = RMSNorm()
        if config.experts:
            self.mlp = FusedMoE()
        else:
            self.mlp = RMSNorm()

class TinyModel(nn.Module):
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_stacked={".q_proj": (".qkv_proj", "q"), ".k_proj": (".qkv_proj", "k")},
        orig_to_new_substr={"unused": None},
    )
    def __init__(self, *, layer_type=Layer):
        self.start, self.end, self.layers = make_layers(3, lambda prefix: layer_type(prefix))
        self.embed_tokens = VocabParallelEmbedding()

class TinyForCausalLM(nn.Module, IsHybrid):
    hf_to_vllm_mapper = TinyModel.hf_to_vllm_mapper
    def __init__(self):
        self.model = self._init_model()
        self.lm_head = ParallelLMHead()
    def _init_model(self):
        return TinyModel()
    def load_weights(self, weights):
        return AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)

class Renaming(TinyForCausalLM):
    def load_weights(self, weights):
        for name, tensor in weights:
            name = name.replace("transformer", "model")

class Applying(TinyModel):
    prefixes = WeightsMapper(orig_to_new_prefix={"encoder.": "layers."})
    def load_weights(self, weights):
        for name, tensor in self.prefixes.apply(weights):
            pass

class Skipping(TinyForCausalLM):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", 3)
    def load_weights(self, weights):
        for name, tensor in weights:
            if "attention.bias" in name or name.endswith((".seen", ".old")):
                continue
"""
VL = """
import torch.nn as nn
from .tiny import TinyForCausalLM
from .interfaces import SupportsMultiModal
from .utils import WeightsMapper, AutoWeightsLoader

class TinyVL(nn.Module, SupportsMultiModal):
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={"model.language_model.": "language_model.model.", "model.visual.": "visual."}
    )
    def __init__(self):
        with self._mark_tower_model():
            self.visual = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.language_model = TinyForCausalLM()
        self.other = init_vllm_registered_model()
        self.named = init_vllm_registered_model(vllm_config, architectures=["TinyForCausalLM"])
        self.inner = init_vllm_registered_model(vllm_config, hf_config=config.text_config)
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self, skip_prefixes=["mtp."])
        return loader.load_weights(weights, mapper=self.hf_to_vllm_mapper)
"""
INTERFACES = """
class IsHybrid(Protocol):
    is_hybrid: ClassVar[Literal[True]] = True

class SupportsMultiModal(Protocol):
    supports_multimodal: ClassVar[Literal[True]] = True
"""


@pytest.fixture
def tree(tmp_path):
    models = tmp_path / "vllm" / "model_executor" / "models"
    models.mkdir(parents=True)
    texts = {"registry": REGISTRY, "tiny": TINY, "tiny_vl": VL, "interfaces": INTERFACES}
    for name, text in texts.items():
        (models / f"{name}.py").write_text(text)
    (tmp_path / "vllm" / "__init__.py").write_text("")
    return open_source(f"dir:{tmp_path}")


def places(tree, module, cls, *names):
    sources = ModelSources(tree)
    root = sources.find(f"vllm.model_executor.models.{module}", cls)
    found = [ModuleTree(sources, root).place(name) for name in names]
    return [(one.state, one.name) for one in found]


def test_registry(tree):
    found = read_registry(tree)
    assert found.models["TinyForCausalLM"] == ("vllm.model_executor.models.tiny", "TinyForCausalLM")
    assert found.kinds == {"TinyForCausalLM": "text_generation", "TinyVL": "multimodal"}
    assert (found.removed, found.moved) == (
        {"OldForCausalLM": "0.9.2"},
        {"MovedModel": "https://example.org/plugin"},
    )


def test_traits_through_imports_and_bases(tree):
    sources = ModelSources(tree)
    one = sources.find("vllm.model_executor.models.tiny", "Renaming")
    assert sources.traits(one) == ["is_hybrid"]


def test_names_that_have_a_place(tree):
    found = places(
        tree,
        "tiny",
        "TinyForCausalLM",
        "model.layers.2.self_attn.q_proj.weight",
        "lm_head.weight",
        "model.layers.0.mlp.experts.3.w1.weight",
        "model.unused.weight",
        "model.rotary_emb.inv_freq",
    )
    assert found == [
        ("found", "model.layers.2.self_attn.qkv_proj.weight"),
        ("found", "lm_head.weight"),
        ("found", "model.layers.0.mlp.experts.3.w1.weight"),
        ("dropped", ""),
        ("dropped", ""),
    ]


def test_names_that_have_none(tree):
    found = places(
        tree,
        "tiny",
        "TinyForCausalLM",
        "model.layers.2.attention.q_proj.weight",
        "transformer.h.0.weight",
        "model.layers.x.norm.weight",
        "model.layers.0.self_attn.size",
    )
    assert [state for state, _ in found] == ["missing"] * 4


def test_a_model_in_a_model(tree):
    found = places(
        tree,
        "tiny_vl",
        "TinyVL",
        "model.language_model.layers.0.self_attn.k_proj.weight",
        "model.visual.0.weight",
        "other.anything.weight",
        "mtp.layer.weight",
        "model.audio.weight",
    )
    assert [state for state, _ in found] == ["found", "found", "open", "ignored", "missing"]


def test_a_registered_model_in_a_model(tree):
    sources = ModelSources(tree)
    sources.models, sources.text_architecture = read_registry(tree).models, "TinyForCausalLM"
    modules = ModuleTree(sources, sources.find("vllm.model_executor.models.tiny_vl", "TinyVL"))
    names = [f"{start}.{end}" for start in ("named", "inner") for end in ("lm_head.weight", "none.weight")]
    assert [modules.place(name).state for name in names] == ["found", "missing"] * 2


def test_code_that_renames_is_not_judged(tree):
    assert places(tree, "tiny", "Renaming", "transformer.layers.0.norm.weight") == [
        ("open", "transformer.layers.0.norm.weight")
    ]


def test_a_map_that_is_applied_by_hand(tree):
    names = ("encoder.0.norm.weight", "other.0.norm.weight")
    assert [state for state, _ in places(tree, "tiny", "Applying", *names)] == ["found", "missing"]


def test_names_that_a_loader_skips_and_buffers(tree):
    names = ("layers.0.attention.bias", "layers.seen", "x.old", "table", "model.rows.masked_bias", "x.new")
    states = [state for state, _ in places(tree, "tiny", "Skipping", *names)]
    assert states == ["ignored", "ignored", "ignored", "found", "dropped", "missing"]


def test_registrations_by_call(tmp_path):
    (tmp_path / "plug").mkdir()
    (tmp_path / "plug" / "__init__.py").write_text(
        'def register():\n    ModelRegistry.register_model("A", "plug.a:A")\n'
        '    ModelRegistry.register_model(\n        model_arch="B", model_cls=B)\n    other("C", "x")\n'
    )
    found = registered_by_calls(open_source(f"dir:{tmp_path}"), "plug")
    assert found == {"A": ("plug.a", "A"), "B": ("plug/__init__".replace("/", "."), "B")}


def test_of_branches_for_platforms_the_last_holds(tmp_path):
    (tmp_path / "vllm").mkdir()
    for name in ("here", "there"):
        (tmp_path / "vllm" / f"{name}.py").write_text(f"class Model:\n    is_hybrid = {name == 'there'}\n")
    text = "if platform.is_rocm():\n    from .here import Model\nelse:\n    from .there import Model\n"
    (tmp_path / "vllm" / "__init__.py").write_text(text)
    sources = ModelSources(open_source(f"dir:{tmp_path}"))
    assert sources.traits(sources.find("vllm", "Model")) == ["is_hybrid"]
