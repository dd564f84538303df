"""A Qwen3 that embeds, with a recurrent layer before it."""

from __future__ import annotations

from npu_emulator.dry_run.models.omni_hybrid import Remembering
from npu_emulator.dry_run.models.omni_pooling import TinyOmniPooling


class TinyOmniHybridPooling(Remembering, TinyOmniPooling):
    """Its embedding depends on a state that a prefix in the cache has to bring with it."""


MODEL = TinyOmniHybridPooling
