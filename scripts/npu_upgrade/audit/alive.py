"""Whether a method can run at all: whether anything that runs on an NPU names it."""

from __future__ import annotations

import functools
import re

from npu_upgrade.audit.mentions import Mention, Mentions
from npu_upgrade.audit.program import ClassSymbol, File, Method
from npu_upgrade.audit.self_use import methods_on
from npu_upgrade.audit.world import World


def may_run(method: Method, cls: ClassSymbol, mentions: Mentions, world: World) -> bool:
    """Whether something names the method that is neither a method another one hides on ``cls``
    nor in a class that an NPU class stands in for without deriving from it.
    """
    if method.name.startswith("__"):
        return True
    defined = re.compile(rf"^\s*(?:async\s+)?def\s+{method.name}\b")
    running = {id(found.node) for found in methods_on(cls)}
    replaced = {id(base) for pair in world.pairs for base in pair.gpu.mro if base not in pair.npu.mro}
    lines = (mention for mention in mentions.of(method.name) if not defined.search(mention.text))
    return any(_runs(mention, cls, running, replaced, world) for mention in lines)


def _runs(mention: Mention, cls: ClassSymbol, running: set[int], replaced: set[int], world: World) -> bool:
    file = world.program.file(mention.path)
    place = _method_at(file, mention.line) if file else None
    if place is None:
        return True
    if id(place.owner) in replaced:
        return False
    return place.owner not in cls.mro or id(place.node) in running


@functools.lru_cache(maxsize=4096)
def _method_at(file: File, line: int) -> Method | None:
    """The method of a class that has a line."""
    methods = (method for cls in file.classes.values() for method in cls.methods.values())
    return next((m for m in methods if m.node.lineno <= line <= (m.node.end_lineno or 0)), None)
