"""Derive the families that the skill ships: ``python -m bench.model_families`` writes them.

Of each architecture that vLLM registers and Transformers has: the tensors that a checkpoint of it holds and
the keys of its configuration, from a tiny model of Transformers' own class. Sizes are chosen so that each
number of a shape says which size it is. Run by the vLLM for this machine's CPU, which has torch.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

# of a text model; every product that a shape can be is another number
SIZES = {
    **{"vocab_size": 520, "hidden_size": 136, "intermediate_size": 184, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 40, "num_hidden_layers": 8, "max_position_embeddings": 600},
    **{"moe_intermediate_size": 88, "shared_expert_intermediate_size": 104, "num_experts": 14},
    **{"num_local_experts": 14, "n_routed_experts": 14, "num_experts_per_tok": 2, "n_group": 2},
    **{"topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 48},
    **{"kv_lora_rank": 56, "qk_nope_head_dim": 26, "qk_rope_head_dim": 16, "v_head_dim": 24},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 26},
    **{"linear_value_head_dim": 22, "mamba_d_state": 18, "pad_token_id": 0, "bos_token_id": 1},
    **{"eos_token_id": 2},
}
_VISION = {
    **{"hidden_size": 72, "intermediate_size": 112, "num_hidden_layers": 3, "depth": 3},
    **{"num_attention_heads": 4, "num_heads": 4, "image_size": 56, "patch_size": 14, "out_hidden_size": 136},
    **{"embed_dim": 72, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 112},
    **{"d_model": 72, "projection_dim": 136},
}
_QUERYING = {
    "hidden_size": 76,
    "intermediate_size": 116,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "encoder_hidden_size": 72,
}
_AUDIO = {
    **{
        "hidden_size": 60,
        "d_model": 60,
        "intermediate_size": 100,
        "encoder_ffn_dim": 100,
        "num_mel_bins": 32,
    },
    **{"encoder_layers": 3, "num_hidden_layers": 3, "encoder_attention_heads": 4, "num_attention_heads": 4},
}
_PARTS = {r"qformer": _QUERYING, r"audio|speech": _AUDIO, r"vision|vit|image": _VISION}
_GENERATE = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
# what a checkpoint of a family may have or lack, besides what each of its switches brings or takes away
_VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"tie_word_embeddings": False},
    {"tie_word_embeddings": True},
    {"q_lora_rank": None},
    {"mlp_only_layers": list(range(8))},
)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_MOST = 40_000_000  # parameters: a class that keeps its default sizes is left out


def of(name: str) -> dict[str, Any]:
    """One family; run where Transformers and torch are."""
    torch = import_module("torch")
    transformers = import_module("transformers")

    kind = getattr(transformers, name)
    found: list[tuple[dict[str, list[int]], dict[str, Any]]] = []
    why = None
    base = set(transformers.PretrainedConfig().to_dict()) | {"architectures", "transformers_version", "dtype"}
    default = _flat(kind.config_class().to_dict())
    switches = {key.rpartition(".")[2]: not on for key, on in default.items() if type(on) is bool}
    each = [{key: turned} for key, turned in sorted(switches.items()) if key not in base]
    known = {"tie_word_embeddings", *(key.rpartition(".")[2] for key in default)}
    for variant in (*_VARIANTS, *each):
        if variant and not variant.keys() & known:
            continue
        # sizes of heads that a class takes without a key for them
        for more in ({"head_dim": SIZES["head_dim"]}, {}) if not found else ({},):
            try:
                config = _configured(kind.config_class, SIZES, variant | more)
                found.append(_saved(torch, kind, config))
                break
            except Exception as error:
                why = why or error
    if not found:
        raise why or ValueError("no variant")
    tensors: dict[str, list[int]] = {}
    for shapes, _ in found:
        for tensor, shape in shapes.items():
            tensors.setdefault(_NUMBER.sub("*", tensor), shape)
    always = [{_NUMBER.sub("*", tensor) for tensor in shapes} for shapes, _ in found]
    written = found[0][1]
    aliases = {name: written.get(stands) for name, stands in kind.config_class.attribute_map.items()}
    sizes = _flat(written) | aliases
    return {
        "model_type": written["model_type"],
        "config": kind.config_class.__name__,
        "sizes": {key: value for key, value in sizes.items() if type(value) is int and value > 1},
        "keys": sorted(
            {key for key in _flat(written) if key.rpartition(".")[2] not in base}
            | {*kind.config_class.attribute_map}
        ),
        "types": {key: value for key, value in _flat(written).items() if key.endswith(".model_type")},
        "optional": sorted(tensors.keys() - set.intersection(*always)),
        "tensors": tensors,
    }


def _saved(torch: Any, kind: Any, config: Any) -> tuple[dict[str, list[int]], dict[str, Any]]:
    """The tensors' shapes by name, and the configuration, as they are written."""
    with torch.device("meta"):
        count = sum(one.numel() for one in kind(config).parameters())
    if count > _MOST:
        raise ValueError(f"{count} parameters")
    with tempfile.TemporaryDirectory() as folder:
        kind(config).to(torch.bfloat16).save_pretrained(folder)
        written = json.loads(Path(folder, "config.json").read_text("utf-8"))
        return _header(Path(folder, "model.safetensors")), written


def _configured(kind: Any, sizes: dict[str, int], more: dict[str, Any]) -> Any:
    """A configuration of the class ``kind`` with the sizes it has a key for, and with ``more``."""
    default = kind()
    names = set(default.to_dict()) | set(default.attribute_map)
    given: dict[str, Any] = {name: value for name, value in sizes.items() if name in names} | more
    switches = {name: value for name, value in more.items() if type(value) is bool}
    for part in getattr(kind, "sub_configs", None) or {}:
        inner = getattr(default, part, None)
        if inner is not None:
            own = next((own for kind, own in _PARTS.items() if re.search(kind, part)), SIZES)
            given[part] = _configured(type(inner), own, switches).to_dict()
    return kind(**given)


def _flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= (
            _flat(value, f"{before}{key}.")
            if isinstance(value, dict) and not key.startswith("rope")
            else {f"{before}{key}": value}
        )
    return found


def _header(path: Path) -> dict[str, list[int]]:
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return {name: one["shape"] for name, one in sorted(header.items())}


def _all(names: list[str]) -> None:
    """Print one line of JSON for each family."""
    import contextlib
    import io

    torch = import_module("torch")

    torch.manual_seed(0)
    for name in names:
        noise = io.StringIO()
        try:
            with contextlib.redirect_stdout(noise):
                found = of(name)
        except Exception as error:  # a class that no tiny configuration fits
            print(f"{name}: {' '.join(str(error).split())[:120]}", file=sys.stderr)
            continue
        print(json.dumps({name: found}), flush=True)


def derive() -> str:
    """The text of the file."""
    from npu_upgrade.checkpoint.config import facts
    from npu_upgrade.gates.vllm_cpu import cpu_python

    registered = facts().architectures.items()
    own = [name for name, one in registered if not one.module.endswith(".transformers")]
    known = [name for name in own if name.endswith(_GENERATE) or name in facts().transformers]
    command = [str(cpu_python()), "-P", "-m", "bench.model_families", *known]
    environment = {
        **{"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PATH": os.environ["PATH"]},
        **{"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
    }
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    lines = [f"{json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in sorted(found.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    from npu_upgrade.checkpoint.likeness import FAMILIES
    from npu_upgrade.ground.files import write_atomic

    write_atomic(FAMILIES, derive().encode())
    print(f"{FAMILIES} written")
    return 0


if __name__ == "__main__":
    sys.exit(main() if len(sys.argv) == 1 else _all(sys.argv[1:]))
