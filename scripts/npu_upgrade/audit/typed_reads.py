"""Attributes read on objects of known classes that these classes do not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Literal

from npu_upgrade.audit.overrides import device_scopes, users_of
from npu_upgrade.audit.world import World
from npu_upgrade.code.signatures import Function
from npu_upgrade.code.walk import branches, children, dotted, last_name, reached, walk
from npu_upgrade.ground.held import held
from npu_upgrade.lineage.project import distribution
from npu_upgrade.program.members import members, own_members
from npu_upgrade.program.program import ClassSymbol
from npu_upgrade.program.scope import PROPERTIES, TRANSPARENT, Scope, decorators, scope_of
from npu_upgrade.program.self_use import methods_on, self_use
from npu_upgrade.program.type_terms import TENSOR, Tensor, Type, classes
from npu_upgrade.program.types import Types
from npu_upgrade.threeway.signature_merge import alternatives

# Of what buffer classes have, a tensor has these too.
_OF_TENSORS = {"cpu", "cuda", "npu", "numpy", "to", "copy_", "fill_", "zero_", "shape", "dtype", "device"} | {
    *("size", "dim", "numel", "item", "tolist", "clone", "view", "data", "pin_memory", "is_pinned"),
}
_FEW = 12
_CATCHES = ("AttributeError", "Exception", "BaseException")


@dataclass(frozen=True)
class TypedRead:
    """``node`` reads ``name`` of a value that is an instance of ``owner`` (or a tensor), which lacks it.

    ``name`` is ``[...]`` where the value is indexed. With ``misuse`` the class has the attribute, but
    a value is called, or a method tested as a value.
    """

    frame: Scope
    node: ast.Attribute | ast.Subscript
    name: str
    owner: ClassSymbol | Tensor
    misuse: Use | None = None

    @property
    def held(self) -> str:
        """The attribute of ``self`` that holds the value, empty where it is another expression."""
        return _on_self(self.node.value, self.frame)


def typed_reads(
    frame: Scope, types: Types, only: frozenset[str] | None = None, ours: Set[ClassSymbol] = frozenset()
) -> Iterator[TypedRead]:
    """The reads of a function that its values' classes do not provide for.

    ``only`` asks for no others than those on attributes of ``self`` with these names, where
    the parents of the class put something there that has what is read. With ``ours`` it is enough
    that one of these classes lacks it, and nothing else is asked for.
    """
    for node, use in _live(reached(frame.node.body), types):
        on_first = _is_first(node.value, frame)
        if not isinstance(node.ctx, ast.Load) or (on_first and (use is None or only is not None)):
            continue
        if only is not None and _on_self(node.value, frame) not in only:
            continue
        name = node.attr if isinstance(node, ast.Attribute) else "[...]"
        if name in frame.locals.asked or (name.startswith("__") and name.endswith("__")):
            continue
        known = types.of(node.value, frame)
        known = frozenset(term for term in known or () if term in ours) if ours else known
        if use and only is None and (owner := misused(known, name, use)):
            yield TypedRead(frame, node, name, owner, use)
        elif not on_first and (owner := _lacking(known, name)):
            # A parameter annotated as a tensor is often given the buffer around one.
            on_self = bool(_on_self(node.value, frame))
            if isinstance(owner, Tensor) and not (on_self and name in _of_buffers(types, frame.cls)):
                continue
            if only is not None and not _parents_had(node, name, frame, types):
                continue
            yield TypedRead(frame, node, name, owner)


def _lacking(known: Type | None, name: str) -> ClassSymbol | Tensor | None:
    """The class without the attribute; None when some term has it, or may have it."""
    terms = sorted(known or (), key=lambda term: getattr(term, "name", ""))
    return terms[0] if terms and all(_lacks(term, name) for term in terms) else None  # type: ignore


def _lacks(term: object, name: str) -> bool:
    if isinstance(term, Tensor):
        return name != "[...]" and name not in _OF_TENSORS
    if not isinstance(term, ClassSymbol):
        return False
    known = members(term)
    if name == "[...]":
        return known is not None and not {"__getitem__", "__class_getitem__"} & known and not term.is_open
    return known is not None and name not in known


@held
def _of_buffers(types: Types, cls: ClassSymbol | None) -> frozenset[str]:
    """What the small objects around tensors have that ``cls`` keeps in its attributes."""
    names = {name for owner in cls.mro for name in own_members(owner)} if cls else ()
    kept = {term for name in names if cls for term in types.attribute(cls, name) or ()}
    return frozenset(name for term in kept if isinstance(term, ClassSymbol) for name in _buffer(types, term))


@held
def _buffer(types: Types, cls: ClassSymbol) -> frozenset[str]:
    """The attributes of a class that does little but keep tensors; empty for another class."""
    names = members(cls) or frozenset()
    tensors = [name for name in names if frozenset({TENSOR}) == types.attribute(cls, name)]
    return names if len(names) <= _FEW and tensors else frozenset()


def _parents_had(node: ast.Attribute | ast.Subscript, name: str, frame: Scope, types: Types) -> bool:
    """Whether the attribute of ``self`` that is read from holds, for its parents, an object with ``name``."""
    held = _on_self(node.value, frame)
    return any(
        name in (members(term) or ())
        for owner in (frame.cls.mro[1:] if frame.cls and held else ())
        for term in types.attribute(owner, held) or ()
        if isinstance(term, ClassSymbol)
    )


def _live(body: list[ast.stmt], types: Types) -> Iterator[tuple[ast.Attribute | ast.Subscript, Use | None]]:
    """The attributes and indices of a function that are not behind a guard, each with its use."""
    uses: dict[int, Use] = {}
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            yield node, uses.get(id(node))
        note_uses(node, uses)
        stack += reversed(list(_children(node, types)))


def _children(node: ast.AST, types: Types) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.IfExp)):
        yield node.test
        body, orelse = branches(node)
        yield from body if not _asks(node.test) else []
        yield from orelse
    elif isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
        yield from [*node.orelse, *node.finalbody]
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value else []
    elif isinstance(node, Function):
        yield from reached(node.body)
    elif not isinstance(node, ast.ClassDef):
        yield from children(node)


def _asks(test: ast.expr) -> bool:
    calls = (dotted(node.func) for node in walk(test) if isinstance(node, ast.Call))
    return any(name.rpartition(".")[2] in ("hasattr", "isinstance") for name in calls)


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(name in ast.unparse(handler.type) for name in _CATCHES)


def _on_self(node: ast.expr, frame: Scope) -> str:
    """The attribute of ``self`` that an expression is, empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and _is_first(node.value, frame) else ""


def _is_first(node: ast.expr, frame: Scope) -> bool:
    return isinstance(node, ast.Name) and node.id == frame.first


Nature = Literal["method", "value", ""]
# What has no ``__call__``, by the names that hints use.
_UNCALLABLE = {
    *("bool", "int", "float", "str", "bytes", "None", "list", "dict", "tuple", "set", "frozenset"),
    *("List", "Dict", "Tuple", "Set", "Sequence", "Mapping", "Tensor", "Literal"),
}
_PLAIN_VALUES = (ast.Compare, ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set)


@held
def nature(cls: ClassSymbol, name: str) -> Nature:
    """What ``name`` is on objects of the class; empty where the trees do not tell for sure."""
    if any(name in owner.assigned for owner in cls.mro):
        return ""
    for owner in cls.mro:
        if name in owner.methods and name in owner.fields:
            return ""
        if name in owner.methods:
            return _of_function(owner.methods[name].node)
        if name in owner.fields:
            node = owner.fields[name]
            return "value" if isinstance(node, ast.AnnAssign) and _uncallable(node.annotation) else ""
    return ""


def _of_function(node: Function) -> Nature:
    kinds = decorators(node)
    if kinds & PROPERTIES:
        return "value" if _gives_value(node) else ""
    return "" if kinds - TRANSPARENT else "method"


def _gives_value(node: Function) -> bool:
    """Whether a property's value certainly cannot be called, by its hint or by what it returns."""
    if node.returns:
        return _uncallable(node.returns)
    returns = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
    return bool(returns) and all(_plain(value) for value in returns)


def _plain(value: ast.expr | None) -> bool:
    return isinstance(value, _PLAIN_VALUES) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    )


def _uncallable(hint: ast.expr) -> bool:
    return all(isinstance(part, ast.expr) and _head(part) in _UNCALLABLE for part in alternatives(hint))


def _head(part: ast.expr) -> str:
    return "None" if isinstance(part, ast.Constant) and part.value is None else last_name(part)


Use = Literal["called", "tested"]
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert)
_WRONG = {"called": "value", "tested": "method"}


def note_uses(node: ast.AST, uses: dict[int, Use]) -> None:
    """Note what a node does with the attributes right below it, by their identity."""
    if isinstance(node, ast.Call):
        uses[id(node.func)] = "called"
    elif isinstance(node, _TESTS):
        _tested(node.test, uses)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            _tested(test, uses)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _tested(node.operand, uses)
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values[:-1]:
            _tested(value, uses)
    elif isinstance(node, ast.Compare) and all(_is_plain(value) for value in node.comparators):
        uses[id(node.left)] = "tested"


def misused(known: Type | None, name: str, use: Use) -> ClassSymbol | None:
    """The class on which a value is called, or a method tested as if it were a value; None for a fit use."""
    terms = sorted(classes(known), key=lambda term: term.name)
    return terms[0] if terms and all(nature(term, name) == _WRONG[use] for term in terms) else None


def _tested(test: ast.expr, uses: dict[int, Use]) -> None:
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        if isinstance(part, ast.BoolOp):
            _tested(part, uses)
        else:
            uses[id(part)] = "tested"


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression is a constant that no method equals; ``x is None`` may be meant."""
    return isinstance(value, ast.Constant) and value.value is not None


def all_typed_reads(world: World, types: Types) -> Iterator[TypedRead]:
    """The reads that find nothing, each once, in the audited functions and in what they inherit."""
    seen: set[tuple[int, int, str]] = set()
    ours = frozenset(world.side.classes)
    beside = ((scope, None, ours) for scope in users_of(world))
    frames = ((*one, frozenset()) for one in _frames(world) if world.concerns(one[0]))
    for frame, only, mine in (*frames, *beside):
        for read in typed_reads(frame, types, only, mine):
            key = (id(frame.node), id(read.node), read.name)
            if key not in seen:
                seen.add(key)
                yield read


def _frames(world: World) -> Iterator[tuple[Scope, frozenset[str] | None]]:
    """The functions to look at, each with the attributes of ``self`` that it is limited to."""
    ours = world.own
    covered: set[int] = set()
    for cls in world.concrete:
        for method in methods_on(cls):
            covered.add(id(method.node))
            frame = scope_of(cls, method)
            if method.owner.project == ours:
                yield frame, None
            elif only := _set_below(cls, method.owner.project, world):
                yield frame, only
    for file in world.files if world.of_omni else world.worker_files:
        functions = (Scope(file, function.node) for function in file.functions.values())
        methods = (scope_of(cls, method) for cls in file.classes.values() for method in cls.methods.values())
        yield from ((frame, None) for frame in (*functions, *methods) if id(frame.node) not in covered)
    yield from ((frame, None) for frame in device_scopes(world))


def _set_below(cls: ClassSymbol, project: str, world: World) -> frozenset[str]:
    """The attributes that the NPU side of a class sets before its parents of ``project`` use them."""
    sides = ("vllm-omni", distribution(world.plugin)) if project == "vllm" else ("vllm-omni",)
    owners = (owner for owner in cls.mro if owner.project in sides)
    methods = (method for owner in owners for method in owner.methods.values())
    return frozenset(name for method in methods for name in self_use(method.node).writes)
