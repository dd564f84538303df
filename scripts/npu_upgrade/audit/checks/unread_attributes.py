"""Attributes that the NPU side sets and never reads, or asks for and that it, or nothing, sets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import Pair, World, runs_on_npu
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import methods_on, self_use

ABOUT = (
    "attributes that are set on an NPU class and that only its GPU counterpart reads, or the other way, "
    "and what an NPU class asks for that nothing sets any more"
)


def check(world: World) -> Iterator[Finding]:
    mentions = Mentions(world.program)
    yield from _unset(world, mentions)
    yield from _set_by_nothing(world, mentions)
    found: dict[str, list[Unread]] = {}
    for pair in world.pairs:
        if pair.npu in world.concrete:
            for one in unread_on(pair, world):
                found.setdefault(one.name, []).append(one)
    for several in found.values():
        if not any(is_read_from_outside(one, mentions, world) for one in several):
            yield _finding(several, world)


def _finding(found: list[Unread], world: World) -> Finding:
    one = found[0]
    owner = world.nearest_common([other.cls for other in found])
    writer, reader = one.writer, one.reader
    return Finding(
        kind="unread",
        owner=owner.name,
        subject=one.name,
        what=(
            f"{writer.qualname} sets self.{one.name}, which {reader.qualname} reads on the GPU side "
            f"and nothing that {owner.name} runs does"
        ),
        here=side(writer, one.write, f"sets {one.name}"),
        there=side(reader, one.read_line, f"read in {reader.qualname}"),
        incident="P",
        why="what the GPU side decides by it is decided otherwise, or not at all, on NPUs",
        todo=f"port what {reader.qualname} does with {one.name}, or stop setting it",
    )


def _unset(world: World, mentions: Mentions) -> Iterator[Finding]:
    """Attributes that an NPU method asks for with a default, and that only the GPU counterpart sets."""
    told = set[tuple[str, str]]()
    for pair in (pair for pair in world.pairs if pair.npu in world.concrete and not pair.inherits):
        own = methods_on(pair.npu)
        running = {id(method.node) for method in own}
        there = {name for cls in pair.npu.mro for name in (*cls.fields, *cls.methods)}
        there |= {name for method in own for name in self_use(method.node).writes}
        setters = [method for method in methods_on(pair.gpu) if id(method.node) not in running]
        for method in (one for one in own if one.owner.file in world.files):
            for name in sorted(self_use(method.node).guards - there):
                setter = next((one for one in setters if name in self_use(one.node).writes), None)
                key = (method.qualname, name)
                sets = re.compile(rf"(?<!\bself)\.{name}\b\s*=[^=]|setattr\(.*[\"']{name}[\"']")
                if setter and key not in told and not _on_npu(sets, name, pair.npu, mentions, world):
                    told.add(key)
                    yield _never_set(name, method, setter)


def _set_by_nothing(world: World, mentions: Mentions) -> Iterator[Finding]:
    """Attributes that an NPU method asks for with a default, and that no line of any tree sets or defines.

    Those that nothing set in the old pair either are a way to give an option, or as they were.
    """
    if world.old is None:
        return
    before = Mentions(world.old.program)
    asks = dict[tuple[str, str], Method]()
    for cls in world.concrete:
        for method in (one for one in methods_on(cls) if one.owner.file in world.files):
            for name in sorted(self_use(method.node).guards):
                asks.setdefault((method.qualname, name), method)
    names = {name for _, name in asks}
    dead = {name for name in names if before.is_defined(name) and not _may_be_set(name, mentions)}
    yield from (_dead(name, method) for (_, name), method in asks.items() if name in dead)


def _may_be_set(name: str, mentions: Mentions) -> bool:
    """Whether some line sets or defines the attribute, or has its name in a string that asks for nothing."""
    word = rf"[\"']{name}[\"']"
    asked = re.compile(rf"\b(?:has|get)attr\(\s*[\w.]*\s*,?\s*{word}|^\s*\w+,\s*{word}")
    quoted = re.compile(word)
    return mentions.is_defined(name) or any(
        quoted.search(asked.sub("", mention.text)) for mention in mentions.of(name)
    )


def _dead(name: str, method: Method) -> Finding:
    return Finding(
        kind="set-by-nothing",
        owner=method.owner.name,
        subject=name,
        what=f"{method.qualname} asks for self.{name}, which nothing sets or defines any more",
        here=side(method, text=f"asks for {name}"),
        there=None,
        incident="A",
        why="the default decides each time: what needs the attribute never runs",
        todo=f"see what stands in the place of {name} in the target, or take out what asks for it",
    )


def _on_npu(line: re.Pattern[str], name: str, cls: ClassSymbol, mentions: Mentions, world: World) -> bool:
    """Whether such a line that names an attribute runs on an NPU with objects of the class."""
    found = (mention for mention in mentions.of(name) if line.search(mention.text))
    return any(runs_on_npu(mention, cls, world) for mention in found)


def _never_set(name: str, method: Method, setter: Method) -> Finding:
    return Finding(
        kind="never-set",
        owner=method.owner.name,
        subject=name,
        what=f"{method.qualname} asks for self.{name}, which {setter.qualname} sets on the GPU side "
        f"and nothing that {method.owner.name} runs does",
        here=side(method, text=f"asks for {name}"),
        there=side(setter, self_use(setter.node).writes[name][0].node, f"sets {name}"),
        incident="P",
        why="the default decides each time, whatever the GPU side decides by it",
        todo=f"set {name} where {setter.qualname} does, or stop asking for it",
    )


@dataclass(frozen=True)
class Unread:
    """``writer`` sets ``name`` on objects of ``cls``; only ``reader``, of the GPU class, uses it."""

    cls: ClassSymbol
    name: str
    writer: Method
    write: ast.expr
    reader: Method
    read_line: int


def unread_on(pair: Pair, world: World) -> Iterator[Unread]:
    """What an NPU class sets for nobody, while the class it mirrors reads it.

    Only its own methods were looked at: others may read the attribute from outside.
    """
    if pair.inherits:  # what it does not read it overrides on purpose
        return
    own = methods_on(pair.npu)
    running = {id(method.node) for method in own}
    read = {name for method in own for name in _read_by(method)}
    readers = [m for m in methods_on(pair.gpu) if id(m.node) not in running and m.name != "__init__"]
    # The worker files come first in the MRO, and are where to look first.
    for method in sorted(own, key=lambda method: pair.npu.mro.index(method.owner)):
        if method.owner.project == world.own:
            for name, writes in self_use(method.node).writes.items():
                reader = next((m for m in readers if name in _read_by(m)), None)
                if name not in read and reader:
                    line = _line(reader, name)
                    yield Unread(pair.npu, name, method, writes[0].node, reader, line)


def is_read_from_outside(found: Unread, mentions: Mentions, world: World) -> bool:
    """Whether something that runs on an NPU uses the attribute of another object, or its name."""
    outside = re.compile(rf"(?<!\bself)\.{found.name}\b(?!\s*=[^=])|[\"']{found.name}[\"']")
    return _on_npu(outside, found.name, found.cls, mentions, world)


def _read_by(method: Method) -> set[str]:
    use = self_use(method.node)
    return use.reads.keys() | use.guards


def _line(method: Method, name: str) -> int:
    nodes = self_use(method.node).reads.get(name)
    return nodes[0].lineno if nodes else method.node.lineno
