"""Qwen3-TTS as it is on other devices, for a scenario of its own."""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines.qwen3_tts import (  # noqa: F401 - a pipeline's names
    ARCHITECTURE,
    DEPLOY,
    OPTIONS,
    WITHOUT_NPU,
    WORKERS,
    ask,
    make,
    reduce,
)
