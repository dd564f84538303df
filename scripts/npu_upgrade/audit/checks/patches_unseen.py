"""Names put on a module after those who use them have taken them from there by their own imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.audit.checks.imports import FileImports
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.definitions import absolute
from npu_upgrade.code.names import imports_in
from npu_upgrade.code.portable import unparse
from npu_upgrade.program.places import files_with, patch_target
from npu_upgrade.program.program import File

ABOUT = "names put on a module that its users have imported by name before"


def check(world: World) -> Iterator[Finding]:
    for file in world.files if world.of_omni else ():
        placed = _placed(file, world)
        for (module, name), node in placed.items():
            home = world.program.module(module)
            if home is None or not (name in home.classes or name in home.functions) or home is file:
                continue
            left = [user for user in _users(module, name, file, world) if (user.module, name) not in placed]
            known = [user for user in left if _imports(file, user)]
            if known:
                yield _finding(file, node, module, name, known[0])


def _placed(file: File, world: World) -> dict[tuple[str, str], ast.expr]:
    """What a file sets on modules of the trees."""
    reader = FileImports(file, world)
    found: dict[tuple[str, str], ast.expr] = {}
    for node in (node for node in file.nodes if isinstance(node, ast.expr)):
        if target := patch_target(node):
            for owner in filter(world.program.module, reader.owners(*target)):
                found[owner, target[1]] = node
    return found


def _users(module: str, name: str, own: File, world: World) -> Iterator[File]:
    """The files that import the name from the module as they are loaded."""
    last = module.rpartition(".")[2]
    for package in world.program.trees:
        for path, text in files_with(world.program, package, name):
            file = world.program.file(path) if last in text and path != own.path else None
            items = [absolute(item, path) for many in file.imports.values() for item in many] if file else []
            if file and any(item.module == module and item.name == name for item in items):
                yield file


def _imports(file: File, user: File) -> bool:
    """Whether the file that sets the name imports a user of it, which is loaded by then."""
    nodes = (node for node in file.nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    items = (absolute(item, file.path) for node in nodes for item in imports_in(node))
    return any(user.module in (item.module, f"{item.module}.{item.name}") for item in items)


def _finding(file: File, node: ast.expr, module: str, name: str, user: File) -> Finding:
    return Finding(
        kind="unseen",
        owner=f"{module.rpartition('.')[2]}.{name}",
        subject=f"{name} in {user.module}",
        what=f"{name} is put on {module}, from which {user.module} has imported it by name",
        here=side(file, node, unparse(node)),
        there=side(user, 0, name),
        incident="A",
        why="the importing module keeps the name it has, and goes on with what was to be replaced",
        todo=f"set {name} on {user.module} too",
    )
