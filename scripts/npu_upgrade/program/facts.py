"""What a function does that another backend's version of it has to do too: calls and reads, by name.

A fact is something that stays the same when code is ported from one device to another: a method
of the runner, a function or class of vllm-omni, an attribute of the model, a method of a member.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from npu_upgrade.code.signatures import Function, passes_on
from npu_upgrade.code.walk import dotted, is_super, string, walk
from npu_upgrade.ground.held import held
from npu_upgrade.program.program import ClassSymbol, File, FunctionSymbol, Method
from npu_upgrade.sources.tree import PACKAGES

_HAVE_MODEL = ("self", "self.model_runner")
METHOD, MODEL, FUNCTION, CLASS, MEMBER = "method", "model", "function", "class", "member"
_GETTERS = {"getattr", "hasattr"}
_OWN = "vllm-omni"


@dataclass(frozen=True)
class Fact:
    """One thing a function does. ``kind`` says what ``name`` names.

    ``method``: ``self.name``; ``model``: an attribute of the model; ``function`` and ``class``: one of
    vllm-omni's, called; ``member``: ``self.a.b(...)`` as ``a.b``. ``node`` is the first place, ``call``
    whether it is called, ``effect`` whether that is a statement of its own.
    """

    kind: str
    name: str
    node: ast.expr
    call: bool
    effect: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


@dataclass(frozen=True)
class Facts:
    """The facts of one function by key, in the order of its text; ``supers`` are the methods it calls on
    ``super()``, ``explicit`` those it calls on a class by name, ``symbols`` functions of vllm-omni,
    ``named`` the strings it gives to its own methods, which may be attributes of the model.
    """

    of: dict[tuple[str, str], Fact]
    supers: frozenset[str]
    explicit: tuple[tuple[ClassSymbol, str], ...]
    symbols: tuple[FunctionSymbol, ...]
    named: tuple[Fact, ...]

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self.of or any(fact.key == key for fact in self.named)


NO_FACTS = Facts({}, frozenset(), (), (), ())


@held
def facts_of(file: File, node: Function) -> Facts:
    """The facts in the body of a function, nested functions included."""
    return _Reader(file, node).read()


class _Reader:
    """Reads one function; a class only because its parts share what the function binds."""

    def __init__(self, file: File, node: Function) -> None:
        self.file, self.node = file, node
        self.nodes = list(walk(node))
        self.models = self._model_names()
        self.called = {id(n.func): n for n in self.nodes if isinstance(n, ast.Call)}
        self.effects = {id(n.value) for n in self.nodes if isinstance(n, ast.Expr)}
        self.used = {
            name.id
            for n in self.nodes
            if isinstance(n, ast.Call)
            for name in [n.func, *n.args]
            if isinstance(name, ast.Name) and (name is n.func or dotted(n.func) == "callable")
        }
        self.facts: dict[tuple[str, str], Fact] = {}
        self.supers: set[str] = set()
        self.explicit: list[tuple[ClassSymbol, str]] = []
        self.symbols: dict[int, FunctionSymbol] = {}
        self.named: dict[str, Fact] = {}

    def read(self) -> Facts:
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._attribute(node)
            elif isinstance(node, ast.Call):
                self._call(node)
        return Facts(
            dict(sorted(self.facts.items(), key=lambda item: item[1].node.lineno)),
            frozenset(self.supers),
            tuple(self.explicit),
            tuple(self.symbols.values()),
            tuple(self.named.values()),
        )

    def _attribute(self, node: ast.Attribute) -> None:
        if self._is_model(node.value):
            self._add(MODEL, node.attr, node, id(node) in self.called)
        elif isinstance(node.value, ast.Name) and node.value.id == "self":
            self._add(METHOD, node.attr, node, id(node) in self.called)
        elif is_super(node.value):
            self.supers.add(node.attr)
        elif id(node) in self.called and (path := dotted(node)).startswith("self."):
            self._add(MEMBER, path.removeprefix("self."), node, True)

    def _call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        if name in _GETTERS and len(node.args) > 1:
            attribute = string(node.args[1])
            if attribute and self._is_model(node.args[0]):
                self._add(MODEL, attribute, node, self._is_called(node))
        elif name.startswith("self."):
            for arg in node.args:
                if string(arg).isidentifier():
                    self.named.setdefault(string(arg), Fact(MODEL, string(arg), arg, False))
        elif name:
            self._symbol(name, node)

    def _symbol(self, name: str, node: ast.Call) -> None:
        if "." not in name and not self._may_be_own(name):
            return
        symbol = self.file.resolve(name)
        if isinstance(symbol, FunctionSymbol) and symbol.file.project == _OWN:
            self.symbols.setdefault(id(symbol.node), symbol)
            self._add(FUNCTION, symbol.node.name, node, True)
        elif isinstance(symbol, ClassSymbol) and symbol.project == _OWN:
            self._add(CLASS, symbol.name, node, True)
        elif "." in name and isinstance(owner := self.file.resolve(name.rpartition(".")[0]), ClassSymbol):
            self.explicit.append((owner, name.rpartition(".")[2]))

    def _may_be_own(self, name: str) -> bool:
        """Whether a name may stand for something of vllm-omni's; what others export is theirs."""
        file = self.file
        items = file.imports.get(name) or file.local_imports.get(name, [])
        here = name in file.functions or name in file.classes or "*" in file.imports
        return here or any(PACKAGES.get(item.module.partition(".")[0]) == _OWN for item in items)

    def _add(self, kind: str, name: str, node: ast.expr, call: bool) -> None:
        known = self.facts.get((kind, name))
        if known is None or (call and not known.call) or node.lineno < known.node.lineno:
            place = self.called.get(id(node), node)
            effect = id(place) in self.effects or bool(known and known.effect)
            self.facts[(kind, name)] = Fact(kind, name, node, call or bool(known and known.call), effect)

    def _is_called(self, node: ast.Call) -> bool:
        """Whether what a ``getattr`` gives is called: there and then, or under the name it is given."""
        if id(node) in self.called:
            return True
        return any(target in self.used for target in self._bound.get(id(node), ()))

    @functools.cached_property
    def _bound(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                found.setdefault(id(node.value), []).extend(names)
        return found

    def _model_names(self) -> set[str]:
        """Names that stand for the model: parameters called so, and what is bound to it."""
        names = {arg.arg for n in self.nodes if isinstance(n, ast.arguments) for arg in n.args + n.kwonlyargs}
        self.models, self.runners = names & {"model"}, {*_HAVE_MODEL}
        for node in self.nodes:
            if not isinstance(node, ast.Assign | ast.NamedExpr):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = {target.id for target in targets if isinstance(target, ast.Name)}
            if self._is_model(node.value):
                self.models |= bound
            elif _read(node.value) in _HAVE_MODEL[1:]:
                self.runners |= bound
        return self.models

    def _is_model(self, node: ast.expr) -> bool:
        """``self.model``, ``getattr(self, "model", None)``, the runner's model, or a name for them."""
        if isinstance(node, ast.Name):
            return node.id in self.models
        if isinstance(node, ast.Attribute):
            return node.attr == "model" and dotted(node.value) in self.runners
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.NamedExpr) and self._is_model(node.value)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get_model":
            return dotted(node.func.value) in self.runners
        owner, _, name = _read(node).rpartition(".")
        return owner in self.runners and name == "model"


def _read(node: ast.expr) -> str:
    """The dotted name of what an expression reads, ``getattr`` of a plain name included; empty for others."""
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1:
        return f"{dotted(node.args[0])}.{string(node.args[1])}"
    return dotted(node)


def functions_in(node: Function) -> Iterator[Function]:
    """The functions defined inside a function."""
    for inner in walk(node):
        if isinstance(inner, Function) and inner is not node:
            yield inner


Key = tuple[str, str]


@dataclass(frozen=True)
class Reached:
    """A function that is reached; ``owner`` is None for one outside classes."""

    name: str
    file: File
    node: Function
    owner: ClassSymbol | None

    @property
    def facts(self) -> Facts:
        return facts_of(self.file, self.node)


@dataclass(eq=False)
class Effective:
    """The methods that are effective on one class."""

    cls: ClassSymbol

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The method that each name reaches, below overrides that hand all on and do no more."""
        found: dict[str, Method] = {}
        for cls in self.cls.mro:
            for name, method in cls.methods.items():
                if name not in found and not (passes_on(method.node) and self.cls.after(cls, name)):
                    found[name] = method
        return found

    @cached_property
    def own(self) -> dict[str, Method]:
        """Those of them that vllm-omni brings."""
        return {name: m for name, m in self.methods.items() if m.owner.project == "vllm-omni"}

    @cached_property
    def _reach(self) -> dict[int, dict[int, Reached]]:
        return {}

    def reach(self, method: Method) -> dict[int, Reached]:
        """All functions that a call of ``method`` may come to, itself first, by node."""
        if id(method.node) not in self._reach:
            start = Reached(method.name, method.owner.file, method.node, method.owner)
            found = {id(method.node): start}
            queue = [start]
            while queue:
                for follower in self._next(queue.pop()):
                    if id(follower.node) not in found:
                        found[id(follower.node)] = follower
                        queue.append(follower)
            self._reach[id(method.node)] = found
        return self._reach[id(method.node)]

    def _next(self, place: Reached) -> Iterator[Reached]:
        facts = place.facts
        for kind, name in facts.of:
            if kind == METHOD and place.owner and name in self.methods:
                yield _reached(self.methods[name])
        for name in facts.supers:
            if place.owner and (above := self.cls.after(place.owner, name)):
                yield _reached(above)
        for owner, name in facts.explicit:
            if method := owner.lookup(name):
                yield _reached(method)
        for symbol in facts.symbols:
            yield Reached(symbol.node.name, symbol.file, symbol.node, None)

    @cached_property
    def callers(self) -> dict[str, list[Method]]:
        """The methods vllm-omni brings, by the names of the methods they use on ``self``."""
        found: dict[str, list[Method]] = {}
        for method in self.own.values():
            for kind, name in facts_of(method.owner.file, method.node).of:
                if kind == METHOD:
                    found.setdefault(name, []).append(method)
        return found


@held
def effective(cls: ClassSymbol) -> Effective:
    """The methods that are effective on a class, read once."""
    return Effective(cls)


def _reached(method: Method) -> Reached:
    return Reached(method.name, method.owner.file, method.node, method.owner)
