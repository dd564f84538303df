"""What is not ported yet, kept in the workspace from one upgrade to the next.

One file, ``.npu-upgrade/port.json``: every hunk that was ever listed, by its id, with its
text, so that it is known again when the release it came from is long past.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from npu_upgrade.code.statements import END, render, statements_of
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.kept import written
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.port.hunks import Hunk

SCHEMA = "npu-upgrade/port/1"
OPEN, PORTED, WAIVED, BY_HAND, GONE = "open", "ported", "waived", "by-hand", "gone"
DECIDED = (WAIVED, BY_HAND)
"""What a person said of a hunk, so that it is not to be taken."""
_ANEW = "restore it, or move it away: open hunks are found again, waivers are lost"


class Entry(Struct, frozen=True):
    """A hunk: ``old`` and ``new`` are its texts, ``after`` the statement it stands behind on the GPU side.

    States: ``open``; ``ported``, the NPU side holds it; ``waived``, with a note;
    ``by-hand``, the NPU side has it in a form of its own, which the note tells; ``gone``, the GPU side has
    dropped or changed it since. ``since``: the versions it was first seen between; ``at``: when its state
    last changed. Of the kind ``upstream`` it is a change of vllm-ascend's, and has a ``title`` only.
    """

    kind: Annotated[str, msgspec.Meta(pattern="^(change|method|base|upstream)$")]
    state: Annotated[str, msgspec.Meta(pattern="^(open|ported|waived|by-hand|gone)$")]
    note: str
    since: dict[str, Any]
    at: str
    runner: str = ""
    unit: str = ""
    old: str = ""
    new: str = ""
    after: str = ""
    title: str = ""


class _File(Struct):
    schema: str
    hunks: dict[str, Entry] = {}
    written: dict[str, str] = {}


class Ledger:
    """The entries by hunk id. Nothing is written before :meth:`save`."""

    def __init__(self, workspace: Path) -> None:
        self.path = workspace.absolute() / WORKSPACE_DIR / "port.json"
        self._workspace = workspace.absolute()
        file = _load(self.path)
        self.entries, self.written = file.hunks, file.written
        self._changed: set[str] = set()
        self._wrote: dict[str, str] = {}

    def state(self, name: str) -> str:
        """The state of a hunk; open when it is new."""
        return self.entries[name].state if name in self.entries else OPEN

    @property
    def decided(self) -> Collection[str]:
        """The ids of the hunks that are not to be taken."""
        return {name for name, entry in self.entries.items() if entry.state in DECIDED}

    def note(self, name: str) -> str:
        return self.entries[name].note if name in self.entries else ""

    def see(self, hunk: Hunk, state: str, versions: Mapping[str, Any]) -> None:
        """Enter a hunk, or bring its state up to date; what a person said stays until it is ported."""
        before = self.entries.get(hunk.id)
        if before is None:
            sides = {"old": render(hunk.old), "new": render(hunk.new), "after": hunk.after}
            where = {"runner": hunk.runner.kind, "unit": hunk.unit}
            self._put(hunk.id, Entry(hunk.kind, state, "", dict(versions), utc_now(), **where, **sides))
        elif state != OPEN or before.state in (PORTED, GONE):
            self.set(hunk.id, state)

    def see_item(self, name: str, title: str) -> None:
        """Enter a change of vllm-ascend's that an override may have to follow."""
        if name not in self.entries:
            self._put(name, Entry("upstream", OPEN, "", {}, utc_now(), title=title))

    def set(self, name: str, state: str, note: str = "") -> None:
        """Change the state of an entry; :class:`KeyError` for one that is not there."""
        entry = self.entries[name]
        if (entry.state, entry.note) != (state, note):
            self._put(name, msgspec.structs.replace(entry, state=state, note=note, at=utc_now()))

    def wrote(self, files: Mapping[Path, str]) -> None:
        """Note the hashes of files that a port wrote, by their absolute paths."""
        self._wrote |= {str(path.absolute()): digest for path, digest in files.items()}

    def save(self) -> None:
        """Write what changed into the file as it is now: another process may have written since."""
        if not self._changed and not self._wrote:
            return
        root = workspace_root(self._workspace)
        with locked(root / "port.lock"):
            file = _load(self.path)
            file.hunks |= {name: self.entries[name] for name in self._changed}
            file.hunks = dict(sorted(file.hunks.items()))
            file.written |= self._wrote
            write_json(self.path, msgspec.to_builtins(file))

    def hunks(self, states: Container[str], runners: Iterable[Runner]) -> dict[str, Hunk | None]:
        """The hunks in some states by their ids; None for one of a runner that is not among ``runners``."""
        by_kind = {runner.kind: runner for runner in runners}
        found = {n: one for n, one in self.entries.items() if one.state in states and one.kind != "upstream"}
        return {name: self._hunk(name, one, by_kind.get(one.runner)) for name, one in found.items()}

    def _hunk(self, name: str, entry: Entry, runner: Runner | None) -> Hunk | None:
        try:
            old, new = (
                tuple(s for s in statements_of(side) if s.key != END) for side in (entry.old, entry.new)
            )
            if not (old or new):
                raise SyntaxError("it holds no statement")
        except SyntaxError as error:
            raise BadInput(
                f"cannot read {self.path}: {name}: {error}",
                expected=f"the file as this tool wrote it ({SCHEMA})",
                try_=_ANEW,
            ) from error
        return Hunk(entry.kind, runner, entry.unit, old, new, after=entry.after) if runner else None

    def _put(self, name: str, entry: Entry) -> None:
        self.entries[name] = entry
        self._changed.add(name)


def _load(path: Path) -> _File:
    return written(path, _File, schema=SCHEMA, try_=_ANEW) or _File(SCHEMA)
