"""Attributes that are read but that nothing defines, on ``self`` and on objects of known classes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from npu_upgrade.audit.attributes.alive import may_run
from npu_upgrade.audit.attributes.read_jobs import all_typed_reads
from npu_upgrade.audit.attributes.runners import nearest_common
from npu_upgrade.audit.attributes.typed_reads import TypedRead
from npu_upgrade.audit.attributes.undefined import Read, undefined_reads
from npu_upgrade.audit.finding import Finding, Side
from npu_upgrade.audit.world import World
from npu_upgrade.program.bindings import dotted
from npu_upgrade.program.members import own_members
from npu_upgrade.program.mentions import Mentions
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import self_use
from npu_upgrade.program.type_terms import Tensor
from npu_upgrade.program.types import Types
from npu_upgrade.program.version_guards import version_of

NAME = "attributes"
ABOUT = "attributes read on self or on known objects that nothing in the trees defines"


def check(world: World) -> Iterator[Finding]:
    vllm = version_of(world.triple.vllm.version)
    reads = [read for cls in world.concrete for read in undefined_reads(cls, vllm)]
    types = Types(vllm)
    typed = list(all_typed_reads(world, types))
    names = (
        {read.name for read in reads} | {read.method.name for read in reads} | {read.name for read in typed}
    )
    mentions = Mentions(world.program, names - {"[...]"})
    for read in _first_of(reads):
        if _stands(read, mentions, world):
            yield _undefined(read, [other.cls for other in reads if _same(other, read)], world)
    for read in typed:
        if read.name == "[...]" or not _is_provided(read, mentions):
            yield _misused(read) if read.misuse else _lacking(read)


def _first_of(reads: Iterable[Read]) -> list[Read]:
    """One read for each attribute and class whose method reads it."""
    found: dict[tuple[str, ClassSymbol, bool], Read] = {}
    for read in reads:
        found.setdefault((read.name, read.method.owner, read.by_super), read)
    return list(found.values())


def _same(one: Read, other: Read) -> bool:
    return (one.name, one.method.owner, one.by_super) == (other.name, other.method.owner, other.by_super)


def _stands(read: Read, mentions: Mentions, world: World) -> bool:
    """Whether nothing else provides the attribute, and the method that reads it may run."""
    provided = not read.by_super and mentions.is_set_on(read.name, read.cls)
    return not provided and may_run(read.method, read.cls, mentions, world)


def _is_provided(read: TypedRead, mentions: Mentions) -> bool:
    """Whether something sets the attribute from outside, or an heir of the class has it."""
    if isinstance(read.owner, Tensor):
        return False
    if mentions.is_set_on(read.name, read.owner, dotted(read.node.value).rpartition(".")[2]):
        return True
    return any(
        read.owner in cls.mro and read.name in own_members(cls) and cls is not read.owner
        for file in mentions.files(read.name)
        for cls in file.classes.values()
    )


def _undefined(read: Read, runners: list[ClassSymbol], world: World) -> Finding:
    owner = nearest_common(runners, world)
    kind = "no-parent" if read.by_super else "never-initialised" if read.hidden else "undefined"
    place = _side(
        read.method, read.node.lineno, f"super().{read.name}" if read.by_super else f"self.{read.name}"
    )
    audited = any(read.method.owner is cls for cls in world.classes)
    there = None if audited else place
    if read.hidden:
        line = self_use(read.hidden.node).writes[read.name][0].node.lineno
        there = _side(read.hidden, line, f"{read.hidden.qualname} sets it, and does not run")
    return Finding(
        check=NAME,
        kind=kind,
        owner=owner.name,
        subject=f"{read.method.owner.name}.{read.name}",
        what=_what(read, owner),
        here=place
        if audited
        else Side(owner.project, owner.file.path, owner.node.lineno, f"class {owner.name}"),
        there=there,
        incident="A",
        why=f"{read.method.qualname} raises AttributeError when it gets there",
        todo=_todo(read),
        like="vllm-ascend #5514" if read.hidden else "vllm-omni #5371",
    )


def _what(read: Read, owner: ClassSymbol) -> str:
    if read.by_super:
        return f"{read.method.qualname} calls super().{read.name}, which no class behind it has"
    if read.hidden:
        hider = owner.lookup(read.hidden.name)
        by = f"{hider.qualname} overrides that without calling it" if hider else "that never runs"
        return f"{read.method.qualname} reads self.{read.name}, which only {read.hidden.qualname} sets; {by}"
    return f"{read.method.qualname} reads self.{read.name}, which no class of {owner.name} defines"


def _todo(read: Read) -> str:
    if read.hidden:
        return f"set {read.name} where {read.hidden.qualname} would have, or call it"
    return f"find what replaced {read.name}, or drop its use"


def _lacking(read: TypedRead) -> Finding:
    frame = read.frame
    text = f"{frame.qualname} reads {read.name}"
    place = Side(frame.file.project, frame.file.path, read.node.lineno, text)
    source = read.owner.file if isinstance(read.owner, ClassSymbol) else None
    line = read.owner.node.lineno if isinstance(read.owner, ClassSymbol) else 0
    has = "is not indexed" if read.name == "[...]" else f"has no {read.name}"
    return Finding(
        check=NAME,
        kind="missing-attribute" if read.name != "[...]" else "not-indexable",
        owner=frame.qualname,
        subject=f"{read.held or read.owner.name}.{read.name}",
        what=f"{frame.qualname} uses {_text(read)} where {read.owner.name} {has}",
        here=place,
        there=Side(source.project, source.path, line, f"class {read.owner.name}") if source else None,
        incident="A",
        why="the expression raises when it is reached",
        todo=f"see what {read.owner.name} has now in its place",
        like="vllm-omni #2823" if isinstance(read.owner, Tensor) else "vllm-omni #6134",
    )


def _misused(read: TypedRead) -> Finding:
    called = read.misuse == "called"
    lacking = _lacking(read)
    verb, is_now = ("calls", "is a value") if called else ("tests", "is a method")
    return replace(
        lacking,
        kind="called-value" if called else "tested-method",
        what=f"{read.frame.qualname} {verb} {_text(read)}, which {is_now} of {read.owner.name}",
        why="calling the value raises TypeError" if called else "a method is always true, and equals nothing",
        todo=f"use {read.name} without calling it" if called else f"call {read.name}",
        like="",
    )


def _text(read: TypedRead) -> str:
    text = ast.unparse(read.node)
    return text if len(text) <= 80 else text[:77] + "..."


def _side(method: Method, line: int, text: str) -> Side:
    return Side(method.owner.project, method.owner.file.path, line, text)
