"""When two conflicts are the same: by the statements of their sides, wherever they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from npu_upgrade.code.statements import END, Statement, statements_of
from npu_upgrade.ground.files import sha256


def conflict_key(base: str, ours: str, theirs: str) -> str:
    """The identity of a conflict, from the source of its three sides."""
    sides = [identity(text) for text in (base, ours, theirs)]
    # How deep ours and theirs are to one another counts; where the conflict stands does not.
    apart = _first_column(theirs) - _first_column(ours) if sides[1] and sides[2] else 0
    return sha256(json.dumps([sides, apart]))[:40]


def depth_of(base: str, ours: str, theirs: str) -> int:
    """The column a conflict stands at: that of the first statement of ours, else theirs, else base."""
    return next((_first_column(text) for text in (ours, theirs, base) if _code_lines(text)), 0)


def identity(text: str) -> list[Any]:
    """The statements of one side, less comments, layout and depth."""
    try:
        statements = [s for s in statements_of(text) if s.key != END]
    except SyntaxError:
        return [line.strip() for line in _code_lines(text)]
    edge = min((s.indent for s in statements), default=0)
    return [[s.indent - edge, s.key] for s in statements]


def left_edge(statements: Sequence[Statement]) -> int:
    """The smallest indent of the statements; of the comments when there are only those."""
    edges = [s.indent for s in statements if s.key != END]
    return min(edges or [c.indent for s in statements for c in s.comments], default=0)


def _code_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]


def _first_column(text: str) -> int:
    """The column of the first statement, 0 when there is none."""
    return next((len(line) - len(line.lstrip()) for line in _code_lines(text)), 0)
