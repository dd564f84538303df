"""Where a name that a tree no longer has at one place is now."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence

from npu_upgrade.code.exports import Exports
from npu_upgrade.program.program import File, Program

_MOST = 4
_SIMILAR = 0.75


@functools.lru_cache(maxsize=16)
def exports(program: Program, package: str) -> Exports:
    """What one package of the trees defines."""
    return Exports(program.trees[package], package)


def new_places(program: Program, module: str, name: str) -> list[str]:
    """The modules that define ``name`` now, those nearest to ``module`` first."""
    package = module.partition(".")[0]
    found = [other for other in exports(program, package).definitions(name) if other != module]
    made = [other for other in found if _makes(program.module(other), name)]
    found, parts = made or found, module.split(".")
    return sorted(found, key=lambda other: (-_common(parts, other.split(".")), len(other), other))


def _makes(file: File | None, name: str) -> bool:
    return file is not None and (name in file.classes or name in file.functions)


def new_modules(program: Program, module: str) -> list[str]:
    """The modules called as the last part of ``module``, elsewhere in its package."""
    package, last = module.partition(".")[0], module.rpartition(".")[2]
    wanted = re.compile(rf"(?:^|/){re.escape(last)}(?:\.py|/__init__\.py)$")
    paths = [path for path in exports(program, package).paths if wanted.search(path)]
    return [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]


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
        return f"use {_listed(places)}" if places else f"nothing is called {module} any more"
    places = new_places(program, module, name)
    if places:
        return f"take {name} from {_listed(places)}"
    renamed = alike(program.module(module), name)
    if renamed:
        return f"nothing is called {name} any more; {module} has {_listed(renamed)}"
    return f"nothing is called {name} any more: find what replaced it, or drop its use"


def is_made_later(program: Program, module: str) -> bool:
    """Whether a module is compiled or generated when its package is built."""
    folder, _, last = module.replace(".", "/").rpartition("/")
    tree = program.trees[module.partition(".")[0]]
    if any(path.startswith((f"{folder}/{last}.", f"{folder}/{last}/")) for path in tree.list(folder)):
        return True
    texts = (
        tree.read(path) for path in ("setup.py", "CMakeLists.txt", "pyproject.toml") if tree.exists(path)
    )
    return last.startswith("_version") or any(re.search(rf"\b{re.escape(last)}\b", text) for text in texts)


def is_put_in(program: Program, module: str, name: str) -> bool:
    """Whether some file of the trees above sets ``name`` on the module, as patches do."""
    pattern = re.compile(
        rf"\.{name}\s*(?::[^=\n]+)?=(?!=)|setattr\([^)]*['\"]{name}['\"]|['\"]{name}['\"]\s*[\]:]"
    )
    for package in program.trees:
        if package == module.partition(".")[0]:
            continue
        for path in exports(program, package).paths:
            text = program.trees[package].read(path)
            if name in text and pattern.search(text) and _sets(program, path, module, name):
                return True
    return False


def _sets(program: Program, path: str, module: str, name: str) -> bool:
    """Whether a file that has an assignment to ``name`` reaches the module under some name."""
    file = program.file(path)
    if file is None:
        return False
    last = module.rpartition(".")[2]
    items = [item for found in (file.imports, file.local_imports) for many in found.values() for item in many]
    direct = any(f"{item.module}.{item.name}" == module or item.module == module for item in items)
    return direct or f'"{module}"' in file.source or f"{last}.{name}" in file.source


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return " or ".join(names[:_MOST]) + more
