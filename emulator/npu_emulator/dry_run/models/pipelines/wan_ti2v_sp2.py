"""Wan2.2 TI2V on two devices, each with a part of the sequence, and of the heads in attention (Ulysses)."""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines import wan_ti2v
from npu_emulator.dry_run.models.pipelines.wan_ti2v import (  # noqa: F401 - a pipeline's names
    ARCHITECTURE,
    DEPLOY,
    WITHOUT_NPU,
    WORKERS,
    ask,
    make,
)

OPTIONS = (*wan_ti2v.OPTIONS, "--ulysses-degree", "2")
