"""Qwen3-Omni whose thinker is split over two devices (tensor parallel); the other stages are on the first."""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines import parts, qwen3_omni
from npu_emulator.dry_run.models.pipelines.qwen3_omni import (  # noqa: F401 - a pipeline's names
    ARCHITECTURE,
    DEPLOY,
    OPTIONS,
    WITHOUT_NPU,
    WORKERS,
    ask,
    make,
)


def reduce(deploy: dict) -> None:
    """As on one device, and the thinker on two."""
    qwen3_omni.reduce(deploy)
    for stage in parts.stages(deploy):
        if stage["stage_id"] == 0:
            stage |= {"devices": "0,1", "tensor_parallel_size": 2}
