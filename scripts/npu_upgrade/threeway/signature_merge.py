"""Type hints and parameters in a form in which three versions of them can be merged."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from npu_upgrade.threeway.trees import Node

KINDS = ("pos", "arg", "vararg", "kwonly", "kwarg")


class Parameter(ast.AST):
    """A parameter with its default, so that both move together; ``kind`` is one of :data:`KINDS`."""

    _fields = ("kind", "arg", "default")

    def __init__(self, kind: str = "arg", arg: Node = None, default: Node = None) -> None:
        super().__init__()
        self.kind, self.arg, self.default = kind, arg, default


def parameters(node: ast.arguments) -> list[Node]:
    """The parameters of a signature in order."""
    plain = [("pos", arg) for arg in node.posonlyargs] + [("arg", arg) for arg in node.args]
    defaults = [None] * (len(plain) - len(node.defaults)) + list(node.defaults)
    found = [Parameter(kind, arg, default) for (kind, arg), default in zip(plain, defaults, strict=True)]
    found += [Parameter("vararg", node.vararg)] if node.vararg else []
    pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
    found += [Parameter("kwonly", arg, default) for arg, default in pairs]
    return found + ([Parameter("kwarg", node.kwarg)] if node.kwarg else [])


def arguments(merged: Sequence[Node]) -> ast.arguments | None:
    """A signature of these parameters; None when one without a default would follow one that has it."""
    of_kind = {kind: [p for p in merged if p.kind == kind] for kind in KINDS}
    plain = of_kind["pos"] + of_kind["arg"]
    first = next((number for number, p in enumerate(plain) if p.default is not None), len(plain))
    if any(p.default is None for p in plain[first:]):
        return None
    return ast.arguments(
        posonlyargs=[p.arg for p in of_kind["pos"]],
        args=[p.arg for p in of_kind["arg"]],
        vararg=of_kind["vararg"][0].arg if of_kind["vararg"] else None,
        kwonlyargs=[p.arg for p in of_kind["kwonly"]],
        kw_defaults=[p.default for p in of_kind["kwonly"]],
        kwarg=of_kind["kwarg"][0].arg if of_kind["kwarg"] else None,
        defaults=[p.default for p in plain[first:]],
    )


def alternatives(node: Node) -> list[Node]:
    """``Optional[A]``, ``Union[A, B]``, ``"A | B"`` and ``A | B`` as a flat list."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return alternatives(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            return [node]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return alternatives(node.left) + alternatives(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Optional":
            return [*alternatives(node.slice), ast.Constant(None)]
        if node.value.id == "Union":
            return [item for part in inner for item in alternatives(part)]
    return [node]


def union_of(nodes: Sequence[Node]) -> Node:
    """``A | B | ...`` of one or more alternatives."""
    return functools.reduce(lambda left, right: ast.BinOp(left, ast.BitOr(), right), nodes)
