"""What a look at upstream finds, and what is kept of it for the next one.

One file in the workspace holds what was seen last of each upstream, and the commits or releases that were
mentioned. It is written whole and at once.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.lineage.items import Item

SCHEMA = 1
MOST_ENTRIES = 500
"""So many mentions are kept; what is still open stays beyond that."""


class State(StrEnum):
    """What a commit or release means to the downstream."""

    GREEN = "green"
    """It touches units of ours, and all merge by themselves."""
    FLAGGED = "flagged"
    """Something was decided on thin evidence, or overridden code has another signature."""
    BROKEN = "broken"
    """A conflict, something gone, a new finding of the audit, or an import that fails."""

    @property
    def means(self) -> str:
        """What it says to a reader, and who has to answer it."""
        return _MEANS[self]


_MEANS = {
    State.GREEN: "merges by itself",
    State.FLAGGED: "a reviewer has to look at it",
    State.BROKEN: "a maintainer has to write it",
}


class Touch(msgspec.Struct, frozen=True):
    """One unit of ours that a step touches: its file and name, what it is to upstream, upstream's unit.

    ``how`` is ``changed``, ``signature changed``, ``removed`` or ``added``; ``merge`` of a copy is ``clean``,
    ``flagged``, ``conflict`` or ``gone``, empty for what is no copy or a copy that was left behind.
    """

    path: str
    name: str
    relation: str
    upstream: str
    how: str
    merge: str = ""

    @property
    def unit(self) -> str:
        """How a unit is called on a command line: its name, or its file for a whole one."""
        return self.name or self.path


class Entry(msgspec.Struct, frozen=True):
    """A commit or release that is mentioned; ``items`` are what it newly leaves to a person."""

    label: str
    spec: str
    date: str
    subject: str
    state: State
    touches: tuple[Touch, ...] = ()
    items: tuple[Item, ...] = ()


class Seen(msgspec.Struct):
    """What is known of one upstream: the step seen last, the mentions, and the ids that are open.

    ``asked`` are the specs that the look was given, the downstream first, with whole paths.
    """

    label: str
    spec: str
    date: str
    ours: str
    entries: list[Entry] = []
    open: list[str] = []
    asked: tuple[str, ...] = ()

    @property
    def point(self) -> str:
        """What was seen last: a commit by its whole SHA, a release by its number."""
        return self.spec.rpartition("@")[2] if self.spec.startswith("git:") else self.label

    def still_open(self) -> list[tuple[Entry, list[Item]]]:
        """The mentions with something open, oldest first, and what that is; an item is told once."""
        left, found = set(self.open), []
        for entry in reversed(self.entries):
            items = [item for item in entry.items if item.id in left]
            left -= {item.id for item in items}
            found += [(entry, items)] if items else []
        return found[::-1]

    def is_closed(self, entry: Entry) -> bool:
        """Whether a mention left something to a person, and nothing of it is open any more."""
        return bool(entry.items) and not {item.id for item in entry.items} & set(self.open)


class Watched(msgspec.Struct):
    """The state file: what was seen of each upstream, by its source without the version."""

    schema: int = SCHEMA
    upstreams: dict[str, Seen] = {}


def state_path(workspace: Path) -> Path:
    """The state file of a workspace."""
    return workspace / WORKSPACE_DIR / "watch.json"


def read_state(workspace: Path) -> Watched:
    """What was kept, nothing at first. Raises :class:`BadInput` for a file that is damaged or newer."""
    path = state_path(workspace)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Watched)
        if found.schema == SCHEMA:
            return found
        why = f"it has schema {found.schema}, not {SCHEMA}"
    except FileNotFoundError:
        return Watched()
    except (OSError, msgspec.MsgspecError) as error:
        why = str(error)
    raise BadInput(
        f"{path} cannot be read: {why}",
        expected="the state of an earlier watch",
        try_="move it away: the next run looks from the versions that were copied on",
    )


def write_state(workspace: Path, state: Watched) -> None:
    """Keep the state, with the last mentions and all that are open."""
    for seen in state.upstreams.values():
        left = {entry.label for entry, _ in seen.still_open()}
        recent = {entry.label for entry in seen.entries[-MOST_ENTRIES:]}
        seen.entries = [entry for entry in seen.entries if entry.label in left | recent]
    workspace_root(workspace)
    write_atomic(state_path(workspace), msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
