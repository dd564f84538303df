"""Attributes that the methods of a class read on ``self`` and nothing in its MRO provides."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.version import Version

from npu_upgrade.program.members import named_by_classes, provided_by_bases
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.self_use import methods_on, self_use

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


def undefined_reads(cls: ClassSymbol, vllm: Version | None) -> Iterator[Read]:
    """The reads on objects of a class that find nothing, as far as its own MRO tells."""
    methods = methods_on(cls, vllm)
    uses = [(method, self_use(method.node, vllm)) for method in methods]
    if not _is_judged(cls) or any(use.open and method.name in _SETTERS for method, use in uses):
        return
    defined = named_by_classes(cls) | {name for _, use in uses for name in use.writes}
    guarded = {name for _, use in uses for name in use.guards}
    hidden = _hidden_writers(cls, methods, vllm)
    for method, use in uses:
        for name, nodes in use.reads.items():
            if name not in defined and not _is_special(name) and name not in guarded:
                yield Read(cls, method, name, nodes[0], hidden=hidden.get(name))
        yield from _beyond(cls, method, use.supers, vllm)


def _beyond(
    cls: ClassSymbol, method: Method, supers: dict[str, ast.expr], vllm: Version | None
) -> Iterator[Read]:
    """What ``super()`` is asked for and no class after the method's own has."""
    place = cls.mro.index(method.owner) + 1
    rest = cls.mro[place:]
    guards = self_use(method.node, vllm).guards
    for name, node in supers.items():
        has = any(name in after.methods or name in after.fields for after in rest)
        if not has and not _is_special(name) and name not in guards:
            yield Read(cls, method, name, node, by_super=True)


def _hidden_writers(cls: ClassSymbol, effective: Iterable[Method], vllm: Version | None) -> dict[str, Method]:
    """The attributes that only methods set which never run, each with one of these."""
    running = {id(method.node) for method in effective}
    found: dict[str, Method] = {}
    for owner in cls.mro:
        for method in owner.methods.values():
            if id(method.node) not in running:
                for name in self_use(method.node, vllm).writes:
                    found.setdefault(name, method)
    return found


def _is_judged(cls: ClassSymbol) -> bool:
    """Whether all bases are known, and no method makes attributes on demand."""
    special = {"__getattr__", "__getattribute__"}
    return provided_by_bases(cls) is not None and not any(special & owner.methods.keys() for owner in cls.mro)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
