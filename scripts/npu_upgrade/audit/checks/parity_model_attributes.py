"""Attributes and hooks of the model that the GPU side asks for and the NPU side does not."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.parity.gaps import facts_text, gaps, lacking
from npu_upgrade.audit.world import World

ABOUT = "attributes and hooks of the model that only the GPU side asks for"


def check(world: World) -> Iterator[Finding]:
    for gap in gaps(world, "attribute"):
        method = gap.npu or gap.gpu
        what = f"{gap.gpu.qualname} asks for {facts_text(gap.lacking)}, {method.qualname} does not"
        why = "models that declare it are run as if they did not"
        yield lacking(gap, "not asked", what, why, "vllm-omni #5846")
