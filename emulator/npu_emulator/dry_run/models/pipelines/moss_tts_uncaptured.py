"""MOSS-TTS whose codec meets lengths of which it has no graph: it decodes those without.

The deploy file says nothing of a steady chunk's length: the talker sends what the release takes then, and the
codec captures the first chunk's only.
"""

from __future__ import annotations

from npu_emulator.dry_run.models.pipelines import moss_tts_local
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
    """As for graphs of everything, without a steady chunk's."""
    moss_tts_local.reduce(deploy)
    for connector in deploy["connectors"].values():
        connector["extra"].pop("codec_chunk_frames", None)
