"""The model ``successor`` with layers that do something, in eight bits, as compressed-tensors writes them.

``python -m npu_emulator.dry_run.models quantized FOLDER`` writes it. Its attention and feed-forward layers
add a little to the stream, not enough to change an answer: a kernel that reads the integers or their scales
wrongly changes all of them.
"""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models import files, successor

LITTLE = 0.005  # standard deviation of the weights that are quantized
LARGEST = 127
_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
CONFIG = successor.CONFIG | {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": _BITS | {"strategy": "channel", "dynamic": False},
                "input_activations": _BITS | {"strategy": "token", "dynamic": True},
            }
        },
    }
}


def make(folder: Path) -> None:
    """Write config, integers with a scale for each output channel, tokenizer, and ``gate.yaml``."""
    files.write(folder, CONFIG, {}, weights=_weights())
    (folder / "gate.yaml").write_text(successor.gate_file(), encoding="utf-8")


def _weights() -> dict:
    import torch

    random, found = torch.Generator().manual_seed(1), {}
    for name, value in successor.weights(successor.successors()).items():
        if not name.endswith("_proj.weight"):
            found[name] = value
            continue
        small = LITTLE * torch.randn(value.shape, generator=random)
        scale = small.abs().amax(dim=1, keepdim=True) / LARGEST
        found[name] = (small / scale).round().to(torch.int8)
        found[f"{name}_scale"] = scale
    return found
