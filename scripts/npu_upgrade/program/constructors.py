"""What it takes to make an object of a class: its own ``__init__``, or the one that is generated for it.

Dataclasses, NamedTuples and msgspec structs get a signature as Python would write it, inherited fields first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, last_name
from npu_upgrade.program.program import CLOSED, ClassSymbol, FunctionSymbol

_HARMLESS = {"final", "runtime_checkable", "total_ordering", "unique"}
CLOSED_BASES = CLOSED | {"NamedTuple"}


@dataclass(frozen=True)
class Field:
    """A field of a dataclass, NamedTuple or struct, as far as the constructor is concerned."""

    name: str
    node: ast.AnnAssign
    required: bool
    init: bool = True
    kw_only: bool = False


def constructor(cls: ClassSymbol) -> Function | None:
    """The function that ``cls(...)`` calls, first parameter ``self``; None when source does not tell."""
    for owner in until_constructor(cls):
        if not _decorators_known(owner) or _metaclass(owner) or "__new__" in owner.methods:
            return None
        if "__init__" in owner.methods:
            return owner.methods["__init__"].node
        if _is_record(owner):
            return _generated(owner)
        if any(_brings_init(owner, base) for base in owner.outside):
            return None
    return _function([])


def until_constructor(cls: ClassSymbol) -> Iterator[ClassSymbol]:
    """The classes of an MRO down to the one whose constructor runs: no other's has a say."""
    for owner in cls.mro:
        yield owner
        if "__init__" in owner.methods or _is_record(owner):
            return


def _is_record(cls: ClassSymbol) -> bool:
    return is_dataclass(cls) or is_named_tuple(cls) or is_struct(cls)


def is_struct(cls: ClassSymbol) -> bool:
    """Whether the class is a struct of msgspec, by itself or by a base."""
    return any(_is_msgspec(owner, base) for owner in cls.mro for base in owner.outside)


def _is_msgspec(cls: ClassSymbol, base: ast.expr) -> bool:
    items = cls.file.imports.get(dotted(base), []) if isinstance(base, ast.Name) else []
    return dotted(base) == "msgspec.Struct" or any((i.module, i.name) == ("msgspec", "Struct") for i in items)


def is_named_tuple(cls: ClassSymbol) -> bool:
    """Whether the class is a NamedTuple of its own fields."""
    return any(last_name(base) == "NamedTuple" for base in cls.node.bases)


def is_dataclass(cls: ClassSymbol) -> bool:
    """Whether a decorator generates ``__init__`` from the class's fields."""
    return any(_makes_init(cls, node) for node in cls.node.decorator_list)


def record_fields(cls: ClassSymbol) -> list[Field]:
    """The fields of a record in the order of its constructor, inherited ones included."""
    if is_named_tuple(cls):
        return _own_fields(cls, False)
    found: dict[str, Field] = {}
    struct = is_struct(cls)
    for owner in reversed(cls.mro):
        if struct and is_struct(owner):
            found |= {item.name: item for item in _own_fields(owner, _flag(owner.node, "kw_only"))}
        decorators = [node for node in owner.node.decorator_list if _makes_init(owner, node)]
        if decorators:
            found |= {item.name: item for item in _own_fields(owner, _flag(decorators[0], "kw_only"))}
    return list(found.values())


def _generated(cls: ClassSymbol) -> Function | None:
    if any(_brings_init(owner, base) for owner in cls.mro for base in owner.outside):
        return None
    if any(_flag(node, "init") is False for node in cls.node.decorator_list):
        return None
    return _function(record_fields(cls))


def _own_fields(cls: ClassSymbol, kw_only: bool | None) -> list[Field]:
    found: dict[str, Field] = {}
    for node in cls.fields.values():
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        kind = last_name(node.annotation)
        if kind == "KW_ONLY":
            kw_only = True
        elif kind != "ClassVar":
            found[node.target.id] = _field(node, node.target.id, bool(kw_only))
    return list(found.values())


def _field(node: ast.AnnAssign, name: str, kw_only: bool) -> Field:
    value = node.value
    if not (isinstance(value, ast.Call) and last_name(value.func) in ("field", "Field")):
        return Field(name, node, value is None, kw_only=kw_only)
    options = {keyword.arg for keyword in value.keywords}
    ellipsis = any(isinstance(arg, ast.Constant) and arg.value is ... for arg in value.args)
    defaulted = bool(options & {"default", "default_factory"}) or (bool(value.args) and not ellipsis)
    own = _flag(value, "kw_only")
    return Field(
        name, node, not defaulted, _flag(value, "init") is not False, kw_only if own is None else own
    )


def _function(fields: list[Field]) -> Function:
    """``def __init__(self, ...)`` of these fields."""
    places = [item for item in fields if item.init and not item.kw_only]
    named = [item for item in fields if item.init and item.kw_only]
    first = next((number for number, item in enumerate(places) if not item.required), len(places))
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg("self"), *(ast.arg(item.name, item.node.annotation) for item in places)],
        vararg=None,
        kwonlyargs=[ast.arg(item.name, item.node.annotation) for item in named],
        kw_defaults=[None if item.required else ast.Constant(...) for item in named],
        kwarg=None,
        defaults=[ast.Constant(...) for _ in places[first:]],
    )
    node = ast.FunctionDef(name="__init__", args=arguments, body=[ast.Pass()], decorator_list=[])
    node.lineno = fields[0].node.lineno if fields else 0
    return node


def _decorators_known(cls: ClassSymbol) -> bool:
    return all(
        last_name(node) in _HARMLESS
        or "register" in ast.unparse(node).partition("(")[0]
        or _makes_init(cls, node)
        for node in cls.node.decorator_list
    )


def _makes_init(cls: ClassSymbol, node: ast.expr) -> bool:
    """Whether a class decorator is ``dataclass``, or one of the trees marked ``dataclass_transform``."""
    if last_name(node) == "dataclass":
        return True
    found = cls.file.resolve(node.func if isinstance(node, ast.Call) else node)
    return isinstance(found, FunctionSymbol) and any(
        last_name(item) == "dataclass_transform" for item in found.node.decorator_list
    )


def _metaclass(cls: ClassSymbol) -> bool:
    return any(k.arg == "metaclass" and last_name(k.value) != "ABCMeta" for k in cls.node.keywords)


def _brings_init(cls: ClassSymbol, base: ast.expr) -> bool:
    return last_name(base) not in CLOSED_BASES and not _is_msgspec(cls, base)


def _flag(node: ast.expr | ast.ClassDef, name: str) -> bool | None:
    """A keyword of a call or class that is written True or False."""
    keywords = node.keywords if isinstance(node, (ast.Call, ast.ClassDef)) else []
    values = [k.value.value for k in keywords if k.arg == name and isinstance(k.value, ast.Constant)]
    return bool(values[0]) if values else None
