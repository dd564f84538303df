"""What a call in a function reaches, as far as the trees tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from npu_upgrade.code.definitions import absolute, top_level
from npu_upgrade.code.names import Import
from npu_upgrade.code.signatures import Function, is_bound
from npu_upgrade.code.walk import dotted, is_super, last_name, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.body import Body, read_body
from npu_upgrade.program.constructors import CLOSED_BASES, constructor, until_constructor
from npu_upgrade.program.program import (
    UNKNOWN,
    ClassSymbol,
    File,
    FunctionSymbol,
    Method,
    ModuleSymbol,
    Program,
    Symbol,
    ValueSymbol,
)
from npu_upgrade.program.scope import TRANSPARENT, Callee, How, Scope
from npu_upgrade.program.type_terms import classes
from npu_upgrade.program.types import Types

_TRANSPARENT = TRANSPARENT | {"no_grad", "inference_mode", "disable", "deprecated", "instrument"}
_CONTEXT_MANAGERS = {"contextmanager", "asynccontextmanager"}


class Resolver:
    """Finds what calls reach in the functions of a world's trees; answers are kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.patched = patched_names(program)
        symbols = Symbols(program)
        self.body, self.symbol = symbols.body, symbols.symbol
        self.types = Types()

    def callees(self, call: ast.Call, scope: Scope) -> list[Callee]:
        """The functions that ``call`` may reach, nearest first; empty when the trees do not tell."""
        found = self._callees(call, scope)
        return found if all(self._signature_known(callee) for callee in found) else []

    def gives(self, node: Function) -> bool:
        """Whether a call of a function has a value: it returns one, or yields."""
        body = self.body(node)
        values = (item.value for item in body.returns)
        said = (v for v in values if v and not (isinstance(v, ast.Constant) and v.value is None))
        return body.yields or any(said)

    def _callees(self, call: ast.Call, scope: Scope) -> list[Callee]:
        func = call.func
        if isinstance(func, ast.Attribute):
            if is_super(func.value) and not func.value.args:
                return self._above(func.attr, scope)
            owners = self._classes_of(func.value, scope)
            by: How = "self" if is_self(func.value, scope) else "attribute"
            if owners:
                found = [self._method(cls, func.attr, by) for cls in owners]
                if any(found):
                    return [callee for callee in found if callee] if None not in found else []
                return self._named(self._held(func, scope), func, scope) if by == "self" else []
        symbol = self._given(func, scope) if isinstance(func, ast.Call) else self.symbol(func, scope)
        return self._named(symbol, func, scope) or self._original(func, scope)

    def _held(self, func: ast.Attribute, scope: Scope) -> Symbol | None:
        """The class that a class attribute of the object stands for, where nothing sets another."""
        mro = scope.cls.mro if scope.cls else ()
        if any(func.attr in owner.assigned for owner in mro):
            return UNKNOWN
        holder = next((owner for owner in mro if func.attr in owner.fields), None)
        value = getattr(holder.fields[func.attr], "value", None) if holder else None
        symbol = holder.file.resolve(value) if holder and value is not None and dotted(value) else UNKNOWN
        return symbol if isinstance(symbol, ClassSymbol) else UNKNOWN

    def _given(self, call: ast.Call, scope: Scope) -> Symbol | None:
        """The class that the function called gives, where that is one."""
        made = self.symbol(call.func, scope)
        if not isinstance(made, FunctionSymbol):
            return UNKNOWN
        returns = [item.value for item in self.body(made.node).returns]
        there = Scope(made.file, made.node)
        found = {self.symbol(value, there) if value else None for value in returns}
        symbol = found.pop() if len(found) == 1 else UNKNOWN
        return symbol if isinstance(symbol, ClassSymbol) else UNKNOWN

    def _original(self, func: ast.expr, scope: Scope) -> list[Callee]:
        """The method or function that a global of the file keeps before a patch takes its place."""
        if not isinstance(func, ast.Name) or func.id not in scope.file.values:
            return []
        kept = [value for value in _set_to(scope.file, func.id) if not isinstance(value, ast.Constant)]
        if len(kept) != 1 or not dotted(kept[0]):
            return []
        value = kept[0]
        symbol = scope.file.resolve(value)
        if isinstance(symbol, FunctionSymbol):
            return [Callee(symbol.node, symbol.file, None, False, "name")]
        if not isinstance(value, ast.Attribute):
            return []
        owner = scope.file.resolve(value.value)
        method = owner.lookup(value.attr) if isinstance(owner, ClassSymbol) else None
        return [Callee(method.node, method.owner.file, None, False, "name")] if method else []

    def _classes_of(self, expr: ast.expr, scope: Scope) -> list[ClassSymbol]:
        """The classes that what a method is called on may have."""
        if scope.cls and is_self(expr, scope):
            return [scope.cls]
        if isinstance(expr, ast.Attribute) and scope.cls and is_self(expr.value, scope):
            known = self.types.nearest(scope.cls, expr.attr)
        else:
            known = self.types.of(expr, scope)
        return sorted(classes(known), key=lambda cls: (cls.file.path, cls.name))

    def _named(self, symbol: Symbol | None, func: ast.expr, scope: Scope) -> list[Callee]:
        if isinstance(symbol, FunctionSymbol):
            symbols = self._replaced(symbol)
            return [Callee(node, s.file, None, False, "name") for s in symbols for node in _definitions(s)]
        if isinstance(symbol, ClassSymbol):
            # A __new__ of the trees may make an object of another class than the one that is called.
            swapped = any("__new__" in cls.methods for cls in symbol.mro)
            init = None if swapped else constructor(symbol)
            return [Callee(init, symbol.file, symbol, True, "name", symbol)] if init else []
        if isinstance(symbol, ValueSymbol) and symbol.file is not scope.file:
            return [Callee(one.node, one.file, None, False, "name") for one in _functions_of(symbol)]
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
        owners = list(until_constructor(callee.makes)) if callee.makes else [callee.owner]
        names = [cls.name for cls in owners if cls]
        if any((name, callee.node.name) in self.patched for name in [*names, *([""] if names else [])]):
            return False
        if callee.makes and any(("", cls.name) in self.patched for cls in callee.makes.mro):
            return False
        return all(self._transparent(node, callee.file) for node in callee.node.decorator_list)

    def _transparent(self, node: ast.expr, file: File) -> bool:
        if last_name(node) in _TRANSPARENT | _CONTEXT_MANAGERS:
            return True
        found = file.resolve(node.func if isinstance(node, ast.Call) else node)
        return isinstance(found, FunctionSymbol) and any(
            last_name(item) == "wraps"
            for inner in walk(found.node)
            if isinstance(inner, Function)
            for item in inner.decorator_list
        )


@held
def resolver_of(program: Program) -> Resolver:
    """The resolver of these trees, one for all checks."""
    return Resolver(program)


def is_context_manager(node: Function) -> bool:
    """Whether a call gives a context manager rather than what the body returns."""
    return any(last_name(item) in _CONTEXT_MANAGERS for item in node.decorator_list)


def _functions_of(symbol: ValueSymbol) -> list[FunctionSymbol]:
    """The functions that a global stands for, one of them by a condition; none where it is not so."""
    targets = getattr(symbol.node, "targets", ())
    name = next((one.id for one in targets if isinstance(one, ast.Name)), "")
    values = [part for one in _set_to(symbol.file, name) for part in _either(one)]
    found = [symbol.file.resolve(value) if dotted(value) else None for value in values]
    functions = [one for one in found if isinstance(one, FunctionSymbol)]
    return functions if len(functions) == len(found) else []


def _either(value: ast.expr) -> list[ast.expr]:
    """What a value is, by whichever condition."""
    return [*_either(value.body), *_either(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _set_to(file: File, name: str) -> list[ast.expr]:
    """What a global is set to, wherever in its file."""
    stores = (node for node in file.nodes if isinstance(node, ast.Assign))
    return [n.value for n in stores if any(isinstance(t, ast.Name) and t.id == name for t in n.targets)]


def _definitions(symbol: FunctionSymbol) -> list[Function]:
    """All definitions of a function in its file, those in other branches included."""
    nodes = (node for node in top_level(symbol.file.tree.body))
    functions = [node for node in nodes if isinstance(node, Function)]
    same = [node for node in functions if node.name == symbol.node.name]
    return [node for node in same if "overload" not in map(last_name, node.decorator_list)] or [symbol.node]


def _unknown_between(cls: ClassSymbol, lower: ClassSymbol, upper: ClassSymbol) -> bool:
    """Whether a base outside the trees may come between two classes of an MRO."""
    place, end = cls.mro.index(lower) if lower in cls.mro else 0, cls.mro.index(upper)
    return any(last_name(node) not in CLOSED_BASES for one in cls.mro[place:end] for node in one.outside)


class Symbols:
    """The functions of some trees, read once each, and the names in them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._bodies: dict[int, Body] = {}
        self._names: dict[tuple[int, str], Symbol | None] = {}

    def body(self, node: Function | ast.Module) -> Body:
        """The parts of a function."""
        if id(node) not in self._bodies:
            self._bodies[id(node)] = read_body(node)
        return self._bodies[id(node)]

    def symbol(self, expr: ast.expr, scope: Scope) -> Symbol | None:
        """What a name or dotted name stands for in a function; UNKNOWN for local values."""
        text = dotted(expr)
        if not text:
            return UNKNOWN
        first = text.partition(".")[0]
        body = self.body(scope.node)
        if first in body.bound:
            return UNKNOWN
        if items := body.imports.get(first):
            return self._local_import([absolute(item, scope.file.path) for item in items], text)
        key = (id(scope.file), text)
        if key not in self._names:
            self._names[key] = self._in_file(scope.file, text) if self._is_one(scope.file, first) else UNKNOWN
        return self._names[key]

    def _is_one(self, file: File, name: str) -> bool:
        """Whether a name is imported from one place, or as a class or its heirs: the class is meant then."""
        items = file.imports.get(name, [])
        if len(items) < 2:
            return True
        meant, found = file.resolve(name), [self.program.imported(item) for item in items]
        return all(isinstance(one, ClassSymbol) and meant in one.mro for one in found)

    def _local_import(self, items: Iterable[Import], text: str) -> Symbol | None:
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


def is_self(expr: ast.expr, scope: Scope) -> bool:
    """Whether an expression is the object a method works on."""
    return isinstance(expr, ast.Name) and expr.id == scope.self_name


# A class (empty for a module or an object) and a name set on it -> files, and the name put there.
Patched = dict[tuple[str, str], list[tuple[str, str]]]
_SET = re.compile(r"^[ \t]*(?!self\.)([A-Za-z_][\w.]*)\.(\w+)\s*=(?!=)[ \t]*(\w*)[ \t]*(.*)$", re.MULTILINE)
_SETATTR = re.compile(r"\bsetattr\(\s*([\w.]+)\s*,\s*[\"'](\w+)[\"']")
_ALIAS = re.compile(r"^[ \t]*(\w+)\s*=\s*[\w.]+\.(\w+)[ \t]*$", re.MULTILINE)


def patched_names(program: Program) -> Patched:
    """What is put where, read as text from all files that have ``patch`` in their path.

    The name put there is empty where it is anything but a plain name.
    """
    found: Patched = {}
    for package, tree in program.trees.items():
        paths = tree.list(package) if package != "vllm" else []
        for path in paths:
            if "patch" in path and path.endswith(".py"):
                for key, name in _patches_in(program.text(path)):
                    found.setdefault(key, []).append((path, name))
    return found


def _patches_in(text: str) -> list[tuple[tuple[str, str], str]]:
    aliases = dict(_ALIAS.findall(text))
    found = [
        (target, name, "" if rest.partition("#")[0].strip() else value)
        for target, name, value, rest in _SET.findall(text)
    ]
    found += [(target, name, "") for target, name in _SETATTR.findall(text)]
    return [((_class_name(target, aliases), name), value) for target, name, value in found]


def _class_name(target: str, aliases: dict[str, str]) -> str:
    last = target.rpartition(".")[2]
    last = aliases.get(last, last)
    return last if last.lstrip("_")[:1].isupper() else ""
