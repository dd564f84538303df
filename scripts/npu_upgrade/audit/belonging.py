"""Whether three trees belong together: what their own pins and numbers say."""

from __future__ import annotations

from npu_upgrade.audit.world import Triple


def belonging(triple: Triple) -> list[str]:
    """What speaks against the triple, in sentences; empty when nothing does."""
    return []
