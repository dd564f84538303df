"""Whether the rest of the tree agrees with runner files that have hunks in them, by the audit's own checks.

A hunk that changes what a method takes, gives or is, or that drops an attribute, may leave its callers, its
overrides and its readers as they are. That shows on the whole tree only.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from npu_upgrade.audit.checks.signatures import nature
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.run import KeptFindings, in_order, run_checks
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import signature_change
from npu_upgrade.code.walk import walk
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.held import held
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.program.callees import resolver_of
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import methods_on
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.tree import overlay

_CHECKS = ("arity", "attributes", "calls", "signatures")
# A hint that says less breaks nothing.
_HINTS = {"return-type", "parameter-type"}


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
        tree = overlay(self._npu.tree, dict(changed))
        world = World(Triple(tree, self._npu.ascend, self._npu.vllm), self._before, self._npu.beneath)
        name = f"port-{sha256(repr(sorted(changed.items())) + code_digest('port'))[:16]}"
        found = self._kept.once(name, functools.partial(_findings, world, changed))
        counted = [one for one in found if one.incident and one.kind not in _HINTS]
        known = {one.key for check in {one.check for one in counted} for one in self._known(check)}
        return [one for one in counted if one.key not in known]

    @cached_property
    def _before(self) -> World:
        return World(Triple(self._npu.tree, self._npu.ascend, self._npu.vllm), None, self._npu.beneath)

    @cached_property
    def _kept(self) -> KeptFindings:
        return KeptFindings(self._before)

    def _known(self, check: str) -> list[Finding]:
        """What a check finds with the runner files as they are."""
        find = functools.partial(run_checks, self._before, [check])
        return self._kept.once(f"port-{check}", find) if check else []


@held
def agreement_of(npu: NpuSide) -> Agreement:
    """The one of an NPU side."""
    return Agreement(npu)


def _findings(world: World, changed: Iterable[str]) -> list[Finding]:
    return in_order([*run_checks(world, _CHECKS), *_used_as_before(world, changed)])


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
