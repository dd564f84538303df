"""What an import, an attribute or a dotted path asks the trees for in vain.

Nothing counts as absent that may be compiled, generated, made by ``__getattr__`` or set by a patch.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from collections.abc import Sequence

from npu_upgrade.code.exports import Exports
from npu_upgrade.code.names import Import
from npu_upgrade.program.program import UNKNOWN, ClassSymbol, File, ModuleSymbol, Program

_PLAIN_BASES = {"object", "ABC", "Generic", "Protocol", "Enum", "IntEnum", "NamedTuple", "str", "int"}

_BROUGHT = {"_abc_impl", "_is_protocol", "mro"}  # by the metaclasses of the plain bases


def missing_import(program: Program, item: Import) -> tuple[str, str] | None:
    """The module and name (empty: the module itself) that an import asks for in vain."""
    if not program.judges(item.module):
        return None
    if not program.has_module(item.module):
        return None if is_made_later(program, item.module) else (item.module, item.name or "")
    if item.name is None or item.name == "*" or program.imported(item) is not None:
        return None
    if is_made_later(program, f"{item.module}.{item.name}") or is_put_in(program, item.module, item.name):
        return None
    return item.module, item.name


def missing_path(program: Program, text: str) -> tuple[str, str] | None:
    """The module and name that a dotted path asks for in vain; or the class and the attribute."""
    parts = text.replace(":", ".").split(".")
    module = parts[0]
    for place, part in enumerate(parts[1:], 1):
        symbol = program.lookup(module, part)
        if symbol is None:
            gone = (".".join([module, *parts[place:-1]]), parts[-1])
            return None if is_made_later(program, f"{module}.{part}") else gone
        if isinstance(symbol, ClassSymbol) and (rest := parts[place + 1 :]):
            gone = class_lacks(symbol, rest[0]) and not is_put_in(program, module, rest[0])
            return (f"{module}.{part}", rest[0]) if gone else None
        if not isinstance(symbol, ModuleSymbol):
            return None
        module = symbol.name
    return None


def lacks(program: Program, owner: str, name: str) -> bool:
    """Whether a module or class of the trees (by its dotted name) has no ``name``, patches included."""
    cls = _class(program, owner)
    return never_had(program, owner, name) and not is_put_in(program, cls.file.module if cls else owner, name)


def never_had(program: Program, owner: str, name: str) -> bool:
    """Whether a module or class defines no ``name`` itself, whatever patches set on it."""
    cls = _class(program, owner)
    return class_lacks(cls, name) if cls else program.lookup(owner, name) is None


def class_lacks(cls: ClassSymbol, name: str) -> bool:
    """Whether a class certainly has no such attribute; its metaclass and unknown bases may bring one."""
    open_to_more = any(
        one.node.keywords
        or any(
            base is UNKNOWN and not _is_plain(node)
            for base, node in zip(one.bases, one.node.bases, strict=True)
        )
        for one in cls.mro
    )
    inner = {node.name for one in cls.mro for node in one.node.body if isinstance(node, ast.ClassDef)}
    if open_to_more or name in inner or name in _BROUGHT or (name.startswith("_") and name.endswith("_")):
        return False
    has = any(name in one.methods or name in one.fields or "__getattr__" in one.methods for one in cls.mro)
    return not has and not any(name in one.assigned for one in cls.mro)


def _class(program: Program, owner: str) -> ClassSymbol | None:
    module, _, last = owner.rpartition(".")
    file = program.module(module) if module else None
    return file.classes.get(last) if file else None


def _is_plain(base: ast.expr) -> bool:
    return ast.unparse(base).partition("[")[0].rpartition(".")[2] in _PLAIN_BASES


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
