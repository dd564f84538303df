"""Plain text that fits a terminal and a log: tables, and long lists cut short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, as wide as their widest cell."""
    every = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every]
    return "\n".join(line.rstrip() for line in lines)


def shortened(names: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """The first of some names in one line, and how many more there are."""
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_of(lines: Sequence[str], most: int) -> list[str]:
    """The first of some lines, and one that says how many more there are."""
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]
