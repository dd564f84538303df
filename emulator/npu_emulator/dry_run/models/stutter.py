"""A Qwen3 that answers one letter over and over, as weights do that were loaded wrongly."""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models.successor import write_constant


def make(folder: Path) -> None:
    """Write config, weights and tokenizer into ``folder``."""
    write_constant(folder, "a")
