"""What every command ends with: a verdict, its exit code, and the next command."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.ground.command import Command


class Verdict(enum.Enum):
    """The four outcomes of a step that ran (usage errors are exceptions, exit 2)."""

    PASS = "PASS"
    FAIL = "FAIL"
    BLOCKED = "BLOCKED"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        return {"PASS": 0, "FAIL": 1, "BLOCKED": 3, "INCONCLUSIVE": 4}[self.value]


@dataclass
class Result:
    """The outcome of one command.

    ``summary`` is one line; ``text`` is the long form for people (a table, a diff);
    ``data`` is JSON-able and for programs; ``next`` is the one command to run now. ``brief`` is what an agent
    needs of the data to decide: it is shown in its place, with the file that has the data; empty where the
    summary says it all.
    """

    verdict: Verdict
    summary: str
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    next: Command | None = None
    brief: dict[str, Any] | None = None

    @property
    def head(self) -> dict[str, Any]:
        return {"verdict": self.verdict.value, "summary": self.summary, "next": self.next and str(self.next)}

    def as_json(self) -> dict[str, Any]:
        return self.head | self.data
