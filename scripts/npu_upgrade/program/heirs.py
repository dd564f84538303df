"""The classes that derive from another one."""

from __future__ import annotations

import re

from npu_upgrade.ground.held import held
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import ClassSymbol, Program


@held
def heirs(base: ClassSymbol, program: Program, package: str = "") -> tuple[ClassSymbol, ...]:
    """The classes of a package (the base's) that derive from it, in the order of their files."""
    package = package or base.file.path.partition("/")[0]
    named = re.compile(rf"^class \w+\([^:]*\b{base.name}\b", re.MULTILINE)
    found = files_with(program, package, base.name)
    files = [program.file(path) for path, text in found if named.search(text)]
    classes = (cls for file in files if file for cls in file.classes.values())
    return tuple(cls for cls in classes if base in cls.mro[1:])
