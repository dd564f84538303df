"""Where the names of a package stand: who defines them, who imports them, where a lost one is now."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator

from npu_upgrade.code.definitions import absolute, every_import, importable, module_of, shared_parts
from npu_upgrade.code.module import parse_module
from npu_upgrade.code.names import Import, imports_of
from npu_upgrade.code.walk import last_name, string
from npu_upgrade.ground.tables import shortened
from npu_upgrade.program.program import File, Program

_MOST = 4
_SIMILAR = 0.75
_FROM_DOTS = re.compile(r"\bfrom[\s\\]+[.\s\\]+import\b")
"""An import from a package that does not name it."""


def definitions(program: Program, package: str, name: str) -> list[str]:
    """The modules of the package that define ``name`` at their top level."""
    start = rf"(?:(?:async\s+)?def\s+|class\s+)?{name}\b"
    first = re.compile(rf"^{start}(?!.*\b__name__\b)", re.MULTILINE)  # what is made of it is of one module
    later = re.compile(rf"^(?:({_BLOCK})|([ \t]+{start})|[^\s#)\]}}])", re.MULTILINE)
    files = files_with(program, package, name)
    may_define = ((path, text) for path, text in files if first.search(text) or _outside(later, text))
    return [module_of(path) for path, text in may_define if name in importable(text)]


_BLOCK = r"(?:async\s+)?def\s|class\s|@"


def _outside(later: re.Pattern[str], text: str) -> bool:
    """Whether an indented line begins with the name outside of functions and classes, as in ``try:``.

    To read the module for it takes a hundred times as long, and a common name begins a line nearly anywhere.
    """
    inside = False
    for found in later.finditer(text):
        if found[2] and not inside:
            return True
        inside = inside if found[2] else bool(found[1])
    return False


def importers(program: Program, item: Import) -> list[str]:
    """The files of a module's package that import the same from it."""
    package, last = item.module.partition(".")[0], item.module.rpartition(".")[2]
    files = files_with(program, package, item.name or "")
    named = ((path, text) for path, text in files if last in text or _FROM_DOTS.search(text))
    return [path for path, text in named if _imports(text, path, item)]


def imports_binding(program: Program, package: str, name: str) -> list[Import]:
    """How the files of the package import ``name``, one import for each file that does."""
    found = ((path, _import_of(text, name)) for path, text in files_with(program, package, name))
    return [absolute(item, path) for path, item in found if item]


def works(program: Program, item: Import, edited: Collection[str] = ()) -> bool:
    """Whether an import works, as far as the sources tell; True when they cannot tell.

    What a package imports from itself without having it is made when it is built; the imports of files
    that were ``edited`` tell nothing.
    """
    if item.name == "*":
        return program.has_module(item.module)
    if program.imported(item) is not None:
        return True
    return item.name is not None and any(path not in edited for path in importers(program, item))


def new_places(program: Program, module: str, name: str) -> list[str]:
    """The modules that define ``name`` now, those nearest to ``module`` first."""
    package = module.partition(".")[0]
    found = [other for other in definitions(program, package, name) if other != module]
    made = [other for other in found if _makes(program.module(other), name)]
    found = made or found
    return sorted(found, key=lambda other: (-shared_parts(module, other), len(other), other))


def new_modules(program: Program, module: str) -> list[str]:
    """The modules called as the last part of ``module``, elsewhere in its package."""
    package, last = module.partition(".")[0], module.rpartition(".")[2]
    wanted = re.compile(rf"(?:^|/){re.escape(last)}(?:\.py|/__init__\.py)$")
    paths = [path for path in program.paths(package) if wanted.search(path)]
    return [module_of(path) for path in paths]


def alike(file: File | None, name: str) -> list[str]:
    """Names of a module that look like ``name``: a renaming, perhaps."""
    if file is None:
        return []
    names = [*file.classes, *file.functions, *file.values]
    return difflib.get_close_matches(name, names, n=2, cutoff=_SIMILAR)


def advice(program: Program, module: str, name: str) -> str:
    """What to do about an import of ``name`` from ``module`` that does not work."""
    if not program.has_module(module) and not name:
        places = new_modules(program, module)
        return f"use {shortened(places, _MOST, ' or ')}" if places else f"nothing is called {module}"
    places = new_places(program, module, name)
    if places:
        return f"take {name} from {shortened(places, _MOST, ' or ')}"
    renamed = alike(program.module(module), name)
    if renamed:
        return f"nothing is called {name}; {module} has {shortened(renamed, _MOST, ' or ')}"
    return f"nothing is called {name}: find what replaced it, or a version that has it"


def files_with(program: Program, package: str, word: str) -> Iterator[tuple[str, str]]:
    """The paths and texts of a package's files that hold ``word``, as a part of another one too."""
    return ((path, program.text(path)) for path in program.holding(package, word))


def calls_of(program: Program, package: str, name: str) -> list[ast.Call]:
    """The calls in a package's files of what has this name, whatever it is an attribute of."""
    # to read a file costs a hundred times more
    called = re.compile(rf"(?<!def )\b{re.escape(name)}[\s)\\]*\(")
    texts = files_with(program, package, name)
    files = (program.file(path) for path, text in texts if called.search(text))
    nodes = (node for file in files if file for node in file.nodes)
    return [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == name]


def _import_of(text: str, name: str) -> Import | None:
    try:
        return imports_of(text).get(name)
    except SyntaxError:
        return None


def _imports(text: str, path: str, item: Import) -> bool:
    try:
        found = [one for one, _ in every_import(parse_module(text).tree) if one.name == item.name]
    except SyntaxError:
        return False
    return any(absolute(one, path).module == item.module for one in found)


def _makes(file: File | None, name: str) -> bool:
    return file is not None and (name in file.classes or name in file.functions)


def patch_target(node: ast.AST) -> tuple[ast.expr, str] | None:
    """What an assignment or ``setattr`` sets: the object and the name."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.value, node.attr
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"):
        return None
    name = string(node.args[1]) if len(node.args) == 3 else ""
    return (node.args[0], name) if name else None
