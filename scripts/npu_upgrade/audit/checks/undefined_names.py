"""Names that code reads and nothing binds: what is left of a parameter, a local or an import that went."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import device_files, functions_of
from npu_upgrade.audit.world import World
from npu_upgrade.code.names import ALWAYS_DEFINED, names_of
from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import File

ABOUT = "names that a file reads and nothing in it binds"


def check(world: World) -> Iterator[Finding]:
    for file in (*world.files, *device_files(world)):
        if "*" in file.imports or "globals()" in file.source:
            continue
        names = names_of(file.source)
        for name in sorted(names.run_time - names.bound - ALWAYS_DEFINED):
            yield _finding(file, name)


def _finding(file: File, name: str) -> Finding:
    scopes = [scope for scope in functions_of(file) if any(_reads(node, name) for node in walk(scope.node))]
    node = next(node for node in file.nodes if _reads(node, name))
    owner = scopes[0].name if scopes else ""
    return Finding(
        kind="undefined-name",
        owner=owner,
        subject=name,
        what=f"{owner or file.path} reads {name}, which nothing in the file binds",
        here=side(file, node, name),
        there=None,
        incident="A",
        why="the statement raises NameError when it is reached",
        todo=f"take {name} as a parameter, import it, or see what it is called now",
    )


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
