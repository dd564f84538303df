"""The methods that can run on an object of a class, those reached by ``super()`` included."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.program import ClassSymbol, Method
from npu_upgrade.program.scope import Scope


def running_methods(cls: ClassSymbol, resolver: Resolver) -> Iterator[Method]:
    """The methods of the MRO that are not hidden by another one that does not call them."""
    seen: set[str] = set()
    for owner in cls.mro:
        for name in owner.methods:
            if name not in seen:
                seen.add(name)
                yield from _chain(cls, name, resolver)


def scope_of(cls: ClassSymbol, method: Method) -> Scope:
    """Where a method's names and its ``self`` are looked up when it runs on an object of ``cls``."""
    return Scope(method.owner.file, method.node, method.owner, cls)


def _chain(cls: ClassSymbol, name: str, resolver: Resolver) -> Iterator[Method]:
    for owner in cls.mro:
        if method := owner.methods.get(name):
            yield method
            body = resolver.body(method.node)
            if not any(_passes_on(call, name) for call in body.calls + body.excused_calls):
                return


def _passes_on(call: ast.Call, name: str) -> bool:
    """Whether a call in a method ``name`` goes to a parent's: by ``super()``, or by a class with ``self``."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != name:
        return False
    receiver = func.value
    if isinstance(receiver, ast.Call):
        return isinstance(receiver.func, ast.Name) and receiver.func.id == "super"
    return bool(call.args) and isinstance(call.args[0], ast.Name) and call.args[0].id == "self"
