"""Tiny checkpoints with real safetensors and a real tokenizer, made once by a seeded script."""

from __future__ import annotations

import importlib
import os
import shutil
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
}
NAMES = tuple(sorted(set(_MAKERS.values())))


def checkpoint(model: str, folder: Path) -> Path:
    """The folder of the tiny checkpoint ``model`` inside ``folder``; it is made when it is missing."""
    maker = _MAKERS[model]
    target = folder / maker
    if (target / "config.json").exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    importlib.import_module(f"npu_emulator.dry_run.models.{maker}").make(scratch)
    try:
        os.rename(scratch, target)  # whoever comes first wins
    except OSError:
        shutil.rmtree(scratch)
    return target
