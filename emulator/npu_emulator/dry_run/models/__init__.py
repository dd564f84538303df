"""Tiny checkpoints with real safetensors and a real tokenizer, made once by a seeded script."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from npu_emulator.dry_run.catalogue import SCENARIOS

# scenario model -> the module that makes its checkpoint
_MAKERS = {
    "dense": "dense",
    "mixture": "mixture",
    "latent": "latent",
    "vision": "vision",
    "successor": "successor",
    "looker": "looker",
    "drafting": "drafting",
    "silent": "silent",
    "stutter": "stutter",
    "quantized": "quantized",
    "omni_ar": "dense",
    "omni_embeds": "dense",
    "omni_generation": "dense",
    "omni_sampler": "dense",
    "omni_single": "dense",
    "omni_sparse": "dense",
    "omni_talker": "dense",
}
NAMES = tuple(sorted(set(_MAKERS.values())))
PIPELINES = "pipelines."  # how the names of their modules begin
_CLASSES = ("transformers", "diffusers", "vllm-omni")  # whose make and answer a pipeline's checkpoint


def checkpoint(model: str, folder: Path) -> Path:
    """The folder of the tiny checkpoint ``model`` inside ``folder``; it is made when it is missing."""
    if model.startswith(PIPELINES):
        return _of_release(model, folder)
    return make(_MAKERS[model], folder / _MAKERS[model])


def make(maker: str, target: Path) -> Path:
    """Run a maker unless its checkpoint is there; whoever comes first wins."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
    importlib.import_module(f"npu_emulator.dry_run.models.{maker}").make(scratch)
    try:
        os.rename(scratch, target)
    except OSError:
        shutil.rmtree(scratch)
    return target


def _of_release(maker: str, folder: Path) -> Path:
    """A pipeline's checkpoint, made and answered by a process of its own; raises :class:`engine.Absent`."""
    module = importlib.import_module(f"{__name__}.{maker}")
    parts = importlib.import_module(f"{__name__}.{PIPELINES}parts")
    parts.offered(module.ARCHITECTURE, module.DEPLOY, getattr(module, "NEEDED", ""))
    asked = repr([one.probes for one in SCENARIOS if one.model == maker])
    made_of = (*map(importlib.metadata.version, _CLASSES), hashlib.sha256(asked.encode()).hexdigest()[:8])
    target = folder / "-".join((maker, *made_of))
    if not target.exists():
        command = [sys.executable, "-P", "-m", __name__, maker, str(target)]
        variables = {name: value for name, value in os.environ.items() if name != "NPU_EMULATOR_RECORD"}
        if module.WITHOUT_NPU:
            variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
            del variables["NPU_EMULATOR_NATIVE"]
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            raise RuntimeError(f"the checkpoint {maker} cannot be made: {lines[-1]}")
    return target
