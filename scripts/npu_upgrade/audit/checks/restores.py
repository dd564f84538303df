"""Attributes that a function borrows, keeping what they held, and does not put back with the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import string, walk
from npu_upgrade.program.program import File
from npu_upgrade.program.type_terms import own_statements

ABOUT = "attributes that a function saves and sets, and whose `finally` puts back others only"


def check(world: World) -> Iterator[Finding]:
    for file in world.files:
        for node in file.nodes:
            if isinstance(node, Function):
                yield from _left(node, file)


def _left(node: Function, file: File) -> Iterator[Finding]:
    """What a function that puts back what it saved leaves as it set it."""
    nodes = sorted(own_statements(node), key=lambda one: one.lineno)
    assigned = [one for one in nodes if isinstance(one, ast.Assign) and len(one.targets) == 1]
    saved = {
        name: one
        for one in assigned
        if isinstance(one.targets[0], ast.Name) and (name := _attribute(one.value))
    }
    ends = [stmt for one in nodes if isinstance(one, ast.Try) for stmt in one.finalbody]
    put_back = {
        unparse(one.targets[0]): unparse(one.value)
        for stmt in ends
        for one in walk(stmt)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Attribute)
    }
    if not any(unparse(one.targets[0]) == put_back.get(name) for name, one in saved.items()):
        return
    for name, one in saved.items():
        changed = any(unparse(other.targets[0]) == name for other in assigned)
        if changed and name not in put_back:
            yield Finding(
                kind="not-restored",
                owner=node.name,
                subject=name,
                what=f"{node.name} saves {name} and sets it, and its finally puts back others only",
                here=side(file, one, unparse(one)),
                there=side(file, ends[0], unparse(ends[0])),
                incident="P",
                why="what comes after it works with what was meant for one call",
                todo=f"put back {name} in the finally, too",
            )


def _attribute(value: ast.expr) -> str:
    """The attribute that a value is, asked for by ``getattr`` or not."""
    if isinstance(value, ast.Attribute):
        return unparse(value)
    asked = next(
        (one for one in walk(value) if isinstance(one, ast.Call) and unparse(one.func) == "getattr"), None
    )
    name = string(asked.args[1]) if asked and len(asked.args) > 1 else ""
    return f"{unparse(asked.args[0])}.{name}" if asked and name else ""
