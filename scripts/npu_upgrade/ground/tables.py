"""Plain text that fits a terminal and a log: tables, and long lists cut short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, as wide as their widest cell."""
    every = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every]
    return "\n".join(line.rstrip() for line in lines)


def shortened(items: Iterable[str], most: int = 5, joint: str = ", ") -> str:
    """The first of many items in a row, each once, and how many more there are."""
    every = list(dict.fromkeys(items))
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return joint.join(every[:most]) + more


def cut(text: str, most: int) -> str:
    """A text of at most ``most`` characters, with dots where it goes on."""
    return text if len(text) <= most else text[: most - 3] + "..."


def first_of(lines: Sequence[str], most: int) -> list[str]:
    """The first of some lines, and one that says how many more there are."""
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
