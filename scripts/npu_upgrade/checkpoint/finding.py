"""What the analysis has to say about a checkpoint, one thing at a time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "unsure", "note"]


@dataclass(frozen=True)
class Finding:
    """``error``: the checkpoint is inconsistent; ``unsure``: it could not be judged; ``note``: worth knowing.

    ``kind`` is a stable name (``shard-truncated``), ``where`` the file, tensor or key it is about.
    """

    severity: Severity
    kind: str
    what: str
    where: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def error(kind: str, what: str, where: str = "") -> Finding:
    """The checkpoint is inconsistent."""
    return Finding("error", kind, what, where)


def unsure(kind: str, what: str, where: str = "") -> Finding:
    """Something could not be judged."""
    return Finding("unsure", kind, what, where)


def note(kind: str, what: str, where: str = "") -> Finding:
    """Worth knowing."""
    return Finding("note", kind, what, where)


def shortened(names: list[str], most: int = 5) -> str:
    """The first names of a long list, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
