"""Tiny checkpoints for adaptations: of every family, as vLLM knows them and as nobody does, sound and broken.

``make(NAME, FOLDER)`` writes one with seeded weights, by the vLLM for this machine's CPU, which has torch. A
renamed one computes what its family computes; architecture, model type, keys and tensors have names of their
own. A broken one is a sound one with one fault.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
BLOCK = 32  # rows and columns of an fp8 block: the tiny projections have several
_LARGEST = 448.0  # of float8_e4m3fn
_OWN_CODE = '''"""A model of its own, which has to be read and not run."""

from pathlib import Path

from transformers import PreTrainedModel

Path(__file__).with_name("executed").write_text("this code ran")


class LatticeForCausalLM(PreTrainedModel):
    """Weaves a lattice over the tokens."""
'''


@dataclass(frozen=True)
class Checkpoint:
    """``base``: the family; ``names``: regular expressions -> the names of this checkpoint, in their order.

    ``keys``: the family's keys of the configuration -> this one's; ``config``: keys that are set. ``fused``:
    projections that are one tensor, by its name; ``stacked``: all experts in one, ``turned``: as [in, out];
    ``fp8``: tensor or block; ``fault``: what is broken afterwards.
    """

    base: str
    names: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    fused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stacked: bool = False
    turned: bool = False
    fp8: str = ""
    fault: str = ""

    @property
    def served(self) -> bool:
        """Whether vLLM has its architecture."""
        return "architectures" not in self.config


def _named(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type, **more}


_TIDAL = {
    r"^model\.embed_tokens": "decoder.tokens",
    r"^model\.layers\.(\d+)\.": r"decoder.blocks.\1.",
    r"^model\.norm": "decoder.last_norm",
    r"\.self_attn\.([qkv])_(proj|norm)": r".mixer.\1\2",
    r"(mixer\.[qkv])proj": r"\1",
    r"\.self_attn\.o_proj": ".mixer.out",
    r"\.mlp\.": ".feed.",
    r"(gate|up|down)_proj": r"\1",
    r"\.input_layernorm": ".before_mixer",
    r"\.post_attention_layernorm": ".before_feed",
    r"^lm_head": "output",
}
_GROVE = {
    r"^model\.embed_tokens": "trunk.wte",
    r"^model\.layers\.(\d+)\.": r"trunk.h.\1.",
    r"^model\.norm": "trunk.ln_f",
    r"\.self_attn\.q_proj": ".attention.query",
    r"\.self_attn\.k_proj": ".attention.key",
    r"\.self_attn\.v_proj": ".attention.value",
    r"\.self_attn\.o_proj": ".attention.output",
    r"\.self_attn\.q_norm": ".attention.query_norm",
    r"\.self_attn\.k_norm": ".attention.key_norm",
    r"\.mlp\.gate\.": ".moe.router.",
    r"\.mlp\.experts\.(\d+)\.gate_proj": r".moe.experts.\1.w1",
    r"\.mlp\.experts\.(\d+)\.up_proj": r".moe.experts.\1.w3",
    r"\.mlp\.experts\.(\d+)\.down_proj": r".moe.experts.\1.w2",
    r"\.input_layernorm": ".ln_1",
    r"\.post_attention_layernorm": ".ln_2",
}
_FATHOM = {
    r"^model\.embed_tokens": "net.word_embeddings",
    r"^model\.layers\.(\d+)\.": r"net.layer.\1.",
    r"^model\.norm": "net.final_norm",
    r"\.self_attn\.": ".attention.",
    r"kv_a_proj_with_mqa": "kv_down",
    r"kv_a_layernorm": "kv_norm",
    r"kv_b_proj": "kv_up",
    r"q_a_proj": "q_down",
    r"q_a_layernorm": "q_norm",
    r"q_b_proj": "q_up",
    r"attention\.o_proj": "attention.dense",
    r"\.mlp\.shared_experts\.(\w+)_proj": r".ffn.shared.\1",
    r"\.mlp\.gate\.e_score_correction_bias": ".ffn.router.bias",
    r"\.mlp\.gate\.": ".ffn.router.",
    r"\.mlp\.experts\.(\d+)\.(\w+)_proj": r".ffn.experts.\1.\2",
    r"\.mlp\.(\w+)_proj": r".ffn.\1",
    r"\.input_layernorm": ".attention_norm",
    r"\.post_attention_layernorm": ".ffn_norm",
}
_RILL = {
    r"^model\.embed_tokens": "backbone.embeddings",
    r"^model\.layers\.(\d+)\.": r"backbone.blocks.\1.",
    r"^model\.norm": "backbone.norm_f",
    r"\.linear_attn\.": ".delta.",
    r"\.self_attn\.([qkvo])_proj": r".attn.\1",
    r"\.self_attn\.([qk])_norm": r".attn.\1_norm",
    r"\.mlp\.experts\.(\d+)\.(\w+)_proj": r".ffn.experts.\1.\2",
    r"\.mlp\.shared_expert\.(\w+)_proj": r".ffn.shared.\1",
    r"\.mlp\.shared_expert_gate": ".ffn.shared_gate",
    r"\.mlp\.gate\.": ".ffn.router.",
    r"\.input_layernorm": ".norm_1",
    r"\.post_attention_layernorm": ".norm_2",
    r"^lm_head": "head",
}
_VISTA = {
    r"^vision_model\.": "eye.",
    r"^qformer\.": "bridge.",
    r"^query_tokens": "bridge_queries",
    r"^language_projection": "to_words",
    r"^language_model\.model\.decoder\.": "speaker.",
    r"^language_model\.lm_head": "speaker_head",
}
CHECKPOINTS = {
    "dense": Checkpoint("dense"),
    "mixture": Checkpoint("mixture"),
    "latent": Checkpoint("latent"),
    "hybrid": Checkpoint("hybrid"),
    "multimodal": Checkpoint("looker"),
    "dense-renamed": Checkpoint(
        "dense",
        _TIDAL,
        {"num_hidden_layers": "n_blocks", "rms_norm_eps": "norm_eps"},
        _named("TidalForCausalLM", "tidal"),
    ),
    "dense-renamed-fused": Checkpoint(
        "dense",
        _TIDAL | {r"\.self_attn\.qkv_proj": ".mixer.qkv", r"\.feed\.gate_up_proj": ".feed.gate_up"},
        config=_named("EddyForCausalLM", "eddy"),
        fused={"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")},
    ),
    "mixture-renamed": Checkpoint("mixture", _GROVE, config=_named("GroveForCausalLM", "grove")),
    "mixture-renamed-stacked": Checkpoint(
        "mixture",
        {r"\.mlp\.experts\.(\w+)_proj$": r".moe.experts.\1", **_GROVE},
        config=_named("HeathForCausalLM", "heath"),
        stacked=True,
    ),
    "mixture-renamed-turned": Checkpoint(
        "mixture",
        {r"\.mlp\.experts\.(\w+)_proj$": r".moe.experts.\1", **_GROVE},
        config=_named("MoorForCausalLM", "moor"),
        stacked=True,
        turned=True,
    ),
    "latent-renamed": Checkpoint("latent", _FATHOM, config=_named("FathomForCausalLM", "fathom")),
    "hybrid-renamed": Checkpoint("hybrid", _RILL, config=_named("RillForCausalLM", "rill")),
    "multimodal-renamed": Checkpoint(
        "looker", _VISTA, config=_named("VistaForConditionalGeneration", "vista")
    ),
    "dense-fp8-tensor": Checkpoint("dense", fp8="tensor"),
    "dense-fp8-block": Checkpoint("dense", fp8="block"),
    "mixture-fp8-block": Checkpoint("mixture", fp8="block"),
    # one head of keys and values, so that two ranks each have a copy of it
    "dense-renamed-fp8-block": Checkpoint(
        "dense", _TIDAL, config=_named("ShoalForCausalLM", "shoal", num_key_value_heads=1), fp8="block"
    ),
    "dense-renamed-fp8-tensor": Checkpoint(
        "dense", _TIDAL, config=_named("ReefForCausalLM", "reef", num_key_value_heads=1), fp8="tensor"
    ),
    # norms of all heads together, which two ranks share
    "mixture-renamed-fp8-tensor": Checkpoint(
        "normed", _GROVE, config=_named("CopseForCausalLM", "copse"), fp8="tensor"
    ),
    "broken-prefix": Checkpoint("dense", fault="prefix"),
    "broken-shard": Checkpoint("dense", fault="shard"),
    "broken-scales": Checkpoint("dense", fp8="block", fault="scales"),
    "broken-rope": Checkpoint("dense", fault="rope"),
    "broken-tokenizer": Checkpoint("dense", fault="tokenizer"),
    "broken-code": Checkpoint(
        "dense",
        {r"\.self_attn\.\w_proj": ".lattice.weave", r"\.mlp\.\w+_proj": ".lattice.knot"},
        config=_named("LatticeForCausalLM", "lattice"),
        fault="code",
    ),
}
SOUND = tuple(name for name, one in CHECKPOINTS.items() if not one.fault)
BROKEN = tuple(name for name, one in CHECKPOINTS.items() if one.fault)


def make(name: str, folder: Path) -> Path:
    """Write the checkpoint ``name`` into ``folder``, made when it is missing; returns the folder."""
    from npu_upgrade.gates.emulation.catalogue import EMULATOR
    from npu_upgrade.gates.vllm_cpu import cpu_python

    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join((str(Path(__file__).resolve().parents[1]), str(EMULATOR)))
        command = [str(cpu_python()), "-P", "-m", "bench.adapt_checkpoints", name, str(folder)]
        environment = {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", "PATH": os.environ["PATH"]}
        subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)
    return folder


def write(name: str, folder: Path) -> None:
    """The files of one checkpoint; needs torch."""
    tensors_of = import_module("safetensors.torch")
    load_file, save_file = tensors_of.load_file, tensors_of.save_file

    one = CHECKPOINTS[name]
    _BASES[one.base](folder, one)
    config = json.loads((folder / "config.json").read_text("utf-8")) | one.config
    tensors = load_file(folder / WEIGHTS)
    if one.fp8:
        tensors, config["quantization_config"] = _in_fp8(tensors, one.fp8)
    tensors = _stacked(_fused(tensors, one.fused)) if one.stacked else _fused(tensors, one.fused)
    if one.turned:
        tensors = {
            given: value.transpose(1, 2).contiguous() if ".experts." in given else value
            for given, value in tensors.items()
        }
    tensors = {_renamed(given, one.names): value for given, value in tensors.items()}
    config = {one.keys.get(key, key): value for key, value in config.items()}
    _write_json(folder / "config.json", config)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    if one.fault:
        _FAULTS[one.fault](folder, config, tensors)


def _from_emulator(base: str, folder: Path, one: Checkpoint) -> None:
    files = import_module("npu_emulator.dry_run.models.files")
    module = import_module(f"npu_emulator.dry_run.models.{base}")
    changes = {key: value for key, value in one.config.items() if key in module.CONFIG and key[:3] == "num"}
    if changes:
        config = module.CONFIG | changes
        files.write(folder, config, module.shapes(config))
    else:
        module.make(folder)


def _hybrid(folder: Path, one: Checkpoint) -> None:
    """A Qwen3-Next: a mixture with three layers of linear attention and one of full attention."""
    sizes = {
        **{"num_hidden_layers": 4, "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2},
        **{"moe_intermediate_size": 64, "shared_expert_intermediate_size": 96},
        **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 128},
        **{"linear_value_head_dim": 128},
    }
    _of_transformers("Qwen3NextForCausalLM", folder, sizes, plus_one=True)


def _normed(folder: Path, one: Checkpoint) -> None:
    """An OLMoE: a mixture with norms of all heads of queries or keys together."""
    sizes = {"num_hidden_layers": 2, "num_experts": 8, "num_experts_per_tok": 2}
    _of_transformers("OlmoeForCausalLM", folder, sizes)


def _of_transformers(name: str, folder: Path, sizes: dict[str, Any], plus_one: bool = False) -> None:
    """Random weights of a class of Transformers; ``plus_one``: its norms compute with one more."""
    torch = import_module("torch")
    transformers = import_module("transformers")

    dense, files = (import_module(f"npu_emulator.dry_run.models.{one}") for one in ("dense", "files"))

    shared = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    more = ("max_position_embeddings", "bos_token_id", "eos_token_id")
    kind = getattr(transformers, name)
    config = kind.config_class(
        **{key: dense.CONFIG[key] for key in (*shared, *more)} | sizes | {"dtype": "float32"}
    )
    with torch.device("meta"):
        model = kind(config)
    shapes = _stored({name: tuple(tensor.shape) for name, tensor in model.named_parameters()})
    random = torch.Generator().manual_seed(2)
    near = {name: shape for name, shape in shapes.items() if name.endswith(("A_log", "dt_bias"))}
    weights = {name: torch.rand(shape, generator=random) for name, shape in near.items()}
    for norm in (norm for norm in shapes if plus_one and "norm.weight" in norm and "linear_attn" not in norm):
        weights[norm] = 0.1 * torch.randn(shapes[norm], generator=random)
    rest = {name: shape for name, shape in shapes.items() if name not in weights}
    written = config.to_diff_dict() | {"architectures": [name], "tie_word_embeddings": False}
    files.write(
        folder, {key: value for key, value in written.items() if value is not None}, rest, weights=weights
    )


def _stored(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes as checkpoints have them: experts one by one, which Transformers holds together."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        stem, kind, part = name.partition(".experts.")
        for expert in range(shape[0]) if kind else ():
            if part == "gate_up_proj":
                half = (shape[1] // 2, shape[2])
                found |= {f"{stem}{kind}{expert}.{one}_proj.weight": half for one in ("gate", "up")}
            else:
                found[f"{stem}{kind}{expert}.{part}.weight"] = shape[1:]
        found |= {} if kind else {name: shape}
    return found


_BASES: dict[str, Callable[[Path, Checkpoint], None]] = {
    **{name: functools.partial(_from_emulator, name) for name in ("dense", "mixture", "latent", "looker")},
    **{"hybrid": _hybrid, "normed": _normed},
}


def _renamed(name: str, names: dict[str, str]) -> str:
    for pattern, text in names.items():
        name = re.sub(pattern, text, name)
    return name


def _fused(tensors: dict[str, Any], fused: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Projections that belong together as one tensor, their rows one after the other."""
    torch = import_module("torch")

    found = dict(tensors)
    for name in tensors:
        for whole, parts in fused.items():
            if name.endswith(f"{parts[0]}.weight"):
                stem = name.removesuffix(f"{parts[0]}.weight")
                found[f"{stem}{whole}.weight"] = torch.cat(
                    [found.pop(f"{stem}{one}.weight") for one in parts]
                )
    return found


def _stacked(tensors: dict[str, Any]) -> dict[str, Any]:
    """All experts of a layer in two tensors: gate and up one after the other, and down."""
    torch = import_module("torch")

    found = {name: value for name, value in tensors.items() if ".experts." not in name}
    for stem in {name.partition(".experts.")[0] for name in tensors if ".experts." in name}:
        count = sum(name.startswith(f"{stem}.experts.") for name in tensors) // 3

        def all_of(part: str, stem: str = stem, count: int = count) -> Any:
            return torch.stack([tensors[f"{stem}.experts.{one}.{part}_proj.weight"] for one in range(count)])

        found[f"{stem}.experts.gate_up_proj"] = torch.cat([all_of("gate"), all_of("up")], dim=1)
        found[f"{stem}.experts.down_proj"] = all_of("down")
    return found


def _in_fp8(tensors: dict[str, Any], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The projections of the layers in fp8 with one scale each, or one for each block."""
    torch = import_module("torch")

    found: dict[str, Any] = {}
    for name, value in tensors.items():
        if not name.endswith("_proj.weight"):
            found[name] = value
        elif kind == "tensor":
            scale = value.abs().max() / _LARGEST
            found[name] = (value / scale).to(torch.float8_e4m3fn)
            found[f"{name}_scale"] = scale.float().reshape(1)
        else:
            rows, columns = (-(-size // BLOCK) for size in value.shape)
            scale = torch.ones(rows, columns)
            for row in range(rows):
                for column in range(columns):
                    part = value[row * BLOCK : (row + 1) * BLOCK, column * BLOCK : (column + 1) * BLOCK]
                    scale[row, column] = part.abs().max() / _LARGEST
            whole = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            found[name] = (value / whole[: value.shape[0], : value.shape[1]]).to(torch.float8_e4m3fn)
            found[f"{name}_scale_inv"] = scale
    config: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    return found, config | ({"weight_block_size": [BLOCK, BLOCK]} if kind == "block" else {})


def _break_prefix(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """The second layer's tensors under another prefix than the first one's."""
    save_file = import_module("safetensors.torch").save_file

    moved = {name.replace("model.layers.1.", "module.layers.1."): value for name, value in tensors.items()}
    save_file(moved, folder / WEIGHTS, metadata={"format": "pt"})


def _break_shard(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Two shards by the index, of which the second is not there."""
    save_file = import_module("safetensors.torch").save_file

    first, second = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    kept = {name: value for name, value in tensors.items() if ".layers.1." not in name}
    save_file(kept, folder / first, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: first if name in kept else second for name in tensors}}
    _write_json(folder / INDEX, index)
    (folder / WEIGHTS).unlink()


def _break_scales(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Block scales of blocks twice as large as the configuration says."""
    save_file = import_module("safetensors.torch").save_file

    coarse = {
        name: value[::2, ::2].contiguous() if name.endswith("_scale_inv") else value
        for name, value in tensors.items()
    }
    save_file(coarse, folder / WEIGHTS, metadata={"format": "pt"})


def _break_rope(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """A scaled rope that does not say by how much."""
    _write_json(folder / "config.json", config | {"rope_scaling": {"rope_type": "yarn"}})


def _break_tokenizer(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """A tokenizer with more tokens than the embedding has rows."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    words = tokenizer["model"]["vocab"]
    words |= {f"word{one}": one for one in range(len(words), config["vocab_size"] + 64)}
    _write_json(path, tokenizer)


def _break_code(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """An architecture that only the checkpoint's own code knows, and that fits no family."""
    save_file = import_module("safetensors.torch").save_file

    (folder / "modeling_lattice.py").write_text(_OWN_CODE, "utf-8")
    auto = {"AutoModelForCausalLM": "modeling_lattice.LatticeForCausalLM"}
    _write_json(folder / "config.json", config | {"auto_map": auto})
    woven = {
        name: value.reshape(2, -1, 64).contiguous() if ".lattice." in name else value
        for name, value in tensors.items()
    }
    save_file(woven, folder / WEIGHTS, metadata={"format": "pt"})


_FAULTS = {
    **{"prefix": _break_prefix, "shard": _break_shard, "scales": _break_scales},
    **{"rope": _break_rope, "tokenizer": _break_tokenizer, "code": _break_code},
}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
