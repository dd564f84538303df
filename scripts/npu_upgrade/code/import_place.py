"""Where a new import statement belongs among those of a file."""

from __future__ import annotations

import ast
import itertools
import sys
from typing import Any

from npu_upgrade.code.import_lines import ImportLine
from npu_upgrade.code.import_statement import natural
from npu_upgrade.code.names import Import
from npu_upgrade.threeway.conflict_text import answers


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
    order = next((order for order in (_plain_first, _by_module) if _ordered(own, order)), _plain_first)
    key = order(item)
    later = [line for line in own if order(line.imports[0]) > key]
    smaller = [line for line in own if order(line.imports[0]) <= key]
    if not later:
        return own[-1].end
    if not smaller:
        return _above_comments(lines, own[0].start)
    # Between two blocks the new line goes to the one whose modules are closer to it.
    before, after = smaller[-1], next((line for line in own if line.start >= smaller[-1].end), None)
    if after and _shared(after.imports[0].module, item.module) > _shared(
        before.imports[0].module, item.module
    ):
        return _above_comments(lines, after.start)
    return before.end


def _plain_first(item: Import) -> Any:
    return item.name is not None, natural(item.module)


def _by_module(item: Import) -> Any:
    return natural(item.module)


def _ordered(own: list[ImportLine], order: Any) -> bool:
    keys = [order(line.imports[0]) for line in own]
    return all(a <= b for a, b in itertools.pairwise(keys))


def _shared(one: str, other: str) -> int:
    count = 0
    for a, b in zip(one.split("."), other.split("."), strict=False):
        if a != b:
            break
        count += 1
    return count


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
