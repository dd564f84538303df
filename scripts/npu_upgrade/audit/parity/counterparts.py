"""Methods that correspond to one another on the GPU and the NPU side, each two once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from npu_upgrade.audit.parity.bodies import share_within
from npu_upgrade.audit.world import Pair, World, on_npu_side
from npu_upgrade.program.effective import Effective
from npu_upgrade.program.program import Method, Program

_WRITTEN_OUT = 0.3
# The files of vllm-ascend whose overrides are copies of vllm's methods; elsewhere one is a rewrite.
_COPYING = re.compile(r"vllm_ascend/(_310p|worker)/.*(model_runner|worker)\w*\.py")


@dataclass(frozen=True)
class Both:
    """A GPU method and the NPU method that stands for it, or that has its text written out."""

    pair: Pair
    gpu: Method
    npu: Method
    gpu_side: Effective
    npu_side: Effective

    @property
    def goes_on(self) -> bool:
        """Whether the NPU method calls the GPU side's too, as constructors do."""
        return id(self.gpu.node) in self.npu_side.reach(self.npu)

    @property
    def is_copied(self) -> bool:
        """Whether the NPU method is one of vllm-ascend's that repeat vllm's."""
        return bool(_COPYING.match(self.npu.owner.file.path))


_found: WeakKeyDictionary[Program, list[Both]] = WeakKeyDictionary()


def both_sides(world: World) -> list[Both]:
    """All corresponding methods whose text is the project's own on either side."""
    if world.program not in _found:
        told: set[tuple[int, int]] = set()
        pairs = sorted(world.pairs, key=lambda pair: len(pair.npu.mro))
        both = (item for pair in pairs for item in _of_pair(pair, world))
        fresh = []
        for item in both:
            place = (id(item.gpu.node), id(item.npu.node))
            if place not in told:
                told.add(place)
                fresh.append(item)
        _found[world.program] = fresh
    return _found[world.program]


def upstream_of(side: Effective, name: str, project: str = "vllm") -> Method | None:
    """The method of that name that a project below vllm-omni brings to a class."""
    found = (cls.methods[name] for cls in side.cls.mro if cls.project == project and name in cls.methods)
    return next(found, None)


def _of_pair(pair: Pair, world: World) -> Iterator[Both]:
    gpu, npu = Effective(pair.gpu), Effective(pair.npu)
    ours, theirs = ("vllm-omni", "vllm-omni") if world.of_omni else ("vllm", "vllm-ascend")
    for method in gpu.methods.values():
        if method.owner.project != ours:
            continue
        other = npu.methods.get(method.name)
        if other is None and world.of_omni:
            yield from (Both(pair, method, caller, gpu, npu) for caller in _written_out(method, gpu, npu))
        elif (
            other
            and other.owner.project == theirs
            and (id(method.node) not in npu.reach(other) or method.name == "__init__")
        ):
            yield Both(pair, method, other, gpu, npu)


def _written_out(method: Method, gpu: Effective, npu: Effective) -> Iterator[Method]:
    """The NPU methods that have the text of a GPU helper where the GPU side calls it."""
    for caller in gpu.callers.get(method.name, []):
        other = npu.methods.get(caller.name)
        if other and on_npu_side(other.owner.file):
            place = [(other.owner.file, other.node)]
            if share_within(method.owner.file, method.node, place) >= _WRITTEN_OUT:
                yield other
