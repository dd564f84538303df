"""What a call in a function reaches, as far as the trees tell."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from npu_upgrade.audit.body import Body, read_body
from npu_upgrade.audit.constructors import CLOSED_BASES, constructor
from npu_upgrade.audit.patches import patched_names
from npu_upgrade.audit.program import (
    UNKNOWN,
    ClassSymbol,
    File,
    FunctionSymbol,
    Method,
    ModuleSymbol,
    Program,
    Symbol,
)
from npu_upgrade.audit.version_guards import version_of
from npu_upgrade.pycode.exports import absolute
from npu_upgrade.upgrade.definitions import top_level
from npu_upgrade.upgrade.signatures import Function, is_bound, last_name

# Decorators that leave the signature and the value as they are.
_TRANSPARENT = {
    *("staticmethod", "classmethod", "abstractmethod", "override", "final", "cache", "lru_cache"),
    *("no_grad", "inference_mode", "disable", "deprecated", "instrument"),
}
_CONTEXT_MANAGERS = {"contextmanager", "asynccontextmanager"}


@dataclass(frozen=True)
class Scope:
    """A function with where it stands; ``cls`` is the class of ``self``, ``owner`` the one that has it."""

    file: File
    node: Function | ast.Module
    owner: ClassSymbol | None = None
    cls: ClassSymbol | None = None

    @property
    def name(self) -> str:
        if isinstance(self.node, ast.Module):
            return ""
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name

    @property
    def self_name(self) -> str | None:
        """The name of the object a method works on."""
        if self.owner is None or isinstance(self.node, ast.Module) or not is_bound(self.node):
            return None
        return next((arg.arg for arg in [*self.node.args.posonlyargs, *self.node.args.args]), None)


@dataclass(frozen=True)
class Callee:
    """A function a call may reach; ``owner`` is the class of a method or constructor.

    ``bound``: its first parameter comes from the object it is called on. ``by`` tells how it was
    found: ``self``, ``super``, ``name`` (an imported function or class), ``attribute`` (typed by
    what ``self.x`` or a local name is set to).
    """

    node: Function
    file: File
    owner: ClassSymbol | None
    bound: bool
    by: Literal["self", "super", "name", "attribute"]
    makes: ClassSymbol | None = None

    @property
    def name(self) -> str:
        if self.makes:
            return self.makes.name
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name


class Resolver:
    """Finds what calls reach in the functions of a world's trees; answers are kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.vllm = version_of(program.trees["vllm"].version if "vllm" in program.trees else None)
        self.patched = patched_names(program)
        self._bodies: dict[int, Body] = {}
        self._names: dict[tuple[int, str], Symbol | None] = {}

    def body(self, node: Function | ast.Module) -> Body:
        """The parts of a function."""
        if id(node) not in self._bodies:
            self._bodies[id(node)] = read_body(node, self.vllm)
        return self._bodies[id(node)]

    def callees(self, call: ast.Call, scope: Scope) -> list[Callee]:
        """The functions that ``call`` may reach, nearest first; empty when the trees do not tell."""
        found = self._callees(call, scope)
        return found if all(self._signature_known(callee) for callee in found) else []

    def symbol(self, expr: ast.expr, scope: Scope) -> Symbol | None:
        """What a name or dotted name stands for in a function; UNKNOWN for local values."""
        text = dotted(expr)
        if text is None:
            return UNKNOWN
        first = text.partition(".")[0]
        body = self.body(scope.node)
        if first in body.bound:
            return UNKNOWN
        if items := body.imports.get(first):
            return self._local_import([absolute(item, scope.file.path) for item in items], text)
        key = (id(scope.file), text)
        if key not in self._names:
            several = len(scope.file.imports.get(first, [])) > 1
            self._names[key] = UNKNOWN if several else self._in_file(scope.file, text)
        return self._names[key]

    def classes_of(self, expr: ast.expr, scope: Scope) -> list[ClassSymbol]:
        """The classes an expression's value may have: ``self``, ``self.x`` and local names made here."""
        if isinstance(expr, ast.Name):
            if scope.cls and expr.id == scope.self_name:
                return [scope.cls]
            value = self.body(scope.node).value(expr.id)
            return self._made(value, scope) if value is not None else []
        if isinstance(expr, ast.Attribute) and scope.cls and self._is_self(expr.value, scope):
            return self._attribute(scope.cls, expr.attr)
        return []

    def _callees(self, call: ast.Call, scope: Scope) -> list[Callee]:
        func = call.func
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Call) and _is_super(func.value, scope):
                return self._above(func.attr, scope)
            owners = self.classes_of(func.value, scope)
            by: Literal["self", "attribute"] = "self" if self._is_self(func.value, scope) else "attribute"
            if owners:
                found = [self._method(cls, func.attr, by) for cls in owners]
                return [callee for callee in found if callee] if None not in found else []
        return self._named(self.symbol(func, scope), func, scope)

    def _named(self, symbol: Symbol | None, func: ast.expr, scope: Scope) -> list[Callee]:
        if isinstance(symbol, FunctionSymbol):
            symbols = self._replaced(symbol)
            return [Callee(node, s.file, None, False, "name") for s in symbols for node in _definitions(s)]
        if isinstance(symbol, ClassSymbol):
            init = constructor(symbol)
            return [Callee(init, symbol.file, symbol, True, "name", symbol)] if init else []
        if isinstance(func, ast.Attribute):
            owner = self.symbol(func.value, scope)
            if isinstance(owner, ClassSymbol):
                return self._of_class(owner, func.attr)
        return []

    def _replaced(self, symbol: FunctionSymbol) -> list[FunctionSymbol]:
        """What patches put in place of a function of vLLM; nothing where that is not one function."""
        places = self.patched.get(("", symbol.node.name), []) if symbol.file.project == "vllm" else []
        if not places:
            return [symbol]
        files = [(self.program.file(path), name) for path, name in places]
        found = [file.functions.get(name) if file else None for file, name in files]
        return [item for item in found if item] if all(found) else []

    def _of_class(self, owner: ClassSymbol, name: str) -> list[Callee]:
        """A method called on the class itself."""
        method = owner.lookup(name)
        if method is None or not self._plain(owner, method):
            return []
        bound = any(last_name(node) == "classmethod" for node in method.node.decorator_list)
        return [Callee(method.node, method.owner.file, method.owner, bound, "name")]

    def _above(self, name: str, scope: Scope) -> list[Callee]:
        if scope.cls is None or scope.owner is None:
            return []
        method = scope.cls.after(scope.owner, name)
        if method is None or _unknown_between(scope.cls, scope.owner, method.owner):
            return []
        return [Callee(method.node, method.owner.file, method.owner, is_bound(method.node), "super")]

    def _method(self, cls: ClassSymbol, name: str, by: Literal["self", "attribute"]) -> Callee | None:
        method = cls.lookup(name)
        if method is None or not self._plain(cls, method):
            return None
        return Callee(method.node, method.owner.file, method.owner, is_bound(method.node), by)

    def _plain(self, cls: ClassSymbol, method: Method) -> bool:
        """Whether nothing else is put under the method's name on objects of the class."""
        if any(method.name in owner.assigned for owner in cls.mro):
            return False
        place = cls.mro.index(method.owner)
        return not any(method.name in owner.fields for owner in cls.mro[:place])

    def _attribute(self, cls: ClassSymbol, name: str) -> list[ClassSymbol]:
        """The classes that ``self.name`` is set to, by the first class of the MRO that sets it."""
        for owner in cls.mro:
            if name in owner.methods or name in owner.fields:
                return []
            if name not in owner.assigned:
                continue
            found: list[ClassSymbol] = []
            for method, node in owner.assigned[name]:
                value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
                if isinstance(node, ast.AnnAssign) and value is None:
                    continue
                if value is None or not _sets(node, name):
                    return []
                if isinstance(value, ast.Constant) and value.value is None:
                    continue
                made = self._made(value, Scope(method.owner.file, method.node, method.owner, cls))
                if not made:
                    return []
                found += made
            if found:
                return list(dict.fromkeys(found))
        return []

    def _made(self, value: ast.expr, scope: Scope) -> list[ClassSymbol]:
        if isinstance(value, ast.IfExp):
            parts = [self._made(part, scope) for part in (value.body, value.orelse) if not _is_none(part)]
            return [cls for part in parts for cls in part] if all(parts) else []
        if not isinstance(value, ast.Call):
            return []
        symbol = self.symbol(value.func, scope)
        if isinstance(value.func, ast.Attribute) and scope.cls and self._is_self(value.func.value, scope):
            symbol = self._class_field(scope.cls, value.func.attr)
        return [symbol] if isinstance(symbol, ClassSymbol) else []

    def _class_field(self, cls: ClassSymbol, name: str) -> Symbol | None:
        """The class that a class keeps in a field: ``runner_cls = Runner``."""
        for owner in cls.mro:
            if name in owner.fields:
                node = owner.fields[name]
                value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
                return owner.file.resolve(value) if isinstance(value, (ast.Name, ast.Attribute)) else UNKNOWN
        return UNKNOWN

    def _is_self(self, expr: ast.expr, scope: Scope) -> bool:
        return isinstance(expr, ast.Name) and expr.id == scope.self_name

    def _local_import(self, items: Iterable, text: str) -> Symbol | None:
        found = [self.program.imported(item) for item in items]
        symbol: Symbol | None = found[0] if len(set(map(id, found))) == 1 else UNKNOWN
        for part in text.split(".")[1:]:
            if not isinstance(symbol, ModuleSymbol):
                return UNKNOWN
            symbol = self.program.lookup(symbol.name, part)
        return symbol

    def _in_file(self, file: File, text: str) -> Symbol | None:
        first = text.partition(".")[0]
        known = first in file.imports or first in file.classes or first in file.functions
        return file.resolve(text) if known and first not in file.values else UNKNOWN

    def _signature_known(self, callee: Callee) -> bool:
        names = [cls.name for cls in callee.owner.mro] if callee.owner else []
        if any((name, callee.node.name) in self.patched for name in [*names, *([""] if names else [])]):
            return False
        if callee.makes and ("", callee.makes.name) in self.patched:
            return False
        return all(self._transparent(node, callee.file) for node in callee.node.decorator_list)

    def _transparent(self, node: ast.expr, file: File) -> bool:
        if last_name(node) in _TRANSPARENT | _CONTEXT_MANAGERS:
            return True
        found = file.resolve(node.func if isinstance(node, ast.Call) else node)
        return isinstance(found, FunctionSymbol) and any(
            last_name(item) == "wraps"
            for inner in ast.walk(found.node)
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            for item in inner.decorator_list
        )


@functools.lru_cache(maxsize=2)
def resolver_of(program: Program) -> Resolver:
    """The resolver of these trees, one for all checks."""
    return Resolver(program)


def dotted(expr: ast.expr) -> str | None:
    """``a.b.c`` of a name or attribute, None for anything else."""
    parts: list[str] = []
    while isinstance(expr, ast.Attribute):
        parts.append(expr.attr)
        expr = expr.value
    if not isinstance(expr, ast.Name):
        return None
    return ".".join([expr.id, *reversed(parts)])


def is_context_manager(node: Function) -> bool:
    """Whether a call gives a context manager rather than what the body returns."""
    return any(last_name(item) in _CONTEXT_MANAGERS for item in node.decorator_list)


def _definitions(symbol: FunctionSymbol) -> list[Function]:
    """All definitions of a function in its file, those in other branches included."""
    nodes = (node for node in top_level(symbol.file.tree.body))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    same = [node for node in functions if node.name == symbol.node.name]
    return [node for node in same if "overload" not in map(last_name, node.decorator_list)] or [symbol.node]


def _is_super(call: ast.Call, scope: Scope) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "super" and not call.args


def _sets(node: ast.stmt, name: str) -> bool:
    """Whether a statement sets the attribute to its value as a whole."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, (ast.Attribute, ast.Name)) for target in targets)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _unknown_between(cls: ClassSymbol, lower: ClassSymbol, upper: ClassSymbol) -> bool:
    """Whether a base outside the trees may come between two classes of an MRO."""
    place, end = cls.mro.index(lower) if lower in cls.mro else 0, cls.mro.index(upper)
    return any(
        base is UNKNOWN and last_name(node).partition("[")[0] not in CLOSED_BASES
        for owner in cls.mro[place:end]
        for base, node in zip(owner.bases, owner.node.bases, strict=True)
    )
