"""Attributes read on objects of known classes that these classes do not have."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from npu_upgrade.audit.attributes.uses import Use, misused, note_uses
from npu_upgrade.code.walk import walk
from npu_upgrade.program.bindings import dotted
from npu_upgrade.program.dead_code import branches, reached
from npu_upgrade.program.members import members, own_members
from npu_upgrade.program.program import ClassSymbol
from npu_upgrade.program.type_terms import TENSOR, Tensor, Type
from npu_upgrade.program.types import Frame, Types

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

    frame: Frame
    node: ast.Attribute | ast.Subscript
    name: str
    owner: ClassSymbol | Tensor
    misuse: Use | None = None

    @property
    def held(self) -> str:
        """The attribute of ``self`` that holds the value, empty where it is another expression."""
        return _on_self(self.node.value, self.frame)


def typed_reads(frame: Frame, types: Types, only: frozenset[str] | None = None) -> Iterator[TypedRead]:
    """The reads of a function that its values' classes do not provide for.

    ``only`` asks for no others than those on attributes of ``self`` with these names, where
    the parents of the class put something there that has what is read.
    """
    for node, use in _live(reached(frame.node.body, types.vllm), types):
        on_first = _is_first(node.value, frame)
        if not isinstance(node.ctx, ast.Load) or (on_first and (use is None or only is not None)):
            continue
        if only is not None and _on_self(node.value, frame) not in only:
            continue
        name = node.attr if isinstance(node, ast.Attribute) else "[...]"
        if name in frame.locals.asked or (name.startswith("__") and name.endswith("__")):
            continue
        known = types.of(node.value, frame)
        if use and only is None and (owner := misused(known, name, use)):
            yield TypedRead(frame, node, name, owner, use)
        elif not on_first and (owner := _lacking(known, name)):
            # A parameter annotated as a tensor is often given the buffer around one.
            on_self = bool(_on_self(node.value, frame))
            if isinstance(owner, Tensor) and not (on_self and name in _of_buffers(frame.cls, types)):
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


@functools.lru_cache(maxsize=64)
def _of_buffers(cls: ClassSymbol | None, types: Types) -> frozenset[str]:
    """What the small objects around tensors have that ``cls`` keeps in its attributes."""
    names = {name for owner in cls.mro for name in own_members(owner)} if cls else ()
    held = {term for name in names if cls for term in types.attribute(cls, name) or ()}
    return frozenset(name for term in held if isinstance(term, ClassSymbol) for name in _buffer(term, types))


@functools.lru_cache(maxsize=4096)
def _buffer(cls: ClassSymbol, types: Types) -> frozenset[str]:
    """The attributes of a class that does little but keep tensors; empty for another class."""
    names = members(cls) or frozenset()
    tensors = [name for name in names if frozenset({TENSOR}) == types.attribute(cls, name)]
    return names if len(names) <= _FEW and tensors else frozenset()


def _parents_had(node: ast.Attribute | ast.Subscript, name: str, frame: Frame, types: Types) -> bool:
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
        body, orelse = branches(node, types.vllm)
        yield from body if not _asks(node.test) else []
        yield from orelse
    elif isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
        yield from [*node.orelse, *node.finalbody]
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value else []
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from reached(node.body, types.vllm)
    elif not isinstance(node, ast.ClassDef):
        yield from ast.iter_child_nodes(node)


def _asks(test: ast.expr) -> bool:
    calls = (dotted(node.func) for node in walk(test) if isinstance(node, ast.Call))
    return any(name.rpartition(".")[2] in ("hasattr", "isinstance") for name in calls)


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(name in ast.unparse(handler.type) for name in _CATCHES)


def _on_self(node: ast.expr, frame: Frame) -> str:
    """The attribute of ``self`` that an expression is, empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and _is_first(node.value, frame) else ""


def _is_first(node: ast.expr, frame: Frame) -> bool:
    return isinstance(node, ast.Name) and node.id == frame.first
