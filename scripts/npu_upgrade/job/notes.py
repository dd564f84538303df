"""What went wrong before in a method: the reported incidents of ``incidents.yaml``, by the method's name."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("incidents.yaml")
MOST = 8


class Note(msgspec.Struct, frozen=True):
    """One incident: its recipe, where it was reported, the method, what happened and what finds it."""

    case: str
    incident: str
    method: str
    note: str
    found_by: str

    def as_json(self) -> dict[str, str]:
        return {
            "incident": self.incident,
            "case": self.case,
            "note": self.note,
            "found_by": self.found_by,
        }


def notes_for(unit: str) -> list[Note]:
    """The incidents of a method (``Class.method``): those of the same class first, then of its name."""
    name = unit.rpartition(".")[2]
    known = [note for note in _notes() if note.method.rpartition(".")[2] == name]
    return sorted(known, key=lambda note: (note.method != unit, note.case))[:MOST]


@functools.cache
def _notes() -> tuple[Note, ...]:
    return msgspec.yaml.decode(FILE.read_bytes(), type=tuple[Note, ...])
