"""One open thing of a job, and where it stands in the files."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_upgrade.code.module import parse_module
from npu_upgrade.job.conflicts import OpenConflict
from npu_upgrade.job.job import Job, naming
from npu_upgrade.job.notes import notes_for
from npu_upgrade.threeway.conflict_text import split_lines

CONFLICT, ITEM, LOOK, PORT, FINDING = "conflict", "item", "look", "port", "finding"
EDIT = "--with FILE"
STAGES = (CONFLICT, ITEM, LOOK, PORT, FINDING)


@dataclass(frozen=True)
class Ask:
    """One open thing: what it is about, where, its texts, and how it can be answered.

    ``texts`` are by role (base, ours, theirs, text); ``how`` the options of resolve that fit;
    ``evidence`` the record of the gate that found it.
    """

    stage: str
    id: str
    what: str
    path: str = ""
    unit: str = ""
    first: int = 0
    last: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    how: tuple[str, ...] = ()
    conflict: OpenConflict | None = None
    evidence: str = ""

    @property
    def owner(self) -> str:
        """The class of the method it is about; empty where no method is known."""
        return self.unit.rpartition(".")[0]

    def commands(self, job: Job) -> list[str]:
        """The commands that answer it, ready to run but for FILE and WHY."""
        head = ["upgrade.py", "resolve", self.id]
        return [f"{shlex.join(head)} {how} {shlex.join(naming(job))}" for how in self.how]

    def as_json(self, job: Job) -> dict[str, Any]:
        """For agents: everything but the position in the list."""
        place = {"path": self.path, "unit": self.unit, "first_line": self.first, "last_line": self.last}
        return {
            "stage": self.stage,
            "id": self.id,
            "what": self.what,
            "place": {key: value for key, value in place.items() if value},
            **self.texts,
            "incidents": [note.as_json() for note in notes_for(self.unit)],
            "answer": self.commands(job),
        }


def root_of(job: Job) -> Path:
    """The folder with the files of the job."""
    return Path(job.repo or job.out or job.folder)


def span(root: Path, path: str, unit: str) -> tuple[int, int]:
    """The 1-based lines of a method as it stands, (0, 0) where it cannot be told."""
    try:
        found = parse_module((root / path).read_text("utf-8")).units.get(unit) if path and unit else None
    except (OSError, SyntaxError, ValueError):
        return 0, 0
    return (found.start + 1, found.end) if found else (0, 0)


def text_at(root: Path, ask: Ask) -> str:
    """The lines that an ask is about, as they stand."""
    if not (ask.path and ask.first):
        return ""
    lines = split_lines((root / ask.path).read_text("utf-8"))
    return "".join(lines[ask.first - 1 : ask.last])
