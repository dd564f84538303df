"""Calls that a GPU method makes and its NPU counterpart, with all it calls, does not."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.parity import Gap, gaps
from npu_upgrade.audit.parity_text import facts_text, lacking
from npu_upgrade.audit.world import World

NAME = "parity-hooks"
ABOUT = "hooks and helpers that a GPU method calls and its NPU counterpart does not"


def check(world: World) -> Iterator[Finding]:
    for gap in gaps(world, "hook"):
        yield _finding(gap)


def _finding(gap: Gap) -> Finding:
    method = gap.npu or gap.gpu
    return lacking(
        NAME,
        gap,
        kind="not called",
        what=f"{gap.gpu.qualname} calls {facts_text(gap.lacking)}, {method.qualname} does not",
        why="the step is not taken on the NPU, and nothing says so",
        like="vllm-ascend #7875",
    )
