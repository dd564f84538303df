"""Qwen-Image on two devices: one follows the prompt, the other the negative one."""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines import qwen_image
from npu_emulator.dry_run.models.pipelines.qwen_image import (  # noqa: F401 - a pipeline's names
    ARCHITECTURE,
    DEPLOY,
    WITHOUT_NPU,
    WORKERS,
    ask,
    make,
)

OPTIONS = (*qwen_image.OPTIONS, "--cfg-parallel-size", "2")
