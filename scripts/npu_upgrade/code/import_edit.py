"""Edits the import statements of a file and leaves every other line of it as it is."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from npu_upgrade.code.import_lines import ImportLine, import_lines
from npu_upgrade.code.import_place import after_opening, place_for
from npu_upgrade.code.import_statement import (
    ORDERS,
    Order,
    is_sorted,
    new_statement,
    trailing_comment,
    with_name,
    without_name,
)
from npu_upgrade.code.module import split_lines
from npu_upgrade.code.names import Import


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
    stand_in = [f"{indent}pass{_eol(lines)}"] if last else []
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
    eol = _eol(lines)
    if item.typing_only and not region:
        return _with_guard(lines, every, item, eol)
    first = region[0].text if region else ""
    indent = first[: len(first) - len(first.lstrip())]
    at, blank_before, blank_after = place_for(lines, region, item, package)
    block = [eol] * blank_before + [new_statement(item, indent, eol, comment)] + [eol] * blank_after
    return "".join([*_closed(lines[:at], eol), *block, *lines[at:]])


def _with_guard(lines: list[str], every: list[ImportLine], item: Import, eol: str) -> str:
    at = max((line.end for line in every), default=after_opening(lines))
    block = [eol, f"if TYPE_CHECKING:{eol}", new_statement(item, "    ", eol)]
    return "".join([*_closed(lines[:at], eol), *block, *lines[at:]])


def _orders(every: list[ImportLine]) -> list[Order]:
    """The orders of names, the one that most statements of this file follow first."""
    names = [[item.name or "" for item in line.imports] for line in every if not line.plain]
    return sorted(ORDERS, key=lambda order: -sum(is_sorted(part, order) for part in names))


def _eol(lines: list[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def _closed(lines: list[str], eol: str) -> list[str]:
    """The lines, the last one with a line end."""
    if lines and not lines[-1].endswith(("\n", "\r")):
        return [*lines[:-1], lines[-1] + eol]
    return lines
