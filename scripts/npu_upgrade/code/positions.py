"""Where the statements of a piece of source stand in its file."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.code.statements import Statement


def line_numbers(statements: Sequence[Statement], start: int) -> list[tuple[int, int]]:
    """The first and last line (1-based) of each statement of a source.

    ``start`` is the line (0-based) at which the source begins in its file.
    """
    found: list[tuple[int, int]] = []
    line = start
    for statement in statements:
        line += statement.blanks + sum(comment.blanks + 1 for comment in statement.comments)
        found.append((line + 1, line + len(statement.lines)))
        line += len(statement.lines)
    return found
