"""How a file uses names that lead into other modules: dotted names, dotted paths in strings, patches."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from npu_upgrade.program.program import File

_PATH = re.compile(r"(vllm|vllm_ascend|vllm_omni)(\.[A-Za-z_]\w*){2,}(:[A-Za-z_]\w*)?")
_NOT_PATHS = {"getLogger", "init_logger", "entry_points", "find_spec", "startswith", "endswith"}
_ASKING = {"hasattr", "getattr"}


def dotted_parts(expr: ast.expr) -> list[str]:
    """The parts of a dotted expression, the root first."""
    parts: list[str] = []
    while isinstance(expr, ast.Attribute):
        parts.insert(0, expr.attr)
        expr = expr.value
    return [expr.id if isinstance(expr, ast.Name) else "", *parts]


def asked_for(file: File) -> set[str]:
    """Attributes that a file looks for before it uses them."""
    calls = [node for node in file.nodes if isinstance(node, ast.Call) and len(node.args) > 1]
    asking = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id in _ASKING]
    return {str(node.args[1].value) for node in asking if isinstance(node.args[1], ast.Constant)}


def bound_locally(file: File) -> set[str]:
    """Names that some function of a file takes or assigns, which may hide an import."""
    found = {node.arg for node in file.nodes if isinstance(node, ast.arg)}
    stored = (node for node in file.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return found | {node.id for node in stored}


def patch_target(node: ast.AST) -> tuple[ast.expr, str] | None:
    """What an assignment or ``setattr`` sets: the object and the name."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.value, node.attr
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"):
        return None
    name = node.args[1] if len(node.args) == 3 else None
    known = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return (node.args[0], str(name.value)) if isinstance(name, ast.Constant) and known else None


def is_dotted_path(node: ast.AST) -> TypeGuard[ast.Constant]:
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and _PATH.fullmatch(text) is not None


def no_paths(node: ast.AST) -> list[ast.expr]:
    """Strings that only look like import paths: names of loggers, parts of text, what is compared."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.JoinedStr):
        return node.values
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _NOT_PATHS:
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    return []
