"""Whether the lines that an edit touched were executed, from the recorded lines of both runs.

What an edit adds or changes is looked up in the edited run, what it takes away in the unedited one. A head of
a function or class runs whenever its module is imported; it counts when something in its body ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from npu_upgrade.gates.emulation.changed import changed_statements

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def reached(before: str, after: str, ran_before: Iterable[int], ran_after: Iterable[int]) -> bool:
    """Whether a statement that differs between the texts ran; line numbers are those of each text."""
    return _any_ran(before, after, set(ran_after)) or _any_ran(after, before, set(ran_before))


def _any_ran(other: str, text: str, ran: set[int]) -> bool:
    """Whether a statement of ``text`` that ``other`` does not have is among the lines ``ran``."""
    heads = {node.lineno: node for node in ast.walk(ast.parse(text)) if isinstance(node, _Definition)}
    for start, end in changed_statements(other, text):
        lines = _body(heads[start]) if start in heads else set(range(start, end + 1))
        if lines & ran:
            return True
    return False


def _body(definition: ast.AST) -> set[int]:
    """The lines of the functions' statements in a definition, heads left out."""
    found: set[int] = set()
    for node in ast.walk(definition):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in node.body:
                found.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    inner = {n.lineno for n in ast.walk(definition) if isinstance(n, _Definition) and n is not definition}
    return found - inner
