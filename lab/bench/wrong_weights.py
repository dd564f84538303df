"""Servers that compute something else than their checkpoint says, and right ones: ``play`` takes each case.

The defects are those of an adapter's code, so the checkpoint is sound and the fault is in the server: a
plugin changes what vLLM reads or builds, or ``--hf-overrides`` what it makes of the configuration. Every
wrong one has to differ from Transformers, every right one to equal it.

``python -m bench.wrong_weights [WORDS]``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.gates_cases import OPEN, Case
from npu_upgrade.gates.emulation.catalogue import EMULATOR
from npu_upgrade.gates.vllm_cpu import cpu_python

_QUICK = ("--generations", "1", "--quiet", "1")
_FINE = ("--dtype", "float32")  # for what bfloat16 would hide
_BIASED = """
import sys
from pathlib import Path
import torch
from npu_emulator.dry_run.models import dense, files
config = dense.CONFIG | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": 32}
shapes = {name: shape for name, shape in dense.shapes(config).items() if "_norm." not in name}
random = torch.Generator().manual_seed(1)
biases = {
    name.replace("weight", "bias"): 0.2 * torch.randn(shape[0], generator=random)
    for name, shape in shapes.items() if name.rpartition(".")[0][-6:] in ("q_proj", "k_proj", "v_proj")
}
files.write(Path(sys.argv[1]), config, shapes, weights=biases)
"""


def make_biased(folder: Path) -> None:
    """A Qwen2 with random weights: biases at query, key and value, and a square output projection."""
    folder.mkdir()
    environment = {"PYTHONPATH": str(EMULATOR), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([cpu_python(), "-P", "-c", _BIASED, folder], env=environment, check=True)


def _right(model: str, *arguments: str) -> Case:
    name = " ".join(["right:", model, *arguments])
    return Case(
        name, ("PASS",), model=model, options=_QUICK, passed=("reference",), arguments=arguments, fit=OPEN
    )


def _wrong(model: str, fault: str, *arguments: str) -> Case:
    return Case(
        " ".join([f"{fault}: {model}", *arguments]), ("FAIL",), why="differs from Transformers", model=model,
        fault=fault, options=_QUICK, arguments=arguments, fit=OPEN,
    )  # fmt: skip


def _read(model: str, what: str, **config: object) -> Case:
    arguments = ("--hf-overrides", json.dumps(config))
    return Case(
        f"{what}: {model}", ("FAIL",), why="differs from Transformers", model=model, arguments=arguments,
        options=_QUICK, fit=OPEN,
    )  # fmt: skip


CASES = (
    _right("biased"),
    _right("dense"),
    _right("dense", *_FINE),
    _right("mixture"),
    _right("looker"),
    _wrong("dense", "swapped-gate-up"),
    _wrong("mixture", "swapped-gate-up"),
    _wrong("biased", "transposed-projection"),
    _wrong("biased", "dropped-bias"),
    _wrong("dense", "norm-plus-one"),
    _wrong("dense", "norm-missing"),
    _wrong("dense", "norm-eps", *_FINE),
    _wrong("biased", "rope-interleaved"),
    _read("dense", "rope-theta", rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    _wrong("dense", "embedding-scale", *_FINE),
    _wrong("biased", "attention-scale"),
    _wrong("dense", "logit-scale"),
    _read("mixture", "router-scale", norm_topk_prob=False),
    _wrong("looker", "picture-scale", *_FINE),
)


def main() -> int:
    """Play the cases whose name has one of the words, or all; exit code 1 when one is judged wrong."""
    from bench.gates_run import faults, play

    wrong = 0
    for case in CASES:
        if len(sys.argv) < 2 or any(word in case.name for word in sys.argv[1:]):
            seen = play(case, None)
            found = faults(case, seen)
            wrong += bool(found)
            print(
                f"{case.name}: {seen.seconds:.0f} s: {'; '.join(found) or 'right'}: {seen.summary}",
                flush=True,
            )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
