"""Edits the import statements of a file and leaves every other line of it as it is."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from npu_upgrade.code.conflict_text import Answer, answers
from npu_upgrade.code.definitions import shared_parts
from npu_upgrade.code.import_statement import (
    ORDERS,
    Order,
    is_sorted,
    natural,
    new_statement,
    trailing_comment,
    with_name,
    without_name,
)
from npu_upgrade.code.module import insert_lines, line_end, split_lines
from npu_upgrade.code.names import Import, imports_in, is_typing_guard
from npu_upgrade.code.signatures import Function

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
        head = head and not isinstance(node, (Function, ast.ClassDef))
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


@dataclass(frozen=True)
class Edit:
    """What to do to the imports of a file of ``package``."""

    add: Sequence[Import] = ()
    drop: Sequence[Import] = ()
    move: Sequence[tuple[Import, Import]] = ()
    package: str = ""


def edit_imports(text: str, edit: Edit) -> str:
    """The file with the edit done; a moved import keeps the comment on its line."""
    for item in edit.drop:
        text = _without(text, item)
    for old, new in edit.move:
        comment = _comment(text, old)
        text = _with(_without(text, old), new, edit.package, comment)
    for item in edit.add:
        text = _with(text, item, edit.package)
    return text


def _find(text: str, item: Import) -> ImportLine | None:
    return next((line for line in import_lines(text) if item in line.imports), None)


def _comment(text: str, item: Import) -> str:
    line = _find(text, item)
    one = line is not None and len(line.imports) == 1 and line.end == line.start + 1
    return trailing_comment(line.text) if line and one else ""


def _without(text: str, item: Import) -> str:
    line = _find(text, item)
    if line is None:
        return text
    lines = split_lines(text)
    left = without_name(line.text, item)
    if left:
        return "".join([*lines[: line.start], left, *lines[line.end :]])
    if line.guard is None:
        return _cut(lines, line.start, line.end)
    start, end = line.guard
    if all(row in (start, *range(line.start, line.end)) for row in range(start, end)):
        return _cut(lines, start, end)
    code = ast.parse("".join(lines[start:end])).body[0]
    last = isinstance(code, ast.If) and len(code.body) == 1
    indent = line.text[: len(line.text) - len(line.text.lstrip())]
    stand_in = [f"{indent}pass{line_end(text)}"] if last else []
    return "".join([*lines[: line.start], *stand_in, *lines[line.end :]])


def _cut(lines: list[str], start: int, end: int) -> str:
    """The text without these lines; of two blank lines that then meet, one goes too."""
    before = start == 0 or not lines[start - 1].strip()
    after = end < len(lines) and not lines[end].strip()
    if before and after:
        if start and end + 1 < len(lines) and not lines[end + 1].strip():
            start -= 1
        else:
            end += 1
    return "".join(lines[:start] + lines[end:])


def _with(text: str, item: Import, package: str, comment: str = "") -> str:
    lines = split_lines(text)
    every = [line for line in import_lines(text) if line.head]
    region = [line for line in every if (line.guard is not None) == item.typing_only]
    if any(item in line.imports for line in region):
        return text
    same = [line for line in region if not line.plain and line.imports[0].module == item.module]
    home = next((line for line in same if line.imports[0].name != "*" and not line.kept_by_comment), None)
    if home and item.name and not comment:
        orders = _orders(every)
        return "".join([*lines[: home.start], with_name(home.text, item, orders), *lines[home.end :]])
    if item.typing_only and not region:
        at = max((line.end for line in every), default=after_opening(lines))
        return insert_lines(text, at, ["", "if TYPE_CHECKING:", *new_statement(item, "    ")])
    first = region[0].text if region else ""
    indent = first[: len(first) - len(first.lstrip())]
    at, blank_before, blank_after = place_for(lines, region, item, package)
    block = [""] * blank_before + new_statement(item, indent, comment) + [""] * blank_after
    return insert_lines(text, at, block)


def _orders(every: list[ImportLine]) -> list[Order]:
    """The orders of names, the one that most statements of this file follow first."""
    names = [[item.name or "" for item in line.imports] for line in every if not line.plain]
    return sorted(ORDERS, key=lambda order: -sum(is_sorted(part, order) for part in names))


def place_for(
    lines: list[str], region: list[ImportLine], item: Import, package: str
) -> tuple[int, bool, bool]:
    """The line to insert before, and whether a blank line goes before and after."""
    section = _section(item, package)
    own = [line for line in region if _section(line.imports[0], package) == section]
    if own:
        return _in_section(lines, own, item), False, False
    earlier = [line for line in region if _section(line.imports[0], package) < section]
    if earlier:
        end = earlier[-1].end
        return end, True, end < len(lines) and bool(lines[end].strip())
    if region:
        return _above_comments(lines, region[0].start), False, True
    at = after_opening(lines)
    return at, at > 0 and bool(lines[at - 1].strip()), at < len(lines) and bool(lines[at].strip())


def _in_section(lines: list[str], own: list[ImportLine], item: Import) -> int:
    first = [line.imports[0] for line in own]
    order = next((order for order in (_plain_first, _by_module) if is_sorted(first, order)), _plain_first)
    key = order(item)
    later = [line for line in own if order(line.imports[0]) > key]
    smaller = [line for line in own if order(line.imports[0]) <= key]
    if not later:
        return own[-1].end
    if not smaller:
        return _above_comments(lines, own[0].start)
    # Between two blocks the new line goes to the one whose modules are closer to it.
    before, after = smaller[-1], next((line for line in own if line.start >= smaller[-1].end), None)
    if after and shared_parts(after.imports[0].module, item.module) > shared_parts(
        before.imports[0].module, item.module
    ):
        return _above_comments(lines, after.start)
    return before.end


def _plain_first(item: Import) -> Any:
    return item.name is not None, natural(item.module)


def _by_module(item: Import) -> Any:
    return natural(item.module)


def _section(item: Import, package: str) -> int:
    """__future__, standard library, other packages, the file's own package, relative."""
    top = item.module.partition(".")[0]
    if not top:
        return 4
    if top == "__future__":
        return 0
    if top in sys.stdlib_module_names:
        return 1
    return 3 if top == package else 2


def _above_comments(lines: list[str], at: int) -> int:
    """``at``, or the first of the comment lines right above it that are not the file's header."""
    answer = answers("".join(lines))[0]
    nodes = ast.parse(answer.text).body
    code = {row for node in nodes for row in answer.rows[node.lineno - 1 : node.end_lineno]}
    top = at
    while top and lines[top - 1].lstrip().startswith("#") and top - 1 not in code:
        top -= 1
    return top if top else at


def after_opening(lines: list[str]) -> int:
    """The line after the header comment, the docstring and the __future__ imports."""
    at = 0
    while at < len(lines) and lines[at].startswith("#"):
        at += 1
    answer = answers("".join(lines))[0]
    for node in ast.parse(answer.text).body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        at = answer.rows[(node.end_lineno or 1) - 1] + 1
        while at - 1 in answer.disputed and at in answer.disputed:
            at += 1
    return at
