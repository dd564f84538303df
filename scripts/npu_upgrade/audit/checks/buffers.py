"""Attributes used as a buffer with a host and a device side where upstream has a tensor, and the reverse."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import methods_on

ABOUT = "attributes used as a buffer with two sides where upstream has a tensor, and the reverse"

_SIDES = {"gpu", "np"}  # a tensor has ``cpu``, too
_ACTS = {"copy_to_gpu", "copy_to_cpu"}
_FEWEST = 3  # uses by upstream, all alike


def check(world: World) -> Iterator[Finding]:
    audited = {id(file) for file in world.files}
    told: set[tuple[int, str]] = set()
    for cls in world.concrete:
        methods = methods_on(cls)
        set_here = {name for owner in cls.mro if id(owner.file) in audited for name in owner.assigned}
        upstream: dict[str, Counter[bool]] = defaultdict(Counter)
        for method in methods:
            if id(method.owner.file) not in audited:
                for name, as_buffer, _ in _uses(method):
                    upstream[name][as_buffer] += 1
        for method in (m for m in methods if id(m.owner.file) in audited):
            for name, as_buffer, node in _uses(method):
                theirs = upstream[name]
                alone = theirs[not as_buffer] >= _FEWEST and not theirs[as_buffer]
                if alone and name not in set_here and (id(method.node), name) not in told:
                    told.add((id(method.node), name))
                    yield _finding(cls, method, name, node, as_buffer=as_buffer)


def _uses(method: Method) -> Iterator[tuple[str, bool, ast.expr]]:
    """The attributes of ``self`` that are used by a side, or sliced themselves, with where."""
    places = method.node.args.posonlyargs + method.node.args.args
    first = places[0].arg if places else ""
    for node in walk(method.node):
        if isinstance(node, ast.Attribute) and node.attr in _SIDES | _ACTS:
            held, as_buffer = node.value, True
        elif isinstance(node, ast.Subscript) and isinstance(_index(node), ast.Slice):
            held, as_buffer = node.value, False
        else:
            continue
        if isinstance(held, ast.Attribute) and isinstance(held.value, ast.Name) and held.value.id == first:
            yield held.attr, as_buffer, node


def _index(node: ast.Subscript) -> ast.expr:
    return node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice


def _finding(cls: ClassSymbol, method: Method, name: str, node: ast.expr, *, as_buffer: bool) -> Finding:
    words = ("a buffer", "a tensor") if as_buffer else ("a tensor", "a buffer with two sides")
    return Finding(
        kind="no-buffer" if as_buffer else "buffer",
        owner=method.owner.name,
        subject=f"{name} in {method.name}",
        what=f"{method.qualname} uses self.{name} as {words[0]}, and upstream everywhere as {words[1]}",
        here=side(method, node.lineno, ast.unparse(node)),
        there=side(cls),
        incident="A",
        why="the expression raises when it is reached",
        todo=f"use self.{name} as upstream does",
        like="vllm-omni #2823",
    )
