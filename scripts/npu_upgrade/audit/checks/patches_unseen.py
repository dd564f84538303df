"""Names put on a module after those who use them have taken them: other files, or the module itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from npu_upgrade.audit.checks.imports import FileImports
from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.world import World
from npu_upgrade.code.definitions import absolute
from npu_upgrade.code.names import imports_in
from npu_upgrade.code.portable import unparse
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import string, walk
from npu_upgrade.program.places import files_with, patch_target
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol

ABOUT = "names put on a module that its users, or the module itself, have taken before"


def check(world: World) -> Iterator[Finding]:
    for file in world.files if world.of_omni else ():
        placed = _placed(file, world)
        for (module, name), node in placed.items():
            home = world.program.module(module)
            if home is None or home is file or not _loads(home, name):
                continue
            left = [user for user in _users(module, name, file, world) if (user.module, name) not in placed]
            known = [user for user in left if _imports(file, user)]
            if known and name not in home.imports:
                yield _finding(file, node, module, name, known[0])
            elif not left and _only(name, placed) and not _is_read_later(home, name, file, world):
                yield _late(file, node, home, name)


def _loads(home: File, name: str) -> bool:
    """Whether a module has a class or function of that name, its own or one that it imports."""
    symbol = home.program.lookup(home.module, name)
    return isinstance(symbol, (ClassSymbol, FunctionSymbol))


def _only(name: str, placed: Iterable[tuple[str, str]]) -> bool:
    """Whether a name is set on one module alone: where it is set on several, one of them is read."""
    return sum(other == name for _, other in placed) == 1


def _is_read_later(home: File, name: str, own: File, world: World) -> bool:
    """Whether the module's functions read the name, or other files than the one that sets it may."""
    inner = (node for function in home.nodes if isinstance(function, Function) for node in walk(function))
    if any(isinstance(node, ast.Name) and node.id == name for node in inner):
        return True
    found = (path for package in world.program.trees for path, _ in files_with(world.program, package, name))
    files = (world.program.file(path) for path in found if path not in (home.path, own.path))
    return any(_asks_for(file, home.module, name) for file in files if file)


def _asks_for(file: File, module: str, name: str) -> bool:
    """Whether a file imports the name from the module, reads it of the module, or has it in a string."""
    last = module.rpartition(".")[2]
    loads = re.search(rf"^\s*(?:from|import)\b.*\b{last}\b", file.source, re.MULTILINE)
    knows = bool(loads) or module in file.source
    return last in file.source and any(
        (knows and isinstance(node, ast.Attribute) and node.attr == name)
        or (knows and isinstance(node, ast.ImportFrom) and _takes(node, last, name))
        or string(node) == name  # a registry has the module's name beside it
        or string(node).endswith(f"{last}.{name}")
        for node in file.nodes
    )


def _takes(node: ast.ImportFrom, module: str, name: str) -> bool:
    named = any(alias.name in (name, "*") for alias in node.names)
    return named and (node.module or module).rpartition(".")[2] == module


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


def _late(file: File, node: ast.expr, home: File, name: str) -> Finding:
    return Finding(
        kind="late",
        owner=f"{home.module.rpartition('.')[2]}.{name}",
        subject=f"{name} of {home.module}",
        what=f"nothing reads {name} of {home.module} after that is loaded, and it has used it by then",
        here=side(file, node, unparse(node)),
        there=side(home, 0, name),
        incident="A",
        why="the bases and values of a module are taken as it is loaded; what is set later reaches nobody",
        todo=f"set what {home.module} made of {name}, or {name} before the module is imported",
    )


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
