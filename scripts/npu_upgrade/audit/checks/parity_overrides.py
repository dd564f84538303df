"""Methods that a GPU class of vllm-omni defines or overrides, with nothing in their place on the NPU."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.gaps import PORT, Gap, facts_text, gaps
from npu_upgrade.audit.world import World

ABOUT = "methods of a GPU class that are not effective on its NPU counterpart"

_WHY = "what the GPU side does there does not happen on the NPU, mostly without an error"


def check(world: World) -> Iterator[Finding]:
    for gap in gaps(world, "method", "own-way"):
        yield _finding(gap)


def _finding(gap: Gap) -> Finding:
    if gap.npu is not None:
        kind = "missing override"
        instead = f"{gap.npu.owner.name}'s of {gap.npu.owner.project} runs instead"
        what = f"{gap.pair.npu.name} does not override {gap.gpu.name}; {instead}"
    elif gap.kind == "own-way":
        kind = "written out"
        caller = gap.where.name if gap.where else ""
        what = f"{caller} asks the model by itself and not as {gap.gpu.name} of the GPU side does"
    else:
        kind = "missing method"
        what = f"{gap.pair.npu.name} has no {gap.gpu.name}"
    if gap.lacking and gap.kind == "method":
        what += f"; lacking with it: {facts_text(gap.lacking)}"
    where = gap.where if gap.npu is None else None
    own = where if where and where.owner.file.path == gap.pair.npu.file.path else None
    return Finding(
        kind=kind,
        owner=gap.pair.npu.name,
        subject=gap.gpu.name,
        what=what,
        here=side(own) if own else side(gap.pair.npu),
        there=side(gap.gpu),
        incident="P",
        why=_WHY,
        todo=PORT,
        like="vllm-omni #3517",
    )
