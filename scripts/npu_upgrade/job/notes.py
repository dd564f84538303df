"""What went wrong before with the names of a piece of code: the reported incidents of ``incidents.yaml``."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("incidents.yaml")
MOST = 3
_SYMBOL = re.compile(r"\w*(?:[a-z0-9]_[a-z0-9]|[a-z][A-Z])\w*")


class Note(msgspec.Struct, frozen=True):
    """One incident: its recipe, where it was reported, the method, what happened and what finds it."""

    case: str
    incident: str
    method: str
    note: str
    found_by: str

    def as_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("incident", "case", "note", "found_by")}


def notes_for(unit: str, text: str) -> list[Note]:
    """The incidents that name something that ``text`` has too, those of the method (``Class.method``) first.

    What the method itself is called says nothing: only what was wrong in it does.
    """
    name = unit.rpartition(".")[2]
    there = set(_SYMBOL.findall(text)) - {name}
    shared = {note: len(there.intersection(_SYMBOL.findall(note.note))) for note in _notes()}
    known = [note for note in _notes() if shared[note]]
    order = {note: (note.method.rpartition(".")[2] != name, -shared[note], note.case) for note in known}
    return sorted(known, key=order.__getitem__)[:MOST]


@functools.cache
def _notes() -> tuple[Note, ...]:
    return msgspec.yaml.decode(FILE.read_bytes(), type=tuple[Note, ...])
