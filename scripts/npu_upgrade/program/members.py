"""Which attributes objects of a class have, as far as the trees tell."""

from __future__ import annotations

import ast
import functools

from npu_upgrade.code.definitions import top_level
from npu_upgrade.code.walk import walk
from npu_upgrade.program.device_module import DEVICE_NAMES, passes_on
from npu_upgrade.program.program import UNKNOWN, ClassSymbol
from npu_upgrade.program.self_use import self_use

_CLOSED = {"object", "ABC", "Generic", "Protocol", "NamedTuple", "Enum", "IntEnum", "StrEnum"}
_BROUGHT = {
    "NamedTuple": {"_fields", "_replace", "_asdict", "_make", "_field_defaults", "count", "index"},
    "Enum": {"name", "value"},
    "IntEnum": {"name", "value", "bit_length", "to_bytes", "real"},
}
_DYNAMIC = {"__getattr__", "__getattribute__", "__setattr__"}
_HARMLESS_META = {"ABCMeta", "EnumMeta"}


def provided_by_bases(cls: ClassSymbol) -> set[str] | None:
    """What bases outside the trees bring; None when that is not known."""
    found: set[str] = set()
    for owner in cls.mro:
        for base, node in zip(owner.bases, owner.node.bases, strict=True):
            if base is UNKNOWN and _last(node) not in _CLOSED:
                return None
            found |= _BROUGHT.get(_last(node), set())
    return found


def named_by_classes(cls: ClassSymbol) -> set[str]:
    """What the class bodies of the MRO define: methods, fields, classes in them."""
    found = provided_by_bases(cls) or set()
    for owner in cls.mro:
        found |= set(owner.methods) | set(owner.fields) | _bound_in_body(owner)
        found |= {node.name for node in owner.node.body if isinstance(node, ast.ClassDef)}
    return found


@functools.lru_cache(maxsize=8192)
def members(cls: ClassSymbol) -> frozenset[str] | None:
    """All attributes of the class and its bases, whoever sets them; None when it may have others.

    Attributes that only something else assigns on its objects are not among them.
    """
    brought = provided_by_bases(cls)
    if brought is None or any(_is_dynamic(owner) for owner in cls.mro):
        return None
    if any("__getattr__" in owner.methods for owner in cls.mro):
        brought |= DEVICE_NAMES
    return frozenset(brought.union(*(own_members(owner) for owner in cls.mro)))


@functools.lru_cache(maxsize=8192)
def own_members(cls: ClassSymbol) -> frozenset[str]:
    """What the class's own body defines or sets on ``self``, declarations included."""
    found = set(cls.methods) | set(cls.fields)
    found |= {node.name for node in walk(cls.node) if isinstance(node, ast.ClassDef)}
    for method in cls.methods.values():
        use = self_use(method.node)
        found |= use.writes.keys() | use.declared.keys()
    return frozenset(found | _bound_in_body(cls))


def _is_dynamic(cls: ClassSymbol) -> bool:
    """Whether it may have attributes that its source does not name."""
    special = _DYNAMIC & cls.methods.keys()
    if special == {"__getattr__"} and passes_on(cls.methods["__getattr__"].node):
        special = set()
    if special or any(self_use(method.node).open for method in cls.methods.values()):
        return True
    return any(key.arg == "metaclass" and _last(key.value) not in _HARMLESS_META for key in cls.node.keywords)


def _bound_in_body(cls: ClassSymbol) -> set[str]:
    """Names that imports in the class's body bind."""
    found: set[str] = set()
    for node in top_level(cls.node.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def _last(node: ast.expr) -> str:
    plain = node.value if isinstance(node, ast.Subscript) else node
    return plain.attr if isinstance(plain, ast.Attribute) else getattr(plain, "id", "")
