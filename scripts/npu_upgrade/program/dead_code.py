"""Statements that cannot be reached with a given vLLM."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

from packaging.version import Version

from npu_upgrade.program.version_guards import evaluate

Node = TypeVar("Node", bound=ast.AST)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def reached(body: Sequence[Node], vllm: Version | None) -> list[Node]:
    """The statements of a block up to the first that is sure to leave it."""
    end = next((place for place, node in enumerate(body, 1) if _leaves(node, vllm)), len(body))
    return list(body[:end])


def branches(node: ast.If | ast.IfExp, vllm: Version | None) -> tuple[list[ast.AST], list[ast.AST]]:
    """What of the two branches may run; the statements that cannot be reached are left out."""
    outcome = evaluate(node.test, vllm)
    body, orelse = (
        reached(part, vllm) if isinstance(part, list) else [part] for part in (node.body, node.orelse)
    )
    return (body if outcome is not False else [], orelse if outcome is not True else [])


def _leaves(node: ast.AST, vllm: Version | None) -> bool:
    if isinstance(node, _LEAVES):
        return True
    if not isinstance(node, ast.If) or vllm is None:
        return False
    outcome = evaluate(node.test, vllm)
    chosen = node.body if outcome else node.orelse
    return outcome is not None and any(_leaves(inner, vllm) for inner in chosen)
