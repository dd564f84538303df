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
    "omni_talker": "dense",
} | {name: name for name in ("pipelines.qwen_image", "pipelines.qwen3_tts")}
NAMES = tuple(sorted(set(_MAKERS.values())))
_OWN_CLASSES = ("transformers", "diffusers")  # whose classes make and answer a pipeline's checkpoint


def checkpoint(model: str, folder: Path) -> Path:
    """The folder of the tiny checkpoint ``model`` inside ``folder``; it is made when it is missing."""
    maker = _MAKERS[model]
    if maker.startswith("pipelines."):
        return _of_release(maker, folder)
    return make(maker, folder / maker)


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
    """A pipeline's checkpoint, made and answered by a process of its own."""
    versions = [importlib.metadata.version(name) for name in _OWN_CLASSES]
    content = "\n".join((*versions, os.environ.get("NPU_EMULATOR_PACKAGES", "")))
    target = folder / f"{maker}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if not target.exists():
        command = [sys.executable, "-P", "-m", __name__, maker, str(target)]
        variables = {name: value for name, value in os.environ.items() if name != "NPU_EMULATOR_RECORD"}
        if importlib.import_module(f"{__name__}.{maker}").WITHOUT_NPU:
            variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
            del variables["NPU_EMULATOR_NATIVE"]
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            raise RuntimeError(f"the checkpoint {maker} cannot be made: {lines[-1]}")
    return target
