"""Where code uses CUDA by name: ``torch.cuda``, ``.cuda()``, device strings, tests for a CUDA tensor.

What stands behind a test for CUDA is meant for CUDA only and left out, and so are annotations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from npu_upgrade.code.walk import dotted, walk

# They work, and say that there is no CUDA, wherever torch was built without it.
_HARMLESS = {"is_available", "is_initialized", "device_count", "is_current_stream_capturing"}
_DEVICE_ARGUMENTS = {"device", "device_type", "backend", "map_location"}
_DEVICE_CALLS = {"device", "to", "init_process_group", "new_group", "autocast", "Generator"}
_BACKENDS = {"nccl"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue)


@dataclass(frozen=True)
class Use:
    """One use: ``kind`` is ``call`` (``torch.cuda.NAME``), ``device`` or ``test``; ``name`` what is used."""

    kind: str
    name: str
    node: ast.expr


def cuda_uses(body: Sequence[ast.stmt]) -> Iterator[Use]:
    """The uses in a block that run without CUDA, in the order of the text."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _branches(node)
            if _is_for_cuda(node.test) is False and isinstance(node.body[-1], _LEAVES):
                return  # what follows runs on CUDA only
            continue
        yield from _in_expressions(_own(node))
        if isinstance(node, ast.Assert) and _is_for_cuda(node.test):
            return
        for block in _blocks(node):
            yield from cuda_uses(block)


def redirected(tree: ast.AST) -> Iterator[str]:
    """The names below ``torch.cuda`` that a file replaces: ``torch.cuda.NAME = ...``."""
    for node in walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            name = dotted(target)
            if name.startswith("torch.cuda."):
                yield name.removeprefix("torch.cuda.")


def _branches(node: ast.If) -> Iterator[Use]:
    outcome = _is_for_cuda(node.test)
    yield from _in_expressions([node.test])
    if outcome is not True:
        yield from cuda_uses(node.body)
    if outcome is not False:
        yield from cuda_uses(node.orelse)


def _is_for_cuda(test: ast.expr) -> bool | None:
    """Whether a condition holds on CUDA only (True), or anywhere else only (False)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_for_cuda(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        inner = [_is_for_cuda(value) for value in test.values]
        wanted = isinstance(test.op, ast.And)
        return wanted if wanted in inner else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _names_cuda(test.comparators[0]):
        if isinstance(test.ops[0], (ast.Eq, ast.In, ast.Is)):
            return True
        return False if isinstance(test.ops[0], (ast.NotEq, ast.NotIn, ast.IsNot)) else None
    func = test.func if isinstance(test, ast.Call) else test
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return True if name.startswith("is_cuda") or dotted(func).startswith("torch.cuda.is_") else None


def _in_expressions(nodes: Iterable[ast.AST]) -> Iterator[Use]:
    for top in nodes:
        if isinstance(top, ast.IfExp) and _is_for_cuda(top.test) is not None:
            yield from _in_expressions([top.test, top.orelse if _is_for_cuda(top.test) else top.body])
            continue
        if use := _use(top):
            yield use
            if use.kind == "call":
                continue
        if isinstance(top, ast.Call) and isinstance(top.func, ast.Attribute) and _asks_platform(top.func):
            yield from _in_expressions([top.func.value, *top.args])
        elif isinstance(top, ast.BoolOp) and isinstance(top.op, ast.And):
            yield from _in_expressions(_until_cuda(top.values))
        elif isinstance(top, ast.Lambda):
            yield from _in_expressions([top.body])
        else:
            yield from _in_expressions(_children(top))


def _asks_platform(func: ast.Attribute) -> bool:
    """``platform.is_cuda()`` asks a platform, ``tensor.is_cuda`` a tensor."""
    return func.attr.startswith("is_cuda")


def _until_cuda(values: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """The operands of an ``and`` that are looked at without CUDA."""
    for value in values:
        yield value
        if _is_for_cuda(value):
            return


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.arguments)):
            yield child


def _use(node: ast.AST) -> Use | None:
    if isinstance(node, ast.Attribute):
        name = dotted(node)
        if name.startswith("torch.cuda."):
            used = name.removeprefix("torch.cuda.")
            return None if used.partition(".")[0] in _HARMLESS else Use("call", used, node)
        if node.attr == "is_cuda":
            return Use("test", "is_cuda", node)
    if isinstance(node, ast.Compare) and len(node.comparators) == 1 and _names_cuda(node.comparators[0]):
        left = dotted(node.left)
        return Use("test", left or "device", node) if left.endswith((".type", "device_type")) else None
    if isinstance(node, ast.Call):
        return _device_use(node)
    return None


def _device_use(node: ast.Call) -> Use | None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
    if name == "cuda" and isinstance(node.func, ast.Attribute) and dotted(node.func) != "torch.cuda":
        return Use("device", ".cuda()", node)
    given = [keyword.value for keyword in node.keywords if keyword.arg in _DEVICE_ARGUMENTS]
    if name in _DEVICE_CALLS:
        given += node.args
    return next((Use("device", _text(value), value) for value in given if _text(value)), None)


def _text(node: ast.expr) -> str:
    """The CUDA device or backend that a string names, empty when it names none."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return text if text == "cuda" or text.startswith("cuda:") or text in _BACKENDS else ""


def _names_cuda(node: ast.expr) -> bool:
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return any(_text(item) for item in items)


def _own(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement that run with it: no annotations, decorators' arguments included."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value else []
    elif isinstance(node, ast.Assign) and any(dotted(t).startswith("torch.cuda.") for t in node.targets):
        yield node.value
    elif not isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case))
        )


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(node, name, None):
            yield block
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield part.body
