"""Whether a method can run at all: whether anything that runs on an NPU names it."""

from __future__ import annotations

import re

from npu_upgrade.audit.world import World
from npu_upgrade.program.mentions import Mention, Mentions
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import methods_on


def may_run(method: Method, cls: ClassSymbol, mentions: Mentions, world: World) -> bool:
    """Whether something names the method that is neither a method another one hides on ``cls``
    nor in a class that an NPU class stands in for without deriving from it.
    """
    if method.name.startswith("__"):
        return True
    defined = re.compile(rf"^\s*(?:async\s+)?def\s+{method.name}\b")
    lines = (mention for mention in mentions.of(method.name) if not defined.search(mention.text))
    return any(runs_on_npu(mention, cls, world) for mention in lines)


def runs_on_npu(mention: Mention, cls: ClassSymbol, world: World) -> bool:
    """Whether a line may run where objects of ``cls`` are in use."""
    file = world.program.file(mention.path)
    place = file.method_at(mention.line) if file else None
    if place is None:
        return True
    if any(place.owner in pair.gpu.mro and place.owner not in pair.npu.mro for pair in world.pairs):
        return False
    return place.owner not in cls.mro or any(place.node is method.node for method in methods_on(cls))
