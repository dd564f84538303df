"""Tiny checkpoints to try the gates with: real weights and a tokenizer, made once by the serving Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from npu_upgrade.gates.emulation.catalogue import EMULATOR
from npu_upgrade.gates.emulation.reference import models_folder
from npu_upgrade.gates.vllm_cpu import cpu_python
from npu_upgrade.ground.errors import Blocked

_SECONDS = 300


def tiny(name: str, python: Path | None = None) -> Path:
    """The folder of a tiny checkpoint, one of ``npu_emulator.dry_run.models``; made when it is missing.

    ``successor`` has a ``gate.yaml`` beside its weights. ``python`` has torch and transformers (default: our
    vLLM for the CPU). Raises :class:`Blocked` when it cannot be made.
    """
    found = models_folder() / name
    if (found / "config.json").exists():
        return found
    try:
        done = subprocess.run(
            [str(python or cpu_python()), "-P", "-m", "npu_emulator.dry_run.models", name, str(found.parent)],
            env=os.environ | {"PYTHONPATH": str(EMULATOR), "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(name, str(error)) from error
    if done.returncode != 0:
        raise _failed(name, done.stderr.strip().rpartition("\n")[2])
    return Path(done.stdout.strip().rpartition("\n")[2])


def _failed(name: str, why: str) -> Blocked:
    return Blocked(
        f"the tiny checkpoint {name} cannot be made: {why}",
        expected="a Python with torch, safetensors and tokenizers",
        try_="upgrade.py env make vllm-cpu",
    )
