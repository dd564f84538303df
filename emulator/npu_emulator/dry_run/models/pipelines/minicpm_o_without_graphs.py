"""MiniCPM-o 4.5 whose deploy file turns the NPU's graphs of its vocoder off."""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines import minicpm_o, parts
from npu_emulator.dry_run.models.pipelines.minicpm_o import (  # noqa: F401 - a pipeline's names
    ARCHITECTURE,
    DEPLOY,
    OPTIONS,
    WITHOUT_NPU,
    WORKERS,
    ask,
    make,
)


def reduce(deploy: dict) -> None:
    """As with these graphs, and without them."""
    minicpm_o.reduce(deploy)
    for stage in parts.stages(deploy):
        if "additional_config" in stage:
            stage["additional_config"]["code2wav_enable_npu_graph"] = False
