"""What is not ported yet, kept in the workspace from one upgrade to the next.

One file, ``.npu-upgrade/port.json``: every hunk that was ever listed, by its id, with its
text, so that it is known again when the release it came from is long past.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from npu_upgrade.code.statements import render
from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.locks import locked
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root
from npu_upgrade.port.hunks import Hunk

SCHEMA = "npu-upgrade/port/1"
OPEN, PORTED, WAIVED, GONE = "open", "ported", "waived", "gone"


class Ledger:
    """The entries by hunk id. Nothing is written before :meth:`save`.

    An entry is ``{kind, runner, unit, old, new, after, state, note, since, at}``: the source
    texts before and after, the statement the hunk stands behind on the GPU side, the versions
    it was first seen between, and when its state last changed. States: ``open``; ``ported``,
    the NPU side holds it; ``waived``, with a note; ``gone``, the GPU side has dropped or
    changed it since.
    """

    def __init__(self, workspace: Path) -> None:
        self.path = workspace.absolute() / WORKSPACE_DIR / "port.json"
        self._workspace = workspace.absolute()
        self.entries, self.written = _load(self.path)
        self._changed: set[str] = set()
        self._wrote: dict[str, str] = {}

    def state(self, name: str) -> str:
        """The state of a hunk; open when it is new."""
        return self.entries.get(name, {}).get("state", OPEN)

    def note(self, name: str) -> str:
        return self.entries.get(name, {}).get("note", "")

    def see(self, hunk: Hunk, state: str, versions: Mapping[str, Any]) -> None:
        """Enter a hunk, or bring its state up to date; a waiver stays until the NPU side has the hunk."""
        before = self.entries.get(hunk.id)
        if before is None:
            entry = {"kind": hunk.kind, "runner": hunk.runner.kind, "unit": hunk.unit}
            entry |= {"old": render(hunk.old), "new": render(hunk.new), "after": hunk.after}
            self._put(hunk.id, entry | {"state": state, "note": "", "since": dict(versions), "at": utc_now()})
        elif state != OPEN or before["state"] in (PORTED, GONE):
            self.set(hunk.id, state)

    def see_item(self, name: str, title: str) -> None:
        """Enter a change of vllm-ascend's that an override may have to follow."""
        if name not in self.entries:
            entry = {
                "kind": "upstream",
                "title": title,
                "state": OPEN,
                "note": "",
                "since": {},
                "at": utc_now(),
            }
            self._put(name, entry)

    def set(self, name: str, state: str, note: str = "") -> None:
        """Change the state of an entry; :class:`KeyError` for one that is not there."""
        entry = self.entries[name]
        if (entry["state"], entry["note"]) != (state, note):
            self._put(name, entry | {"state": state, "note": note, "at": utc_now()})

    def wrote(self, files: Mapping[Path, str]) -> None:
        """Note the hashes of files that a port wrote, by their absolute paths."""
        self._wrote |= {str(path.absolute()): digest for path, digest in files.items()}

    def save(self) -> None:
        """Write what changed into the file as it is now: another process may have written since."""
        if not self._changed and not self._wrote:
            return
        root = workspace_root(self._workspace)
        with locked(root / "port.lock"):
            entries, written = _load(self.path)
            entries |= {name: self.entries[name] for name in self._changed}
            state = {
                "schema": SCHEMA,
                "hunks": dict(sorted(entries.items())),
                "written": written | self._wrote,
            }
            write_json(self.path, state)

    def of_state(self, states: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The entries in some states."""
        wanted = set(states)
        return {name: entry for name, entry in self.entries.items() if entry["state"] in wanted}

    def _put(self, name: str, entry: dict[str, Any]) -> None:
        self.entries[name] = entry
        self._changed.add(name)


def _load(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    try:
        state = json.loads(path.read_text("utf-8"))
        if state["schema"] != SCHEMA or not all(_is_entry(entry) for entry in state["hunks"].values()):
            raise ValueError("another schema")
        return dict(state["hunks"]), dict(state["written"])
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(
            f"cannot read the port ledger {path}: {error}",
            expected=f"the file as this tool wrote it ({SCHEMA})",
            try_="restore it, or move it away: open hunks are found again, waivers are lost",
        ) from error


def _is_entry(entry: Mapping[str, Any]) -> bool:
    names = ("kind", "state", "note", "since", "at")
    more = ("runner", "unit", "old", "new", "after") if entry["kind"] != "upstream" else ("title",)
    return all(name in entry for name in (*names, *more))
