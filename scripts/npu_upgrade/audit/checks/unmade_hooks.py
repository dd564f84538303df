"""What a base only announces, its other heirs make, and an NPU class does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from npu_upgrade.audit.finding import Finding, side
from npu_upgrade.audit.overrides import is_stub
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name, string, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.heirs import heirs
from npu_upgrade.program.places import files_with
from npu_upgrade.program.program import ClassSymbol, Program

ABOUT = "what a base leaves to its heirs, or answers with what is for GPUs, and an NPU class does not have"

_INTERFACE = "Platform"
# A dotted path with ``gpu`` or ``cuda`` among its words, as of ``vllm.v1.worker.gpu.block_table``.
_GPU_MODULE = re.compile(r"(?=[\w.]*(?:[._]|\b)(?:gpu|cuda)(?:[._]|\b))\w+(?:\.\w+)+")
_FEWEST = 2  # other heirs that have it; one placeholder among them may lack it


def check(world: World) -> Iterator[Finding]:
    for cls in world.last_classes:
        have = {name for owner in cls.mro for name in owner.assigned}
        for base in (base for base in cls.mro[1:] if base.project == cls.project):
            for name, node in _announced(base).items():
                if name not in have and _lacks(cls, base, name) and _is_left_out(cls, base, name, world):
                    yield _finding(cls, base, name, node)
        yield from _abstract(cls)
        if any(owner.name == _INTERFACE for owner in cls.mro[1:]):
            yield from _of_gpus(cls)
    yield from _of_devices(world)


def _of_devices(world: World) -> Iterator[Finding]:
    """The device's form of a method that a base only announces, and an heir lacks.

    It had it in the old pair, or all other heirs of its file have it: others may be for other devices only.
    """
    package, end = world.side.project.package, f"_{world.side.project.device}"
    program = world.program
    for path in program.holding(package, end) if world.of_omni else ():
        if "NotImplementedError" not in program.text(path) or not (file := program.file(path)):
            continue
        for base in file.classes.values():
            for name, node in _announced(base).items():
                every = heirs(base, program) if name.endswith(end) else ()
                for heir in (one for one in every if not _makes(one, name, base)):
                    had = not _is_empty(heir) and _had(heir, name, base, world)
                    if had or _others_make(heir, every, name, base):
                        yield _finding(heir, base, name, node)


def _makes(cls: ClassSymbol, name: str, base: ClassSymbol) -> bool:
    """Whether a class has a method, or another one under its name, that is not the base's."""
    return any(name in owner.methods or name in owner.fields for owner in cls.mro if owner is not base)


def _others_make(cls: ClassSymbol, every: Iterable[ClassSymbol], name: str, base: ClassSymbol) -> bool:
    """Whether all others of the file make a form, of heirs with several: one with a single form may be for
    that device only."""
    stem = f"{name.rpartition('_')[0]}_"
    forming = [one for one in every if sum(own.startswith(stem) for own in one.methods) >= _FEWEST]
    beside = [one for one in forming if one.file is cls.file and one is not cls]
    return cls in forming and bool(beside) and all(_makes(one, name, base) for one in beside)


def _had(cls: ClassSymbol, name: str, base: ClassSymbol, world: World) -> bool:
    """Whether the class of that name had the method in the old pair, and not from its base."""
    file = world.old.program.file(cls.file.path) if world.old else None
    before = file.classes.get(cls.name) if file else None
    method = before.lookup(name) if before else None
    return method is not None and method.owner.name != base.name


def _of_gpus(cls: ClassSymbol) -> Iterator[Finding]:
    """What a platform leaves to an interface that answers with a module made for GPUs."""
    for name in {name for owner in cls.mro for name in owner.methods}:
        method = cls.lookup(name)
        if method and method.owner.name.endswith(_INTERFACE) and method.owner is not cls:
            nodes = [node for node in walk(method.node) if isinstance(node, (ast.ImportFrom, ast.Constant))]
            modules = [n.module or "" if isinstance(n, ast.ImportFrom) else string(n) for n in nodes]
            if any(_GPU_MODULE.fullmatch(module) for module in modules):
                yield _finding(cls, method.owner, name, method.node)


def _abstract(cls: ClassSymbol) -> Iterator[Finding]:
    """The abstract methods that make it impossible to make an object of a class."""
    if cls.is_open or not any("ABC" in map(last_name, owner.outside) for owner in cls.mro):
        return
    if any(_is_abstract(method.node) for method in cls.methods.values()) or "ABC" in map(
        last_name, cls.outside
    ):
        return
    for name in {name for owner in cls.mro[1:] for name in owner.methods}:
        method = cls.lookup(name)
        if method and _is_abstract(method.node):
            yield _finding(cls, method.owner, name, method.node)


def _is_abstract(node: Function) -> bool:
    return any(last_name(item) == "abstractmethod" for item in node.decorator_list)


@held
def _announced(base: ClassSymbol) -> dict[str, ast.stmt]:
    """The methods that only raise or are abstract, and the class attributes with no value."""
    found: dict[str, ast.stmt] = {
        name: method.node
        for name, method in base.methods.items()
        if is_stub(method.node) and _is_for_heirs(method.node)
    }
    found |= {n: f for n, f in base.fields.items() if isinstance(f, ast.AnnAssign) and f.value is None}
    return {name: node for name, node in found.items() if not name.startswith("__")}


def _is_for_heirs(node: Function) -> bool:
    raises = any(
        "NotImplementedError" in ast.unparse(stmt) for stmt in node.body if isinstance(stmt, ast.Raise)
    )
    return raises or _is_abstract(node)


def _lacks(cls: ClassSymbol, base: ClassSymbol, name: str) -> bool:
    """Whether what the class has under the name is the announcement itself."""
    if any(
        last_name(node) not in ("object", "ABC", "Generic", "Protocol") for o in cls.mro for node in o.outside
    ):
        return False
    for owner in cls.mro:
        made = owner.fields.get(name)
        if name in owner.methods or (made is not None and getattr(made, "value", None) is not None):
            return owner is base
        if owner is base:
            return True
    return False


def _is_left_out(cls: ClassSymbol, base: ClassSymbol, name: str, world: World) -> bool:
    """Whether something asks for it, and nearly all other heirs of the base have it."""
    others = [heir for heir in _making(base, world.program) if heir not in cls.mro and cls not in heir.mro]
    ends = [heir for heir in others if not any(heir in other.mro[1:] for other in others)]
    without = [heir for heir in ends if _lacks(heir, base, name) and name not in _set_on(heir)]
    if len(ends) - len(without) < max(_FEWEST, len(without) * 3):
        return False
    return _is_asked(base, name, world.program)


def _set_on(cls: ClassSymbol) -> set[str]:
    return {name for owner in cls.mro for name in owner.assigned}


def _making(base: ClassSymbol, program: Program) -> list[ClassSymbol]:
    return [cls for cls in heirs(base, program) if not _is_empty(cls)]


def _is_empty(cls: ClassSymbol) -> bool:
    """A placeholder that has next to nothing of its own."""
    return len(cls.methods) + len(cls.fields) <= _FEWEST


def _is_asked(base: ClassSymbol, name: str, program: Program) -> bool:
    read = re.compile(rf"\.{name}\b(?!\s*=[^=])")
    package = base.file.path.partition("/")[0]
    return any(read.search(text) for _, text in files_with(program, package, name))


def _finding(cls: ClassSymbol, base: ClassSymbol, name: str, node: ast.stmt) -> Finding:
    return Finding(
        kind="unmade",
        owner=cls.name,
        subject=name,
        what=f"{cls.name} has no {name}, which {base.name} leaves to its heirs, and others have",
        here=side(cls),
        there=side(base, node, name),
        incident="P",
        why="whoever asks for it gets an error instead",
        todo=f"give {cls.name} its own {name}, as the other heirs of {base.name} do",
    )
