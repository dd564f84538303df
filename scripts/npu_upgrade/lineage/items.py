"""Things an upgrade leaves to a person, with ids that survive a second merge."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from npu_upgrade.ground.files import sha256


@dataclass(frozen=True)
class Change:
    """A line of a file, or a whole method, and what it is to become."""

    old: str
    new: str


@dataclass
class Item:
    """One thing to look at.

    ``kind`` says which (``conflict``, ``flag``, ``unresolved-name``, ...), ``title`` is one
    line, ``detail`` the texts. A ``blocking`` item keeps the plan from passing while it is
    open. ``state`` is ``open``, ``done`` or ``waived``, ``note`` is what a person said when closing it.
    ``finding`` is the key of the audit's finding that it is, else empty. ``changes`` are lines of the
    file at ``path`` that change when the item is accepted, whole methods where it is about an override;
    ``imports`` are the import statements that the file gets with them.
    """

    id: str
    kind: str
    title: str
    detail: str = ""
    path: str = ""
    blocking: bool = False
    state: str = "open"
    note: str = ""
    finding: str = ""
    changes: list[Change] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def item_id(kind: str, *texts: str) -> str:
    """A short id from the content: the same finding has it again after another merge."""
    return f"{kind}-{sha256(chr(0).join((kind, *texts)))[:8]}"
