"""What an import, an attribute or a dotted path asks the trees for in vain.

Nothing counts as absent that may be compiled, generated, made by ``__getattr__`` or set by a patch.
"""

from __future__ import annotations

import ast
import itertools
import re

from npu_upgrade.code.names import Import
from npu_upgrade.program.members import provided_by_bases
from npu_upgrade.program.program import ClassSymbol, ModuleSymbol, Program

_BUILD = (("setup.py", "pyproject.toml"), ("CMakeLists.txt",))
_BROUGHT = {"_abc_impl", "_is_protocol", "mro"}  # by the metaclasses of the plain bases


def missing_import(program: Program, item: Import) -> tuple[str, str] | None:
    """The module and name (empty: the module itself) that an import asks for in vain."""
    if not program.judges(item.module):
        return None
    if not program.has_module(item.module):
        return None if is_made_later(program, item.module) else (item.module, item.name or "")
    if item.name is None or item.name == "*" or is_plain_to_see(program, item.module, item.name):
        return None
    if program.imported(item) is not None:
        return None
    if is_made_later(program, f"{item.module}.{item.name}") or is_put_in(program, item.module, item.name):
        return None
    return item.module, item.name


def is_plain_to_see(program: Program, module: str, name: str) -> bool:
    """Whether the text of a module defines the name at its top level: most need no parsing."""
    text = program.text_of(module)
    return re.search(rf"^(?:class|def|async def)\s+{name}\b", text, re.MULTILINE) is not None


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
    brought = provided_by_bases(cls)
    if brought is None or any(one.node.keywords for one in cls.mro):
        return False
    inner = {node.name for one in cls.mro for node in one.node.body if isinstance(node, ast.ClassDef)}
    if name in inner | brought | _BROUGHT or (name.startswith("_") and name.endswith("_")):
        return False
    has = any(name in one.methods or name in one.fields or "__getattr__" in one.methods for one in cls.mro)
    return not has and not any(name in one.assigned for one in cls.mro)


def _class(program: Program, owner: str) -> ClassSymbol | None:
    module, _, last = owner.rpartition(".")
    file = program.module(module) if module else None
    return file.classes.get(last) if file else None


def is_made_later(program: Program, module: str) -> bool:
    """Whether a module is compiled or generated when its package is built, or lies in a folder that is.

    The build's files name it in full, by dots or as a path; a target of CMake is named alone.
    """
    folder, _, last = module.replace(".", "/").rpartition("/")
    tree = program.trees[module.partition(".")[0]]
    if any(path.startswith((f"{folder}/{last}.", f"{folder}/{last}/")) for path in tree.list(folder)):
        return True
    if last.startswith("_version") or last.endswith(("_pb2", "_pb2_grpc")):
        return True
    told, cmake = ("\n".join(tree.read(one) for one in group if tree.exists(one)) for group in _BUILD)
    names = [name for name in itertools.accumulate(module.split("."), "{}.{}".format) if "." in name]
    made = "|".join(
        rf"{re.escape(name)}|{re.escape(name.replace('.', '/'))}"
        for name in names
        if not program.has_module(name)
    )
    target = rf"\(\s*{re.escape(last)}\b"
    return bool(made and re.search(rf"(?<![\w.])({made})\b", told)) or bool(re.search(target, cmake))


def is_put_in(program: Program, module: str, name: str) -> bool:
    """Whether some file of the trees above sets ``name`` on the module, as patches do."""
    pattern = re.compile(
        rf"\.{name}\s*(?::[^=\n]+)?=(?!=)|setattr\([^)]*['\"]{name}['\"]|['\"]{name}['\"]\s*[\]:]"
    )
    for package in program.trees:
        if package == module.partition(".")[0]:
            continue
        for path in program.paths(package):
            text = program.text(path)
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
