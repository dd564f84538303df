"""Mixins that a GPU class has among its ancestors and its NPU counterpart has not."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.parity.gap_text import class_place
from npu_upgrade.audit.parity.mixins import missing_bases
from npu_upgrade.audit.world import Pair, World
from npu_upgrade.program.program import ClassSymbol

NAME = "parity-bases"
ABOUT = "mixins that a GPU class has and its NPU counterpart has nowhere among its ancestors"


def check(world: World) -> Iterator[Finding]:
    for pair in world.pairs if world.of_omni else []:
        missing = missing_bases(pair, world)
        brought = {id(above) for cls in missing for above in cls.mro[1:]}
        # A mixin that comes with another missing one, or with a missing parent class, is told there.
        yield from (
            _finding(pair, cls)
            for cls in missing
            if id(cls) not in brought and _matters(pair, cls) and not _told_above(pair, cls, world)
        )


def _matters(pair: Pair, base: ClassSymbol) -> bool:
    """Whether it brings methods that the NPU class does not have in another way."""
    names = {name for cls in base.mro for name in cls.methods}
    return any(pair.npu.lookup(name) is None for name in names)


def _told_above(pair: Pair, base: ClassSymbol, world: World) -> bool:
    above = (other for other in world.pairs if other is not pair and other.npu in pair.npu.mro)
    return any(base in other.gpu.mro for other in above)


def _finding(pair: Pair, base: ClassSymbol) -> Finding:
    names = [name for cls in base.mro for name in cls.methods if pair.npu.lookup(name) is None]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Finding(
        check=NAME,
        kind="missing base",
        owner=pair.npu.name,
        subject=base.name,
        what=f"{pair.gpu.name} has {base.name} among its bases, {pair.npu.name} has not: no {shown}",
        here=class_place(pair.npu),
        there=class_place(pair.gpu),
        incident="P",
        why="calls of its methods fail, or are skipped where the code asks for them first",
        todo=f"add {base.name} to the bases, and port the calls that set it up",
        like="vllm-omni #5234",
    )
