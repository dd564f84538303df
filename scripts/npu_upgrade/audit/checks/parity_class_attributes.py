"""Class attributes that a GPU class declares, code beyond the class asks for, and its NPU mirror lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.parity.gaps import PORT
from npu_upgrade.audit.world import Pair, World
from npu_upgrade.code.walk import dotted, string
from npu_upgrade.program.program import ClassSymbol, File

ABOUT = "class attributes of the GPU side that other code asks for and the NPU class lacks"

_ASKING = {"getattr", "hasattr"}


def check(world: World) -> Iterator[Finding]:
    for pair in world.pairs if world.of_omni else ():
        have = {name for cls in pair.npu.mro for name in (*cls.methods, *cls.fields, *cls.assigned)}
        for cls in pair.gpu.mro:
            for name, node in cls.fields.items() if world.side.is_own(cls) else ():
                lacking = name not in have and not name.startswith("_") and _has_value(node)
                if lacking and (asked := _asked(world, name)):
                    yield _finding(pair, cls, name, *asked)


def _has_value(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) or (isinstance(node, ast.AnnAssign) and node.value is not None)


def _asked(world: World, name: str) -> tuple[File, int] | None:
    """Where code of the downstream asks another object for the name with ``getattr`` or ``hasattr``."""
    for path in world.program.paths(world.side.project.package):
        file = world.program.file(path) if name in world.program.text(path) else None
        for node in file.nodes if file else ():
            asks = isinstance(node, ast.Call) and len(node.args) > 1 and dotted(node.func) in _ASKING
            if file and asks and string(node.args[1]) == name and dotted(node.args[0]) not in ("self", "cls"):
                return file, node.lineno
    return None


def _finding(pair: Pair, cls: ClassSymbol, name: str, asking: File, line: int) -> Finding:
    npu = pair.npu
    return Finding(
        kind="missing attribute",
        owner=npu.name,
        subject=name,
        what=f"{npu.name} declares no {name}, which {cls.name} has and {asking.path}:{line} asks for",
        here=side(npu),
        there=side(cls, cls.fields[name], name),
        incident="P",
        why="whoever asks the class takes it for one that cannot do this",
        todo=PORT,
    )
