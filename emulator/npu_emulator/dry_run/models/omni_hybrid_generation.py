"""A one-shot stage's Qwen3 with a recurrent layer before it."""

from __future__ import annotations

from npu_emulator.dry_run.models.omni_generation import TinyOmniGeneration
from npu_emulator.dry_run.models.omni_hybrid import Remembering


class TinyOmniHybridGeneration(Remembering, TinyOmniGeneration):
    """Its waveform depends on a state that begins anew with each prompt."""


MODEL = TinyOmniHybridGeneration
