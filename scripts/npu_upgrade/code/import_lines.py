"""The import statements of a file that may be edited.

Those are at the top level and in ``if TYPE_CHECKING:``; imports in functions, in other
``if`` and ``try`` statements and in conflicts are left alone.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from npu_upgrade.code.conflict_text import Answer, answers
from npu_upgrade.code.module import split_lines
from npu_upgrade.code.names import Import, imports_in, is_typing_guard

_NOQA = re.compile(r"#\s*noqa(?!:)|#\s*noqa:[^#]*\bF401\b", re.IGNORECASE)


@dataclass(frozen=True)
class ImportLine:
    """An import statement that may be edited.

    ``start`` and ``end`` are the half-open span of its lines in the file, ``guard`` that of
    the ``if TYPE_CHECKING:`` around it, ``head`` tells whether it comes before all classes
    and functions.
    """

    start: int
    end: int
    text: str
    imports: tuple[Import, ...]
    head: bool
    guard: tuple[int, int] | None = None

    @property
    def plain(self) -> bool:
        return self.imports[0].name is None

    @property
    def kept_by_comment(self) -> bool:
        """Whether a comment asks linters to let it stay unused."""
        return bool(_NOQA.search(self.text))


@lru_cache(maxsize=32)
def import_lines(text: str) -> tuple[ImportLine, ...]:
    """The import statements of a file (conflict markers allowed) that may be edited."""
    answer = answers(text)[0]
    lines = split_lines(text)
    found: list[ImportLine | None] = []
    head = True
    for node, alone in _with_neighbours(ast.parse(answer.text).body):
        head = head and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if is_typing_guard(node):
            guard = rows_of(answer, node)
            inner = [part for part, free in _with_neighbours(node.body) if free]
            found += [_line(answer, lines, part, head, guard) for part in inner] if guard else []
        elif alone:
            found.append(_line(answer, lines, node, head, None))
    return tuple(item for item in found if item)


def _with_neighbours(body: list[ast.stmt]) -> list[tuple[Any, bool]]:
    """Statements, and whether each is an import with its lines to itself."""
    out = []
    for index, node in enumerate(body):
        shared = (index and body[index - 1].end_lineno == node.lineno) or (
            index + 1 < len(body) and body[index + 1].lineno == node.end_lineno
        )
        out.append((node, isinstance(node, (ast.Import, ast.ImportFrom)) and not shared))
    return out


def rows_of(answer: Answer, node: Any) -> tuple[int, int] | None:
    """The half-open span of a node in the file; None when a conflict reaches into it."""
    rows = answer.rows[node.lineno - 1 : node.end_lineno]
    span = range(rows[0], rows[-1] + 1)
    return None if answer.disputed.intersection(span) else (span.start, span.stop)


def _line(
    answer: Answer, lines: list[str], node: Any, head: bool, guard: tuple[int, int] | None
) -> ImportLine | None:
    rows = rows_of(answer, node)
    text = "".join(lines[slice(*rows)]) if rows else ""
    # More than the import is on its lines: `if TYPE_CHECKING: import x`, `import x;`.
    crowded = any(";" in line.partition("#")[0] for line in split_lines(text))
    if not rows or crowded or ast.unparse(ast.parse(text.strip() + "\n")) != ast.unparse(node):
        return None
    return ImportLine(*rows, text, tuple(imports_in(node, guard is not None)), head, guard)
