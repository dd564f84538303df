"""MOSS-TTS whose codec meets batches and lengths of which it has no graph: it decodes those without.

The deploy file captures batches of one only, and says nothing of a steady chunk's length: the talker sends
what the release takes then, of which the codec captures nothing. Vllm-omni tells its MOSS-TTS models apart by
the names of their folders, so this module's has "local" in it.
"""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines import moss_tts_local, parts
from npu_emulator.dry_run.models.pipelines.moss_tts_local import (  # noqa: F401 - a pipeline's names
    ARCHITECTURE,
    DEPLOY,
    NEEDED,
    OPTIONS,
    WITHOUT_NPU,
    WORKERS,
    ask,
    make,
)


def reduce(deploy: dict) -> None:
    """As for graphs of everything, but with fewer of them."""
    moss_tts_local.reduce(deploy)
    for stage in parts.stages(deploy):
        if stage["stage_id"] == 1:
            stage["compilation_config"]["cudagraph_capture_sizes"] = [1]
    for connector in deploy["connectors"].values():
        connector["extra"].pop("codec_chunk_frames", None)
