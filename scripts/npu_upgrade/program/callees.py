"""What a call in a function reaches, as far as the trees tell."""

from __future__ import annotations

import ast
import functools

from npu_upgrade.code.definitions import top_level
from npu_upgrade.code.signatures import Function, is_bound, last_name
from npu_upgrade.code.walk import walk
from npu_upgrade.program.constructors import CLOSED_BASES, constructor
from npu_upgrade.program.patches import patched_names
from npu_upgrade.program.program import UNKNOWN, ClassSymbol, File, FunctionSymbol, Method, Program, Symbol
from npu_upgrade.program.receivers import Receivers, is_self
from npu_upgrade.program.scope import Callee, How, Scope
from npu_upgrade.program.symbols import Symbols

# Decorators that leave the signature and the value as they are.
_TRANSPARENT = {
    *("staticmethod", "classmethod", "abstractmethod", "override", "final", "cache", "lru_cache"),
    *("no_grad", "inference_mode", "disable", "deprecated", "instrument"),
}
_CONTEXT_MANAGERS = {"contextmanager", "asynccontextmanager"}


class Resolver:
    """Finds what calls reach in the functions of a world's trees; answers are kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.patched = patched_names(program)
        symbols = Symbols(program)
        self.body, self.symbol = symbols.body, symbols.symbol
        self.receivers = Receivers(symbols)

    def callees(self, call: ast.Call, scope: Scope) -> list[Callee]:
        """The functions that ``call`` may reach, nearest first; empty when the trees do not tell."""
        found = self._callees(call, scope)
        return found if all(self._signature_known(callee) for callee in found) else []

    def _callees(self, call: ast.Call, scope: Scope) -> list[Callee]:
        func = call.func
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Call) and _is_super(func.value, scope):
                return self._above(func.attr, scope)
            owners = self.receivers.classes_of(func.value, scope)
            by: How = "self" if is_self(func.value, scope) else "attribute"
            if owners:
                found = [self._method(cls, func.attr, by) for cls in owners]
                return [callee for callee in found if callee] if None not in found else []
        return self._named(self.symbol(func, scope), func, scope)

    def _named(self, symbol: Symbol | None, func: ast.expr, scope: Scope) -> list[Callee]:
        if isinstance(symbol, FunctionSymbol):
            symbols = self._replaced(symbol)
            return [Callee(node, s.file, None, False, "name") for s in symbols for node in _definitions(s)]
        if isinstance(symbol, ClassSymbol):
            # A __new__ of the trees may make an object of another class than the one that is called.
            swapped = any("__new__" in cls.methods for cls in symbol.mro)
            init = None if swapped else constructor(symbol)
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

    def _method(self, cls: ClassSymbol, name: str, by: How) -> Callee | None:
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
            for inner in walk(found.node)
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            for item in inner.decorator_list
        )


@functools.lru_cache(maxsize=2)
def resolver_of(program: Program) -> Resolver:
    """The resolver of these trees, one for all checks."""
    return Resolver(program)


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


def _unknown_between(cls: ClassSymbol, lower: ClassSymbol, upper: ClassSymbol) -> bool:
    """Whether a base outside the trees may come between two classes of an MRO."""
    place, end = cls.mro.index(lower) if lower in cls.mro else 0, cls.mro.index(upper)
    return any(
        base is UNKNOWN and last_name(node).partition("[")[0] not in CLOSED_BASES
        for owner in cls.mro[place:end]
        for base, node in zip(owner.bases, owner.node.bases, strict=True)
    )
