"""Which modules a vLLM model class makes, and whether a tensor's name has a place among them.

Read from ``self.name = Class(...)`` in the constructors. A module that only running one would show is open:
any name fits there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from npu_upgrade.checkpoint.name_map import name_map
from npu_upgrade.checkpoint.registry import ModelSources, methods
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import last_name
from npu_upgrade.program.program import UNKNOWN, ClassSymbol, File

_MODEL_PACKAGES = ("vllm.model_executor.models", "vllm_ascend.models")
_LISTS = {"ModuleList", "Sequential", "make_layers", "CanonicalModuleList"}
_OPEN_CALLS = {"ModuleDict", "from_config", "from_pretrained", "create_model"}
_INNER = "init_vllm_registered_model"
_NAMED = {"register_buffer", "register_parameter"}
_DYNAMIC = {"add_module", "register_module", "setattr"}
_NO_MODULES = {
    *("getattr", "len", "int", "float", "bool", "max", "min"),
    *("dict", "list", "tuple", "set", "str", "range"),
}


@dataclass(frozen=True)
class Node:
    """``module``: one of the models' own classes; ``list``: numbered ones; ``leaf``: a layer or parameter;
    ``open``: unknown, anything fits."""

    kind: str
    cls: ClassSymbol | None = None
    bound: tuple[tuple[str, ClassSymbol], ...] = ()
    items: tuple[Node, ...] = ()


OPEN, LEAF = Node("open"), Node("leaf")


@dataclass
class Place:
    """Where a name ends: ``found``, ``dropped``, ``ignored``, ``open`` or ``missing`` (no part ``at``)."""

    state: str
    name: str = ""
    at: str = ""


@dataclass
class ModuleTree:
    """The modules below one model class."""

    sources: ModelSources
    root: ClassSymbol
    _children: dict[Node, dict[str, list[Node]]] = field(default_factory=dict)

    def place(self, name: str) -> Place:
        """Where the tensor ``name`` of a checkpoint goes."""
        return self._walk(Node("module", self.root), name, "")

    def _walk(self, node: Node, name: str, path: str, sure: bool = True) -> Place:
        if node.kind == "module" and node.cls:
            mapping = name_map(node.cls)
            if mapping is not None:
                mapped = mapping.apply(name)
                if mapped is None:
                    return Place("dropped")
                sure, name = sure and mapping.sure, mapped
                if any(name.startswith(start) or start in name for start in mapping.ignored):
                    return Place("ignored", path + name)
        if node.kind in ("leaf", "open"):
            return Place("found" if node.kind == "leaf" else "open", path + name)
        part, _, rest = name.partition(".")
        nexts = self._step(node, part)
        if not nexts:
            return Place("missing" if sure else "open", path + name, path + part)
        places = [self._walk(one, rest, f"{path}{part}.", sure) for one in nexts]
        order = {"found": 0, "dropped": 1, "ignored": 2, "open": 3, "missing": 4}
        best = min(places, key=lambda one: order[one.state])
        if best.state == "found":
            best.name = best.name.rstrip(".")
        return best

    def _step(self, node: Node, part: str) -> list[Node]:
        if node.kind == "list":
            return list(node.items) if part.isdigit() else ([OPEN] if OPEN in node.items else [])
        children = self.children(node)
        return children.get(part) or children.get("*") or []

    def children(self, node: Node) -> dict[str, list[Node]]:
        """The attributes of a module that hold modules; ``*`` when there may be others."""
        if node not in self._children:
            self._children[node] = {}
            self._children[node] = self._read(node)
        return self._children[node]

    def _read(self, node: Node) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        assert node.cls is not None
        for owner in node.cls.mro:
            for base, known in zip(owner.node.bases, owner.bases, strict=True):
                name = getattr(base, "attr", getattr(base, "id", ""))
                plain = name in ("Module", "Protocol", "ABC") or isinstance(base, ast.Subscript)
                if known is UNKNOWN and not plain:
                    found.setdefault("*", []).append(OPEN)  # a class of another library
            methods_ = (item for item in owner.node.body if isinstance(item, ast.FunctionDef))
            for method in (one for one in methods_ if one.name == "__init__" or one.name.startswith("_init")):
                scope = _Scope(self.sources, owner.file, method, dict(node.bound), node.cls)
                for name, nodes in scope.modules():
                    there = found.setdefault(name, [])
                    there += [one for one in nodes if one not in there]
        return found


class _Scope:
    """One constructor: its names, and the modules it assigns to ``self``."""

    def __init__(
        self,
        sources: ModelSources,
        file: File,
        method: Function,
        bound: dict[str, ClassSymbol],
        instance: ClassSymbol,
    ) -> None:
        self.sources, self.file, self.method, self.instance = sources, file, method, instance
        self.classes = self._defaults() | bound
        self.locals: dict[str, list[ast.expr]] = {}
        for node in ast.walk(method):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.locals.setdefault(name, []).append(value)

    def _defaults(self) -> dict[str, ClassSymbol]:
        arguments = self.method.args
        pairs: list[tuple[ast.arg, ast.expr | None]] = list(
            zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
        )
        pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        named = {argument.arg: value.id for argument, value in pairs if isinstance(value, ast.Name)}
        return {name: cls for name, text in named.items() if (cls := _class_of(self.file, text))}

    def modules(self) -> Iterator[tuple[str, list[Node]]]:
        for node in ast.walk(self.method):
            if isinstance(node, ast.Call) and last_name(node) in _DYNAMIC:
                yield "*", [OPEN]
            if isinstance(node, ast.Call) and last_name(node) in _NAMED and node.args:
                name = node.args[0]
                yield (str(name.value) if isinstance(name, ast.Constant) else "*"), [LEAF]
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or value is None:
                continue
            for target in targets:
                if isinstance(target, ast.Tuple):
                    target = target.elts[-1]
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
                    nodes = list(self.nodes(value))
                    yield from [(target.attr, nodes)] if nodes else []

    def nodes(self, value: ast.expr, depth: int = 0) -> Iterator[Node]:
        """What an expression makes; nothing for a value that is no module."""
        if depth > 5:
            yield OPEN
            return
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.nodes(body, depth + 1)
                yield from self.nodes(orelse, depth + 1)
            case ast.BoolOp(values=values):
                for one in values:
                    yield from self.nodes(one, depth + 1)
            case ast.Name(id=name):
                for one in self.locals.get(name, []):
                    yield from self.nodes(one, depth + 1)
            case ast.Attribute():
                yield OPEN  # a module of another one, or a number: names below it are not judged
            case ast.Call():
                yield from self._made(value, depth)

    def _made(self, call: ast.Call, depth: int) -> Iterator[Node]:
        name = last_name(call)
        if name in _NO_MODULES:
            return
        if name in _LISTS:
            yield Node("list", items=tuple(self._items(call, depth)) or (OPEN,))
        elif name in _OPEN_CALLS:
            yield OPEN
        elif name == _INNER:
            inner = self._inner(call)
            yield Node("module", inner) if inner else OPEN
        elif isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "self":
            yield from self._returned(name, depth)
        elif isinstance(call.func, ast.Name) and (found := self._class(name)):
            yield self._module(found, call)
        elif isinstance(call.func, ast.Name) and (name in self.locals or self._takes(name)):
            values = self.locals.get(name, [])
            ways = [one for v in values for one in ((v.body, v.orelse) if isinstance(v, ast.IfExp) else (v,))]
            choices = [self._class(one.id) for one in ways if isinstance(one, ast.Name)]
            nodes = [self._module(one, call) for one in choices if one]
            yield from nodes or [OPEN]
        else:
            yield LEAF

    def _takes(self, name: str) -> bool:
        return name in {one.arg for one in (*self.method.args.args, *self.method.args.kwonlyargs)}

    def _items(self, call: ast.Call, depth: int) -> Iterator[Node]:
        for argument in [*call.args, *(word.value for word in call.keywords if word.arg == "layer_fn")]:
            yield from self._inside(argument, depth)

    def _inside(self, argument: ast.expr, depth: int) -> Iterator[Node]:
        match argument:
            case ast.Lambda(body=body):
                yield from self.nodes(body, depth + 1)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                for one in elements:
                    yield from self._inside(one, depth + 1)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                yield from self.nodes(element, depth + 1)
            case ast.Name(id=name):
                functions = [node for node in ast.walk(self.method) if isinstance(node, ast.FunctionDef)]
                inner = next((one for one in functions if one.name == name and one is not self.method), None)
                if inner is None:
                    yield OPEN
                for node in ast.walk(inner) if inner else ():
                    if isinstance(node, ast.Return) and node.value:
                        yield from self.nodes(node.value, depth + 1)
            case ast.Call() | ast.IfExp():
                yield from self.nodes(argument, depth + 1)

    def _returned(self, name: str, depth: int) -> Iterator[Node]:
        found = next(methods(self.instance, name), None)
        if found is None:
            yield OPEN
            return
        inner = _Scope(self.sources, found.owner.file, found.node, self.classes, self.instance)
        for node in ast.walk(found.node):
            if isinstance(node, ast.Return) and node.value is not None:
                yield from inner.nodes(node.value, depth + 1)

    def _inner(self, call: ast.Call) -> ClassSymbol | None:
        """The model inside of a model: of the architecture the call names, else of the text configuration."""
        words = {word.arg: word.value for word in call.keywords}
        match words.get("architectures"):
            case ast.List(elts=[ast.Constant(value=str(name))]):
                return self.sources.registered(name)
            case None if "text" in ast.unparse(words.get("hf_config") or ast.Constant(value="")):
                return self.sources.registered(self.sources.text_architecture)
        return None

    def _class(self, name: str) -> ClassSymbol | None:
        return self.classes.get(name) or _class_of(self.file, name)

    def _module(self, cls: ClassSymbol, call: ast.Call) -> Node:
        if not cls.file.module.startswith(_MODEL_PACKAGES):
            return LEAF
        named = ((word.arg, word.value) for word in call.keywords if word.arg)
        bound = [(key, self._class(value.id)) for key, value in named if isinstance(value, ast.Name)]
        return Node("module", cls, tuple((key, one) for key, one in bound if one))


def _class_of(file: File, name: str) -> ClassSymbol | None:
    found = file.resolve(name)
    return found if isinstance(found, ClassSymbol) else None
