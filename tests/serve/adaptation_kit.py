"""A model that no vLLM has: the tiny ``successor`` under names of its own, and the adapter written for it.

The weights are those of a Qwen3 set by hand, so the right answers are known; architecture, model type and
every tensor have another name, as a new model's have. The adapter is the scaffold of ``adapt.py plan``, which
the gates install into the job's own environment.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from npu_upgrade.checkpoint.weights import BITS
from npu_upgrade.environments.venvs import find_uv, uv_variables
from npu_upgrade.gates.vllm_cpu import cpu_python, tiny

ADAPT = Path(__file__).resolve().parents[2] / "scripts/adapt.py"
ARCHITECTURE, MODEL_TYPE, PACKAGE = "TidalForCausalLM", "tidal", "tidal_plugin"
WEIGHTS = "model.safetensors"
# the checkpoint's names (numbers are *) -> those of the model that computes the same
NAMES = {
    "decoder.tokens.weight": "model.embed_tokens.weight",
    "decoder.blocks.*.before_attention.weight": "model.layers.*.input_layernorm.weight",
    "decoder.blocks.*.attention.query.weight": "model.layers.*.self_attn.q_proj.weight",
    "decoder.blocks.*.attention.key.weight": "model.layers.*.self_attn.k_proj.weight",
    "decoder.blocks.*.attention.value.weight": "model.layers.*.self_attn.v_proj.weight",
    "decoder.blocks.*.attention.out.weight": "model.layers.*.self_attn.o_proj.weight",
    "decoder.blocks.*.attention.query_norm.weight": "model.layers.*.self_attn.q_norm.weight",
    "decoder.blocks.*.attention.key_norm.weight": "model.layers.*.self_attn.k_norm.weight",
    "decoder.blocks.*.before_feed.weight": "model.layers.*.post_attention_layernorm.weight",
    "decoder.blocks.*.feed.gate.weight": "model.layers.*.mlp.gate_proj.weight",
    "decoder.blocks.*.feed.up.weight": "model.layers.*.mlp.up_proj.weight",
    "decoder.blocks.*.feed.down.weight": "model.layers.*.mlp.down_proj.weight",
    "decoder.last_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
WRONG = ("self_attn.o_proj", "self_attn.output_proj")  # one place of the table, and one that no module has


def read_header(path: Path) -> tuple[dict[str, Any], bytes]:
    """The tensors of a safetensors file by name, and the bytes behind the header."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, data[8 + length :]


def write_header(path: Path, header: dict[str, Any], data: bytes) -> None:
    """A safetensors file of this header and these bytes."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_checkpoint(folder: Path) -> Path:
    """The tiny ``successor`` as ``TidalForCausalLM``, with its ``gate.yaml``; returns ``folder``."""
    shutil.copytree(tiny("successor"), folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config |= {"architectures": [ARCHITECTURE], "model_type": MODEL_TYPE}
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    header, data = read_header(folder / WEIGHTS)
    other = {theirs: ours for ours, theirs in NAMES.items()}
    write_header(folder / WEIGHTS, {_renamed(name, other): one for name, one in header.items()}, data)
    return folder


def _renamed(name: str, table: dict[str, str]) -> str:
    number = re.search(r"(?<=\.)\d+(?=\.)", name)
    pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
    return table[pattern].replace("*", number[0] if number else "")


def make_fp8(folder: Path, source: Path) -> str:
    """``source`` in fp8 by blocks, without the scale of one weight; returns that weight's name."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    header, _ = read_header(folder / WEIGHTS)
    shapes = {name: (tuple(one["shape"]), one["dtype"]) for name, one in header.items()}
    projections = [name for name, (shape, _) in shapes.items() if "blocks" in name and len(shape) == 2]
    for name in projections:
        rows, columns = shapes[name][0]
        shapes[name] = ((rows, columns), "F8_E4M3")
        shapes[f"{name}_scale_inv"] = ((math.ceil(rows / 128), math.ceil(columns / 128)), "F32")
    victim = next(name for name in projections if name.endswith("1.feed.down.weight"))
    del shapes[f"{victim}_scale_inv"]
    tensors, at = {}, 0
    for name, (shape, kind) in shapes.items():
        size = math.prod(shape) * BITS[kind] // 8
        tensors[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    write_header(folder / WEIGHTS, tensors, bytes(at))
    return victim


def set_mapping(project: Path, wrong: bool) -> None:
    """Put the one wrong place into the table and into its unit test, or the right one."""
    was, new = WRONG if wrong else WRONG[::-1]
    for path in (project / PACKAGE / "model.py", project / f"tests/test_{PACKAGE}.py"):
        text = path.read_text("utf-8")
        assert text.count(was) == 1
        path.write_text(text.replace(was, new), "utf-8")


def private_python(folder: Path, *projects: Path) -> Path:
    """An environment of its own over the CPU's vLLM, with ``projects`` installed as one edits them."""
    shared, uv = cpu_python(), find_uv()
    subprocess.run([uv, "venv", "-q", "--python", shared, folder], check=True, env=uv_variables())
    python = folder / "bin/python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs, own = (
        subprocess.run([one, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
        for one in (shared, python)
    )
    (Path(own) / "shared.pth").write_text(f"{theirs}\n", "utf-8")
    install = [uv, "pip", "install", "-q", "--python", python, "--no-deps"]
    for project in projects:
        install += ["-e", project]
    subprocess.run(install, check=True, env=uv_variables())
    return python


def adapt(workspace: Path, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of one ``adapt.py`` command, in a process of its own."""
    words = [str(one) for one in arguments]
    split = words.index("--") if "--" in words else len(words)
    given = [*words[:split], "--workspace", str(workspace), "--format", "json", *words[split:]]
    done = subprocess.run(
        [sys.executable, str(ADAPT), *given], cwd=workspace, stdin=subprocess.DEVNULL, stdout=-1, text=True
    )
    return done.returncode, json.loads(done.stdout)
