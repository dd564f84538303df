"""The classes of globals that a module's ``__getattr__`` makes from what a plugin names.

``from vllm.platforms import current_platform`` gives an object of vllm-ascend's platform: the heir
of the annotated class whose dotted name a function of a package's ``__init__`` returns.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from npu_upgrade.code.walk import walk
from npu_upgrade.program.program import ClassSymbol, File, Program, ValueSymbol

_DEVICE = "vllm-ascend"


def lazy_global(file: File, name: str) -> ClassSymbol | None:
    """The class of the object that an imported name stands for on an NPU; None for any other name."""
    items = file.imports.get(name) or file.local_imports.get(name, [])
    if len({(item.module, item.name) for item in items}) != 1 or not items[0].name:
        return None
    return _of_value(file.program, items[0].module, items[0].name)


@functools.lru_cache(maxsize=4096)
def _of_value(program: Program, module: str, name: str) -> ClassSymbol | None:
    symbol = program.lookup(module, name)
    if not (isinstance(symbol, ValueSymbol) and isinstance(symbol.node, ast.AnnAssign)):
        return None
    declared = symbol.file.resolve(symbol.node.annotation)
    if not isinstance(declared, ClassSymbol) or symbol.node.value or not symbol.file.may_make(name):
        return None
    named = (cls for cls in _named_by_plugins(program, symbol.file) if declared in cls.mro)
    found = list(dict.fromkeys(cls for cls in named if any(base.project == _DEVICE for base in cls.mro)))
    return found[0] if len(found) == 1 else None


def _named_by_plugins(program: Program, module: File) -> Iterator[ClassSymbol]:
    """The classes whose dotted names the functions of the device's package and of the module hold."""
    own = program.module("vllm_ascend")
    for file in (own, module) if module.project != "vllm" else (own,):
        for function in file.functions.values() if file else ():
            for node in walk(function.node):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                    owner, _, name = node.value.rpartition(".")
                    symbol = program.lookup(owner, name) if name.isidentifier() else None
                    if isinstance(symbol, ClassSymbol):
                        yield symbol
