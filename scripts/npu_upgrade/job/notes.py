"""What went wrong before in a method: the incidents that this bundle knows, by the method's name.

The recipes of `lab/recipes` re-create reported incidents; each names the method it edits.
Where that folder was not installed there are no notes, and nothing else changes.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from npu_upgrade.lineage.catalogue.skill import skill_root

MOST = 8
_REPORTED = re.compile(r"#\d|\d\.\d")  # an issue or a release; the others were made up for measuring


@dataclass(frozen=True)
class Note:
    """One incident: its id, where it was reported, the method it is about and what happened."""

    id: str
    incident: str
    method: str
    said: str
    check: str

    def as_json(self) -> dict[str, str]:
        return {"incident": self.incident, "case": self.id, "note": self.said, "found_by": self.check}


def notes_for(unit: str, root: Path | None = None) -> list[Note]:
    """The incidents of a method (``Class.method``): those of the same class first, then of its name."""
    name = unit.rpartition(".")[2]
    if not name:
        return []
    known = [note for note in _notes(root or skill_root()) if note.method.rpartition(".")[2] == name]
    reported = [note for note in known if _REPORTED.search(note.incident)]
    return sorted(reported, key=lambda note: (note.method != unit, note.id))[:MOST]


@functools.cache
def _notes(root: Path) -> tuple[Note, ...]:
    folder = root / "lab" / "recipes"
    files = [*sorted((folder / "cases").glob("*.yaml")), *sorted((folder / "emulated").glob("*.yaml"))]
    found: list[Note] = []
    for file in files:
        try:
            case = yaml.safe_load(file.read_text("utf-8"))
        except (OSError, yaml.YAMLError):
            continue
        if isinstance(case, dict) and "negative" not in file.stem:
            found += _of_case(case)
    return tuple(found)


def _of_case(case: dict[str, Any]) -> list[Note]:
    expected = case.get("expect") or {}
    expected = expected[0] if isinstance(expected, list) and expected else expected
    check = expected.get("check", "") if isinstance(expected, dict) else ""
    check = "audit: " + (", ".join(check) if isinstance(check, list) else check) if check else ""
    check = check or f"emulate: {', '.join(case.get('runs', []))}"
    methods = dict.fromkeys(
        edit["at"]
        for edit in case.get("edits") or []
        if isinstance(edit.get("at"), str) and "." in edit["at"]
    )
    said = str(case.get("note") or case.get("incident"))
    return [Note(str(case["id"]), str(case.get("incident", "")), at, said, check) for at in methods]
