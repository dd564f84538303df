"""Methods that a GPU class of vllm-omni defines or overrides, with nothing in their place on the NPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.gaps import PORT, Gap, facts_text, gaps
from npu_upgrade.audit.world import World
from npu_upgrade.program.facts import MODEL, Fact
from npu_upgrade.program.mentions import Mentions

ABOUT = "methods of a GPU class that are not effective on its NPU counterpart"

_WHY = "what the GPU side does there does not happen on the NPU, mostly without an error"

_FEW = 2
_OF_CUDA = re.compile(r"\btorch\.cuda\.(?!is_available\b)\w")


def check(world: World) -> Iterator[Finding]:
    mentions = Mentions(world.program)
    for gap in gaps(world, "method", "own-way"):
        yield _finding(gap, world, mentions)


def _finding(gap: Gap, world: World, mentions: Mentions) -> Finding:
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
        what += f"; lacking with it: {facts_text(gap.lacking)}{_models_with(gap.lacking, world, mentions)}"
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


def _models_with(facts: tuple[Fact, ...], world: World, mentions: Mentions) -> str:
    """Who has what is asked of a model, where few files do, and whether a file uses torch.cuda itself."""
    names = sorted({fact.name for fact in facts if fact.kind == MODEL})
    own = f"{world.side.project.package}/"
    apart = {pair.gpu.file.path for pair in world.pairs} | {file.path for file in world.files}
    made = re.compile(rf"\bdef ({'|'.join(names)})\b|\b({'|'.join(names)})\s*[:=](?!=)")
    lines = (one for name in names for one in mentions.of(name))
    found = dict.fromkeys(one.path for one in lines if made.search(one.text))
    paths = [path for path in found if path.startswith(own) and path not in apart]
    if not 0 < len(paths) <= _FEW:
        return ""
    cuda = {path for path in paths if _OF_CUDA.search(world.program.text(path))}
    return "; had by " + ", ".join(
        path + (", which uses torch.cuda" if path in cuda else "") for path in paths
    )
