"""Whether the rest of the tree agrees with runner files that have hunks in them, by the audit's own checks.

A hunk that changes what a method takes, gives or is, or that drops an attribute, may leave its callers, its
overrides and its readers as they are. That shows on the whole tree only.
"""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from npu_upgrade.audit.checks.signatures import nature
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.run import KeptFindings, in_order, run_checks
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.code.module import Module, Unit, parse_module
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import signature_change
from npu_upgrade.code.statements import split_statements
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.held import held
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.safe import attributes_of
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.scope import Scope
from npu_upgrade.program.self_use import methods_on
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.tree import overlay

_CHECKS = ("arity", "attributes", "calls", "signatures")
# A hint that says less breaks nothing.
_HINTS = {"return-type", "parameter-type"}
_HOPS = 2
"""So many methods a result goes through until somebody takes it apart."""


class Agreement:
    """What breaks in the tree of an NPU side when its runner files change."""

    def __init__(self, npu: NpuSide) -> None:
        self._npu = npu
        self._found: dict[tuple[tuple[str, str], ...], list[Finding]] = {}

    def broken(self, texts: Mapping[str, str]) -> list[Finding]:
        """What the audit finds with these runner files (path -> text), less what it finds as they are."""
        changed = {path: text for path, text in texts.items() if text != self._npu.texts[path]}
        key = tuple(sorted(changed.items()))
        if key not in self._found:
            self._found[key] = self._look(changed) if changed else []
        return self._found[key]

    def _look(self, changed: Mapping[str, str]) -> list[Finding]:
        name = f"port-{sha256(repr(sorted(changed.items())) + code_digest('port'))[:16]}"
        found = self._kept.once(name, functools.partial(self._findings, changed))
        counted = [one for one in found if one.incident and one.kind not in _HINTS]
        words = self._words(changed) if counted else None
        known = {one.key for check in {one.check for one in counted} for one in self._known(check, words)}
        return [one for one in counted if one.key not in known]

    def _findings(self, changed: Mapping[str, str]) -> list[Finding]:
        tree = overlay(self._npu.tree, dict(changed))
        triple = Triple(tree, self._npu.ascend, self._npu.vllm)
        world = World(triple, self._before, self._npu.beneath, self._words(changed))
        return in_order([*run_checks(world, _CHECKS), *_used_as_before(world, changed)])

    @cached_property
    def _before(self) -> World:
        return World(Triple(self._npu.tree, self._npu.ascend, self._npu.vllm), None, self._npu.beneath)

    @cached_property
    def _kept(self) -> KeptFindings:
        return KeptFindings(self._before)

    def _known(self, check: str, words: re.Pattern[str] | None) -> list[Finding]:
        """What a check finds with the runner files as they are, where the same is looked at."""
        world = self._looking_at(words)
        name = f"port-{check}-{sha256(words.pattern)[:16] if words else 'all'}"
        return self._kept.once(name, functools.partial(run_checks, world, [check])) if check else []

    def _looking_at(self, words: re.Pattern[str] | None) -> World:
        """The tree as it is, of which only what has the words is looked at."""
        world = copy.copy(self._before)
        world.words = words
        return world

    def _words(self, changed: Mapping[str, str]) -> re.Pattern[str] | None:
        """The names by which other code can tell that these files changed: of functions, of attributes that
        are set, and of what a module has; None where a class has other bases, which any method may tell.
        """
        words: set[str] = set()
        for path, text in changed.items():
            before, after = (parse_module(one) for one in (self._npu.texts[path], text))
            if _bases(before) != _bases(after):
                return None
            for name in before.units.keys() | after.units.keys():
                old, new = (_keys(module.units.get(name)) for module in (before, after))
                if old != new:
                    words.add(name.rpartition(".")[2].partition("@")[0])
                    words.update(*(attributes_of(key, ast.Store) for key in old ^ new))
            words |= before.top_level_names() ^ after.top_level_names()
        for _ in range(_HOPS if words else 0):
            words |= self._handing_on(_pattern(words))
        return _pattern(words) if words else None

    def _handing_on(self, words: re.Pattern[str]) -> set[str]:
        """The methods that name one of these, and give something that may come of it."""
        world = self._looking_at(words)
        methods = {method for cls in world.classes for method in methods_on(cls)}
        naming = (one for one in methods if world.concerns(Scope(one.owner.file, one.node)))
        return {
            one.name for one in naming if any(isinstance(n, ast.Return) and n.value for n in walk(one.node))
        }


def _pattern(words: set[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words)))})\b")


def _keys(unit: Unit | None) -> frozenset[str]:
    return frozenset(one.key for one in split_statements(unit.source)) if unit else frozenset()


def _bases(module: Module) -> list[str]:
    classes = (node for node in module.tree.body if isinstance(node, ast.ClassDef))
    return [f"{node.name}({', '.join(map(unparse, node.bases))})" for node in classes]


@held
def agreement_of(npu: NpuSide) -> Agreement:
    """The one of an NPU side."""
    return Agreement(npu)


def _used_as_before(world: World, changed: Iterable[str]) -> Iterator[Finding]:
    """Methods that became properties, coroutines or generators, or are no more, and are used as before."""
    assert world.old
    for file in filter(None, map(world.program.file, changed)):
        for cls in file.classes.values():
            old = world.old.program.find_class(file.path, cls.name)
            for name, method in cls.methods.items():
                was = old.methods.get(name) if old else None
                if was and _nature(was, world.old) != _nature(method, world):
                    yield from _stale_uses(was, method, world)


def _nature(method: Method, world: World) -> frozenset[str]:
    return nature(method, resolver_of(world.program))


def _stale_uses(was: Method, now: Method, world: World) -> Iterator[Finding]:
    assert world.old
    heirs = [cls for cls in world.side.classes if now.owner in cls.mro]
    for cls in heirs:
        for user in methods_on(cls):
            old = world.old.program.find_class(user.owner.file.path, user.owner.name)
            before = old.methods.get(user.name) if old else None
            known = {unparse(node) for node in _uses(before, now.name)} if before else set()
            for node in _uses(user, now.name):
                if unparse(node) in known:
                    yield _stale(was, now, user, node, cls)


def _uses(user: Method, name: str) -> Iterator[ast.AST]:
    """The reads of a name of the object or of ``super()``, with the call and the ``await`` around each."""
    outer = {id(child): node for node in walk(user.node) for child in ast.iter_child_nodes(node)}
    for node in walk(user.node):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
            top: ast.AST = node
            called = outer.get(id(top))
            if isinstance(called, ast.Call) and called.func is top:
                top = called
            if isinstance(outer.get(id(top)), ast.Await):
                top = outer[id(top)]
            if unparse(node.value) in ("self", "cls", "super()"):
                yield top


def _stale(was: Method, now: Method, user: Method, node: ast.AST, cls: ClassSymbol) -> Finding:
    change = signature_change(was.node, now.node)
    return Finding(
        kind="used-as-before",
        owner=user.qualname,
        subject=f"{now.name} on {cls.name}",
        what=f"{user.qualname} uses {unparse(node)} as before, of another kind now: {change}",
        here=side(user, node, unparse(node)),
        there=side(now, text=change),
        incident="S",
        why="What the use gets is another kind of thing.",
        todo="Change the uses with the method.",
    )


def places(found: Finding, texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """The units, each by its file and qualified name, in which the two sides of a finding stand."""
    sides = [one for one in (found.here, found.there) if one and one.path in texts]
    return {
        (one.path, name)
        for one in sides
        for name, unit in parse_module(texts[one.path]).units.items()
        if unit.start < one.line <= unit.end
    }
