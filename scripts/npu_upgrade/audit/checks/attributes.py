"""Attributes that are read but that nothing defines, on ``self`` and on objects of known classes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import functions_of
from npu_upgrade.audit.parity.gaps import missing_bases
from npu_upgrade.audit.typed_reads import TypedRead, all_typed_reads
from npu_upgrade.audit.world import Pair, World, may_run
from npu_upgrade.code.walk import children, dotted, walk
from npu_upgrade.ground.tables import cut, shortened
from npu_upgrade.program.members import (
    is_module,
    named_by_classes,
    own_members,
    provided_by_bases,
    registered,
)
from npu_upgrade.program.mentions import Mention, Mentions
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.scope import Scope
from npu_upgrade.program.self_use import SelfUse, methods_on, self_use
from npu_upgrade.program.type_terms import Tensor
from npu_upgrade.program.types import Types

_WORD = re.compile(r"\w+")
_FEW = 2  # mentions of a name: what a base outside the trees brings is mostly asked for more often
ABOUT = "attributes read on self or on known objects that nothing in the trees defines"


def check(world: World) -> Iterator[Finding]:
    reads = [read for cls in world.last_classes for read in undefined_reads(cls)]
    types = Types()
    typed = list(all_typed_reads(world, types))
    alone = list(_said_once(world))
    mentions = Mentions(world.program)
    standing = [read for read in _first_of(reads) if _stands(read, mentions, world)]
    of_base = list(_of_lacking_bases(standing, world))
    yield from (_without_base(*one) for one in of_base)
    told = {id(read) for _, _, group in of_base for read in group}
    for read in standing:
        if id(read) not in told:
            yield _undefined(read, [other.cls for other in reads if _same(other, read)], world)
    known = {(read.name, id(read.method.node)) for read in reads}
    for scope, node in alone:
        others = (m for m in mentions.of(node.attr) if not _is_same_read(m, scope, node.attr))
        if not any(others) and (node.attr, id(scope.node)) not in known and _runs(scope, mentions, world):
            yield _nowhere(scope, node)
    for read in typed:
        if read.name == "[...]" or not _is_provided(read, mentions):
            yield _misused(read) if read.misuse else _lacking(read)


def _said_once(world: World) -> Iterator[tuple[Scope, ast.Attribute]]:
    """The reads of ``self`` by a name that its file has nowhere else, less those that may well fail.

    Where the bases are not known, this is all that tells a wrong name. What a function of no class works
    on may be of anywhere, so that a name it has twice is meant; so is one that an heir of a base outside the
    trees reads more often.
    """
    for file in world.files:
        words = Counter(_WORD.findall(file.source))
        uses = [node for node in file.nodes if isinstance(node, ast.Attribute)]
        told = {node.attr for node in uses if not isinstance(node.ctx, ast.Load)}
        reads = Counter(node.attr for node in uses if dotted(node.value) == "self")
        for scope in functions_of(file):
            for node in _untried(scope.node):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Load)
                    and dotted(node) == f"self.{node.attr}"
                    and words[node.attr] == (reads[node.attr] if scope.owner else 1)
                    and (words[node.attr] <= _FEW or _is_known(scope.owner))
                    and node.attr not in told
                    and not _is_special(node.attr)
                ):
                    told.add(node.attr)
                    yield scope, node


def _is_known(cls: ClassSymbol | None) -> bool:
    return cls is not None and (provided_by_bases(cls) is not None or is_module(cls))


def _is_same_read(mention: Mention, scope: Scope, name: str) -> bool:
    """Whether a line only reads the name as its file does, or has it in a comment."""
    code = mention.text.partition("#")[0]
    own = mention.path == scope.file.path and f"self.{name}" in code
    return own or not re.search(rf"\b{name}\b", code)


def _untried(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, less other classes in it and what is tried for an AttributeError."""
    for child in children(node):
        if isinstance(child, ast.ClassDef):
            continue
        if isinstance(child, ast.Try) and any("AttributeError" in _caught(one) for one in child.handlers):
            continue
        yield child
        yield from _untried(child)


def _runs(scope: Scope, mentions: Mentions, world: World) -> bool:
    method = (
        scope.owner.methods.get(scope.node.name)
        if scope.owner and not isinstance(scope.node, ast.Module)
        else None
    )
    return method is None or may_run(method, method.owner, mentions, world)


def _caught(handler: ast.ExceptHandler) -> str:
    return ast.unparse(handler.type) if handler.type else ""


def _nowhere(scope: Scope, node: ast.Attribute) -> Finding:
    owner = scope.owner.name if scope.owner else scope.name
    return Finding(
        kind="undefined",
        owner=owner,
        subject=f"{owner}.{node.attr}",
        what=f"{scope.name} reads self.{node.attr}, a name that stands nowhere else in the trees",
        here=side(scope.file, node, f"self.{node.attr}"),
        there=None,
        incident="A",
        why=f"{scope.name} raises AttributeError when it gets there",
        todo=f"find what {node.attr} is called, or drop its use",
        like="vllm-omni #5371",
    )


def _first_of(reads: Iterable[Read]) -> list[Read]:
    """One read for each attribute and class whose method reads it."""
    found: dict[tuple[str, ClassSymbol, bool], Read] = {}
    for read in reads:
        found.setdefault((read.name, read.method.owner, read.by_super), read)
    return list(found.values())


def _of_lacking_bases(reads: Iterable[Read], world: World) -> Iterator[tuple[Pair, ClassSymbol, list[Read]]]:
    """The reads that a base of the GPU counterpart would serve, which the NPU class lacks: one cause."""
    reads = [read for read in reads if not read.by_super and not read.hidden]
    for pair in world.pairs if world.of_omni else []:
        mine = [read for read in reads if read.cls is pair.npu]
        for base in missing_bases(pair, world) if mine else []:
            if group := [read for read in mine if read.name in own_members(base)]:
                mine = [read for read in mine if read not in group]
                yield pair, base, group


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
        cls is not read.owner and read.name in own_members(cls) and read.owner in cls.mro
        for cls in mentions.makers(read.name)
    )


def _undefined(read: Read, runners: list[ClassSymbol], world: World) -> Finding:
    owner = world.nearest_common(runners)
    kind = "no-parent" if read.by_super else "never-initialised" if read.hidden else "undefined"
    place = side(
        read.method, read.node.lineno, f"super().{read.name}" if read.by_super else f"self.{read.name}"
    )
    audited = any(read.method.owner is cls for cls in world.side.classes)
    there = None if audited else place
    if read.hidden:
        line = self_use(read.hidden.node).writes[read.name][0].node.lineno
        there = side(read.hidden, line, f"{read.hidden.qualname} sets it, and does not run")
    return Finding(
        kind=kind,
        owner=owner.name,
        subject=f"{read.method.owner.name}.{read.name}",
        what=_what(read, owner),
        here=place if audited else side(owner),
        there=there,
        incident="A",
        why=f"{read.method.qualname} raises AttributeError when it gets there",
        todo=_todo(read),
        like="vllm-ascend #5514" if read.hidden else "vllm-omni #5371",
    )


def _without_base(pair: Pair, base: ClassSymbol, reads: list[Read]) -> Finding:
    names = sorted({read.name for read in reads})
    shown = shortened((f"self.{name}" for name in names), 3)
    first = reads[0]
    return Finding(
        kind="undefined",
        owner=pair.npu.name,
        subject=f"{base.name}.{'/'.join(names)}",
        what=f"{pair.npu.name} reads {shown}, which {base.name} defines, a base of {pair.gpu.name} alone",
        here=side(pair.npu),
        there=side(first.method, first.node.lineno, f"self.{first.name}"),
        incident="A",
        why=f"{first.method.qualname} raises AttributeError when it gets there",
        todo=f"derive {pair.npu.name} from {base.name} as well, and set it up as {pair.gpu.name} does",
        like="vllm-omni #5234",
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
    has = "is not indexed" if read.name == "[...]" else f"has no {read.name}"
    return Finding(
        kind="missing-attribute" if read.name != "[...]" else "not-indexable",
        owner=frame.name,
        subject=f"{read.held or read.owner.name}.{read.name}",
        what=f"{frame.name} uses {cut(ast.unparse(read.node), 80)} where {read.owner.name} {has}",
        here=side(frame.file, read.node, f"{frame.name} reads {read.name}"),
        there=side(read.owner) if isinstance(read.owner, ClassSymbol) else None,
        incident="A",
        why="the expression raises when it is reached",
        todo=f"see what {read.owner.name} has now in its place",
        like="vllm-omni #2823" if isinstance(read.owner, Tensor) else "vllm-omni #6134",
    )


def _misused(read: TypedRead) -> Finding:
    called = read.misuse == "called"
    lacking = _lacking(read)
    verb, is_now = ("calls", "is a value") if called else ("tests", "is a method")
    text = cut(ast.unparse(read.node), 80)
    return replace(
        lacking,
        kind="called-value" if called else "tested-method",
        what=f"{read.frame.name} {verb} {text}, which {is_now} of {read.owner.name}",
        why="calling the value raises TypeError" if called else "a method is always true, and equals nothing",
        todo=f"use {read.name} without calling it" if called else f"call {read.name}",
        like="",
    )


_SETTERS = {"__init__", "__post_init__", "__new__"}


@dataclass(frozen=True)
class Read:
    """A read of ``self.name`` (or ``super().name``) in a method, while it runs on an object of ``cls``.

    ``hidden`` is a method that would set the attribute, but that another one overrides
    without calling it; None when nothing sets it at all.
    """

    cls: ClassSymbol
    method: Method
    name: str
    node: ast.expr
    by_super: bool = False
    hidden: Method | None = None


def undefined_reads(cls: ClassSymbol) -> Iterator[Read]:
    """The reads on objects of a class that find nothing, as far as its own MRO tells."""
    methods = methods_on(cls)
    uses = [(method, self_use(method.node)) for method in methods]
    if not _is_judged(cls) or any(use.open and method.name in _SETTERS for method, use in uses):
        return
    defined = named_by_classes(cls) | {
        name for method, use in uses for name in use.writes if not _only_where_it_is_set(name, method, use)
    }
    defined |= registered(cls) if is_module(cls) else set()
    guarded = {name for _, use in uses for name in use.guards}
    hidden = _hidden_writers(cls, methods)
    for method, use in uses:
        for name, nodes in use.reads.items():
            if name not in defined and not _is_special(name) and name not in guarded:
                yield Read(cls, method, name, nodes[0], hidden=hidden.get(name))
        yield from _beyond(cls, method, use.supers)


def _only_where_it_is_set(name: str, method: Method, use: SelfUse) -> bool:
    """Whether a method sets the attribute only below a test of it, which fails where nothing has set it."""
    if name not in use.reads:
        return False
    below = {
        id(inner)
        for node in walk(method.node)
        if isinstance(node, ast.If) and any(dotted(one) == f"self.{name}" for one in walk(node.test))
        for stmt in node.body
        for inner in walk(stmt)
    }
    return all(id(write.node) in below for write in use.writes[name])


def _beyond(cls: ClassSymbol, method: Method, supers: dict[str, ast.expr]) -> Iterator[Read]:
    """What ``super()`` is asked for and no class after the method's own has."""
    place = cls.mro.index(method.owner) + 1
    rest = cls.mro[place:]
    guards = self_use(method.node).guards
    for name, node in supers.items():
        has = any(name in after.methods or name in after.fields for after in rest)
        if not has and not _is_special(name) and name not in guards:
            yield Read(cls, method, name, node, by_super=True)


def _hidden_writers(cls: ClassSymbol, effective: Iterable[Method]) -> dict[str, Method]:
    """The attributes that only methods set which never run, each with one of these."""
    running = {id(method.node) for method in effective}
    found: dict[str, Method] = {}
    for owner in cls.mro:
        for method in owner.methods.values():
            if id(method.node) not in running:
                for name in self_use(method.node).writes:
                    found.setdefault(name, method)
    return found


def _is_judged(cls: ClassSymbol) -> bool:
    """Whether all bases are known, and no method makes attributes on demand."""
    special = {"__getattr__", "__getattribute__"}
    return _is_known(cls) and not any(special & owner.methods.keys() for owner in cls.mro)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
