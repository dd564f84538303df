"""What a grader says: a name, a value from 0 to 1, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """``value`` is None when there was nothing to judge; then it does not count."""

    name: str
    value: float | None
    why: str
