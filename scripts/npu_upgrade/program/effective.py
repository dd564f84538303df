"""What is reached when a method is called on an object of a class, over its whole resolution order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.signatures import Function
from npu_upgrade.program.facts import METHOD, Facts, facts_of
from npu_upgrade.program.program import ClassSymbol, File, Method

Key = tuple[str, str]


@dataclass(frozen=True)
class Reached:
    """A function that is reached; ``owner`` is None for one outside classes."""

    name: str
    file: File
    node: Function
    owner: ClassSymbol | None

    @property
    def facts(self) -> Facts:
        return facts_of(self.file, self.node)


@dataclass(eq=False)
class Effective:
    """The methods that are effective on one class."""

    cls: ClassSymbol

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The method that each name reaches."""
        found: dict[str, Method] = {}
        for cls in self.cls.mro:
            for name, method in cls.methods.items():
                found.setdefault(name, method)
        return found

    @cached_property
    def own(self) -> dict[str, Method]:
        """Those of them that vllm-omni brings."""
        return {name: m for name, m in self.methods.items() if m.owner.project == "vllm-omni"}

    @cached_property
    def _reach(self) -> dict[int, dict[int, Reached]]:
        return {}

    def reach(self, method: Method) -> dict[int, Reached]:
        """All functions that a call of ``method`` may come to, itself first, by node."""
        if id(method.node) not in self._reach:
            start = Reached(method.name, method.owner.file, method.node, method.owner)
            found = {id(method.node): start}
            queue = [start]
            while queue:
                for follower in self._next(queue.pop()):
                    if id(follower.node) not in found:
                        found[id(follower.node)] = follower
                        queue.append(follower)
            self._reach[id(method.node)] = found
        return self._reach[id(method.node)]

    def _next(self, place: Reached) -> Iterator[Reached]:
        facts = place.facts
        for kind, name in facts.of:
            if kind == METHOD and place.owner and name in self.methods:
                yield _of(self.methods[name])
        for name in facts.supers:
            if place.owner and (above := self.cls.after(place.owner, name)):
                yield _of(above)
        for owner, name in facts.explicit:
            if method := owner.lookup(name):
                yield _of(method)
        for symbol in facts.symbols:
            yield Reached(symbol.node.name, symbol.file, symbol.node, None)

    @cached_property
    def callers(self) -> dict[str, list[Method]]:
        """The methods vllm-omni brings, by the names of the methods they use on ``self``."""
        found: dict[str, list[Method]] = {}
        for method in self.own.values():
            for kind, name in facts_of(method.owner.file, method.node).of:
                if kind == METHOD:
                    found.setdefault(name, []).append(method)
        return found


def _of(method: Method) -> Reached:
    return Reached(method.name, method.owner.file, method.node, method.owner)
