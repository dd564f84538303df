"""A small type inference: over annotations, constructor calls and what ``self.x`` is set to.

Whatever is not certain is None. Nothing outside the trees is known, tensors excepted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import dotted, last_name, string, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol, Method, Program, ValueSymbol
from npu_upgrade.program.scope import PROPERTIES, TRANSPARENT, Binding, Scope, decorators, scope_of
from npu_upgrade.program.self_use import Write, methods_on, self_use
from npu_upgrade.program.type_terms import (
    TENSOR,
    Type,
    annotated,
    classes,
    element,
    is_mapping,
    made_by,
    own_statements,
    union,
)

_PLAIN = TRANSPARENT | {"instrument"}
_MAKES_TENSOR = {
    *("zeros", "ones", "empty", "full", "arange", "tensor", "as_tensor"),
    *("zeros_like", "ones_like", "empty_like", "full_like"),
}
# What gives a value of a dictionary by its key; None, which ``get`` may give, is left out as elsewhere.
_TAKES = {"get", "pop", "setdefault"}
_DEEP = 12


class Types:
    """Answers are kept."""

    def __init__(self) -> None:
        self._attributes: dict[tuple[ClassSymbol, str], Type | None] = {}
        self._written: dict[ClassSymbol, dict[str, list[list[tuple[Method, Write]]]]] = {}
        self._names: dict[tuple[Function | ast.Module, ClassSymbol | None, str], Type | None] = {}
        self._deep = 0

    def of(self, node: ast.expr | None, scope: Scope) -> Type | None:
        """The type of an expression in a function."""
        self._deep += 1
        try:
            return self._of(node, scope) if node is not None and self._deep <= _DEEP else None
        finally:
            self._deep -= 1

    def attribute(self, cls: ClassSymbol, name: str) -> Type | None:
        """The type of an attribute of an object of ``cls``."""
        key = (cls, name)
        if key not in self._attributes:
            self._attributes[key] = None  # what depends on itself is unknown
            self._attributes[key] = self._attribute(cls, name)
        return self._attributes[key]

    def nearest(self, cls: ClassSymbol, name: str) -> Type | None:
        """The type of an attribute by the nearest class that sets it, whatever the parents put there."""
        writes = [] if cls.lookup(name) else self.writes(cls, name)
        own = (self._value(cls, m, w) for m, w in writes if m.owner is writes[0][0].owner)
        return (union(own) if writes else None) or self.attribute(cls, name)

    def writes(self, cls: ClassSymbol, name: str) -> list[tuple[Method, Write]]:
        """The assignments to an attribute that count on objects of ``cls``, nearest class first.

        A class that sets it in ``__init__`` after its parents' did hides what those set there.
        """
        found: list[tuple[Method, Write]] = []
        hidden = False
        for own in self._writes(cls).get(name, []):
            found += [(m, w) for m, w in own if not (hidden and m.name == "__init__")]
            hidden |= any(m.name == "__init__" and _after_parents(m, w) for m, w in own)
        return found

    def _writes(self, cls: ClassSymbol) -> dict[str, list[list[tuple[Method, Write]]]]:
        """The assignments in the methods that run on objects of a class, by attribute and by class."""
        if cls not in self._written:
            found = self._written[cls] = {}
            running = {id(method.node) for method in methods_on(cls)}
            for owner in cls.mro:
                own: dict[str, list[tuple[Method, Write]]] = {}
                for method in (m for m in owner.methods.values() if id(m.node) in running):
                    for name, writes in self_use(method.node).writes.items():
                        own.setdefault(name, []).extend((method, write) for write in writes)
                for name, writes in own.items():
                    found.setdefault(name, []).append(writes)
        return self._written[cls]

    def _of(self, node: ast.expr, scope: Scope) -> Type | None:
        if dotted(node) in scope.locals.narrowed:
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return (
                union(self.attribute(cls, node.attr) for cls in known)
                if (known := classes(self.of(node.value, scope)))
                else None
            )
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.IfExp):
            return union([self.of(node.body, scope), self.of(node.orelse, scope)])
        if isinstance(node, ast.BoolOp):
            return union(self.of(value, scope) for value in node.values)
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value, scope)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return element(self.of(node.value, scope))
        return frozenset() if isinstance(node, ast.Constant) and node.value is None else None

    def _name(self, name: str, scope: Scope) -> Type | None:
        if name == scope.first:
            return frozenset({scope.cls}) if scope.cls else None
        key = (scope.node, scope.cls, name)
        if key not in self._names:
            self._names[key] = None
            bindings = self._bindings(name, scope)
            known = union(self._bound(item, scope) for item in bindings) if bindings else None
            imported = not bindings or name in scope.file.local_imports
            made = lazy_global(scope.file, name) if known is None and imported else None
            self._names[key] = frozenset({made}) if made else known
        return self._names[key]

    def _bindings(self, name: str, scope: Scope) -> list[Binding]:
        """What may give a name its value; in a module, all that any of its functions puts there too."""
        found = scope.locals.names.get(name, [])
        if isinstance(scope.node, ast.Module):
            return [item for item in found if item.how != "global"]
        return found or ([Binding("global", ast.Name(name))] if name in scope.file.values else [])

    def _bound(self, binding: Binding, scope: Scope) -> Type | None:
        if binding.how == "annotation":
            return annotated(scope.file, binding.node)
        if binding.how == "value":
            return self.of(binding.node, scope)
        if binding.how == "global" and isinstance(binding.node, ast.Name):
            return self._global(scope.file, binding.node.id)
        if binding.how in ("element", "key"):
            return element(self.of(binding.node, scope), key=binding.how == "key")
        return None

    def _global(self, file: File, name: str) -> Type | None:
        """The type of a name at the top level of a file, as annotated, else by all that it is set to."""
        statement = file.values.get(name)
        if isinstance(statement, ast.AnnAssign):
            return annotated(file, statement.annotation) if statement.value else None
        return self._name(name, Scope(file, file.tree)) if name not in file.imports else None

    def _call(self, node: ast.Call, scope: Scope) -> Type | None:
        func = node.func
        if isinstance(func, ast.Call):
            return self._of_class_given(func, scope)
        if isinstance(func, ast.Attribute):
            if func.attr in _TAKES and (taken := self._taken(node, func, scope)):
                return taken
            if known := classes(self.of(func.value, scope)):
                own = isinstance(func.value, ast.Name) and func.value.id == scope.first
                return union(self._returned(cls, func.attr, own) for cls in known)
            if isinstance(func.value, ast.Name) and func.value.id == "torch" and func.attr in _MAKES_TENSOR:
                return frozenset({TENSOR})
        name = dotted(func)
        if not name or name.partition(".")[0] in self._own_names(scope):
            return None
        if name.rpartition(".")[2] == "cast" and len(node.args) == 2:
            return annotated(scope.file, node.args[0])
        found = scope.file.resolve(name)
        if isinstance(found, ClassSymbol):
            return frozenset({found})
        if isinstance(found, FunctionSymbol):
            return self._given(Scope(found.file, found.node))
        return self._made(name, scope)

    def _of_class_given(self, node: ast.Call, scope: Scope) -> Type | None:
        """What the class makes that a function or ``Class.method`` is declared to give: ``type[X]``."""
        name = dotted(node.func)
        if not name or name.partition(".")[0] in self._own_names(scope):
            return None
        if (found := self._called(name, scope)) is None:
            return None
        file, given = found[0], found[1].returns
        if not isinstance(given, ast.Subscript) or last_name(given.value) not in ("type", "Type"):
            return None
        return annotated(file, given.slice)

    @staticmethod
    def _called(name: str, scope: Scope) -> tuple[File, Function] | None:
        """The function, or the method of a class, that a dotted name leads to."""
        owner, _, method = name.rpartition(".")
        cls = scope.file.resolve(owner) if owner else None
        if isinstance(cls, ClassSymbol) and (known := cls.lookup(method)):
            return known.owner.file, known.node
        found = scope.file.resolve(name)
        return (found.file, found.node) if isinstance(found, FunctionSymbol) else None

    def _taken(self, node: ast.Call, func: ast.Attribute, scope: Scope) -> Type | None:
        """What a dictionary of known values gives by ``get`` and its like, or the default beside it."""
        holder = self.of(func.value, scope)
        if not is_mapping(holder):
            return None
        return union([element(holder), *(self.of(default, scope) for default in node.args[1:2])])

    def _made(self, name: str, scope: Scope) -> Type | None:
        """What ``Class.method(...)`` makes."""
        owner, _, method = name.rpartition(".")
        cls = scope.file.resolve(owner) if owner else None
        return frozenset(made_by(cls, method)) or None if isinstance(cls, ClassSymbol) else None

    def _own_names(self, scope: Scope) -> set[str]:
        """Local names, less those of imports inside the function; of a module, what it computes."""
        file = scope.file
        known = {*file.imports, *file.functions} if isinstance(scope.node, ast.Module) else set()
        return scope.locals.names.keys() - file.local_imports.keys() - known

    def _returned(self, cls: ClassSymbol, name: str, own: bool) -> Type | None:
        """What a method gives, or the class that a field holds.

        ``own``: it is called on ``self``, so that no heir's runs in its place.
        """
        method = cls.lookup(name)
        if method is None:
            holder = next((owner for owner in cls.mro if name in owner.fields), None)
            value = getattr(holder.fields[name], "value", None) if holder else None
            plain = isinstance(value, (ast.Name, ast.Attribute)) and not self.writes(cls, name)
            found = holder.file.resolve(value) if holder and plain and own else None
            return frozenset({found}) if isinstance(found, ClassSymbol) else None
        if isinstance(method.node.returns, ast.Name) and method.node.returns.id == "Self":
            return frozenset({cls})
        return self._given(scope_of(cls, method), inferred=own)

    def _given(self, scope: Scope, inferred: bool = True) -> Type | None:
        """What a function gives, as annotated, else by all that it returns."""
        node = scope.node
        if not isinstance(node, ast.FunctionDef) or decorators(node) - _PLAIN:
            return None
        if node.returns or not inferred:
            return annotated(scope.file, node.returns)
        if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in walk(node)):
            return None
        values = [item.value for item in own_statements(node) if isinstance(item, ast.Return) and item.value]
        return union(self.of(value, scope) for value in values) if values else None

    def _attribute(self, cls: ClassSymbol, name: str) -> Type | None:
        if method := cls.lookup(name):
            known = decorators(method.node) & PROPERTIES
            return annotated(method.owner.file, method.node.returns) if known else None
        writes = self.writes(cls, name)
        declared = self._declared(cls, name)
        if not writes:
            return declared
        inferred = union(self._value(cls, method, write) for method, write in writes)
        return inferred if inferred else declared

    def _value(self, cls: ClassSymbol, method: Method, write: Write) -> Type | None:
        known = annotated(method.owner.file, write.annotation) if write.annotation else None
        return known if known is not None else self.of(write.value, scope_of(cls, method))

    def _declared(self, cls: ClassSymbol, name: str) -> Type | None:
        """By an annotation without a value, in a class body or a method."""
        for owner in cls.mro:
            node = owner.fields.get(name)
            if isinstance(node, ast.AnnAssign):
                return annotated(owner.file, node.annotation)
            if node is not None:
                return None
            for method in owner.methods.values():
                if found := self_use(method.node).declared.get(name):
                    return annotated(owner.file, found)
        return None


def _after_parents(method: Method, write: Write) -> bool:
    """Whether an assignment in ``__init__`` comes after the parents' ``__init__``, if that is called."""
    call = self_use(method.node).supers.get("__init__")
    return call is None or write.node.lineno > call.lineno


_DEVICE = "vllm-ascend"


def lazy_global(file: File, name: str) -> ClassSymbol | None:
    """The class of the object that an imported name stands for on an NPU; None for any other name."""
    items = file.imports.get(name) or file.local_imports.get(name, [])
    if len({(item.module, item.name) for item in items}) != 1 or not items[0].name:
        return None
    return _of_value(file.program, items[0].module, items[0].name)


@held
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
                owner, _, name = string(node).rpartition(".")
                symbol = program.lookup(owner, name) if owner and name.isidentifier() else None
                if isinstance(symbol, ClassSymbol):
                    yield symbol
