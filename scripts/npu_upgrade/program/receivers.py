"""The classes that the objects may have on which a function calls methods."""

from __future__ import annotations

import ast

from npu_upgrade.program.factories import made_by
from npu_upgrade.program.program import UNKNOWN, ClassSymbol, Method, Symbol
from npu_upgrade.program.scope import Scope
from npu_upgrade.program.symbols import Symbols


class Receivers:
    """Types ``self``, attributes of ``self`` and local names by what they are set to."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols

    def classes_of(self, expr: ast.expr, scope: Scope) -> list[ClassSymbol]:
        """The classes an expression's value may have: ``self``, ``self.x`` and local names made here."""
        if isinstance(expr, ast.Name):
            if scope.cls and expr.id == scope.self_name:
                return [scope.cls]
            value = self.symbols.body(scope.node).value(expr.id)
            return self._made(value, scope) if value is not None else []
        if isinstance(expr, ast.Attribute) and scope.cls and is_self(expr.value, scope):
            return self._attribute(scope.cls, expr.attr)
        return []

    def _attribute(self, cls: ClassSymbol, name: str) -> list[ClassSymbol]:
        """The classes that ``self.name`` is set to, by the first class of the MRO that sets it."""
        for owner in cls.mro:
            if name in owner.methods or name in owner.fields:
                return []
            if name in owner.assigned:
                made = [self._set(method, node, cls) for method, node in owner.assigned[name]]
                if None in made:
                    return []
                if found := [item for classes in made if classes for item in classes]:
                    return list(dict.fromkeys(found))
        return []

    def _set(self, method: Method, node: ast.stmt, cls: ClassSymbol) -> list[ClassSymbol] | None:
        """The classes that one statement sets an attribute to, empty for None; None when it does not tell."""
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is None:
            return [] if isinstance(node, ast.AnnAssign) else None
        if _is_none(value):
            return []
        made = self._made(value, Scope(method.owner.file, method.node, method.owner, cls))
        return made if made and _sets_whole(node) else None

    def _made(self, value: ast.expr, scope: Scope) -> list[ClassSymbol]:
        if isinstance(value, ast.IfExp):
            parts = [self._made(part, scope) for part in (value.body, value.orelse) if not _is_none(part)]
            return [cls for part in parts for cls in part] if all(parts) else []
        if not isinstance(value, ast.Call):
            return []
        symbol = self.symbols.symbol(value.func, scope)
        if isinstance(value.func, ast.Attribute) and scope.cls and is_self(value.func.value, scope):
            symbol = self._class_field(scope.cls, value.func.attr)
        elif isinstance(value.func, ast.Attribute) and not isinstance(symbol, ClassSymbol):
            maker = self.symbols.symbol(value.func.value, scope)
            return made_by(maker, value.func.attr) if isinstance(maker, ClassSymbol) else []
        return [symbol] if isinstance(symbol, ClassSymbol) else []

    def _class_field(self, cls: ClassSymbol, name: str) -> Symbol | None:
        """The class that a class keeps in a field: ``runner_cls = Runner``."""
        for owner in cls.mro:
            if name in owner.fields:
                node = owner.fields[name]
                value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
                return owner.file.resolve(value) if isinstance(value, (ast.Name, ast.Attribute)) else UNKNOWN
        return UNKNOWN


def is_self(expr: ast.expr, scope: Scope) -> bool:
    """Whether an expression is the object a method works on."""
    return isinstance(expr, ast.Name) and expr.id == scope.self_name


def _sets_whole(node: ast.stmt) -> bool:
    """Whether a statement sets its targets to its value as a whole."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, (ast.Attribute, ast.Name)) for target in targets)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
