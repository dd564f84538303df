"""Classes of vllm-omni among a GPU class's ancestors that its NPU counterpart has nowhere."""

from __future__ import annotations

from npu_upgrade.audit.world import Pair, World
from npu_upgrade.program.program import ClassSymbol


def missing_bases(pair: Pair, world: World) -> list[ClassSymbol]:
    """The missing ancestors in their order, less those with a counterpart of their own."""
    mirrored = {id(other.gpu) for other in world.pairs}
    return [
        cls
        for cls in pair.gpu.mro
        if cls.project == "vllm-omni" and id(cls) not in mirrored and cls not in pair.npu.mro
    ]
