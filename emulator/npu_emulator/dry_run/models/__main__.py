"""``python -m npu_emulator.dry_run.models NAME FOLDER``: a tiny checkpoint below FOLDER; prints where it is.

A pipeline's is FOLDER itself. Needs torch, safetensors and tokenizers, as any vLLM's environment has them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from npu_emulator.dry_run.models import NAMES, PIPELINES, checkpoint, make


def _without_npu() -> None:
    """Let diffusers and transformers take their kernels for the CPU although torch_npu is installed."""
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, package=None: None if name == "torch_npu" else real(name, package)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].startswith((*NAMES, PIPELINES)):
        sys.exit(
            f"usage: python -m npu_emulator.dry_run.models NAME FOLDER; NAME is one of {', '.join(NAMES)},"
            f" {PIPELINES}MODULE"
        )
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name.startswith(PIPELINES):
        if importlib.import_module(f"npu_emulator.dry_run.models.{name}").WITHOUT_NPU:
            _without_npu()
        print(make(name, folder))
    else:
        print(checkpoint(name, folder))
