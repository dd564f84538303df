"""Scores that add up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self


@dataclass
class Tally:
    """Counts and lists of cases as dataclass fields."""

    def add(self, other: Self) -> None:
        """Add every field of ``other`` to this one's."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
