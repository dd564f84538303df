"""A Qwen3 that answers nothing: its first token always is the end of the text."""

from __future__ import annotations

from pathlib import Path

from npu_emulator.dry_run.models.successor import write_constant


def make(folder: Path) -> None:
    """Write config, weights and tokenizer into ``folder``."""
    write_constant(folder, "</s>")
