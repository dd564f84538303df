"""What was answered in a job, in order: one JSON line an answer, only ever added to.

Knows nothing of what an answer means. Whole files as they were before an answer lie beside
it, so that it can be taken back.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import write_atomic
from npu_upgrade.ground.locks import locked

ANSWER, UNDO, CONTINUE, SKIP = "answer", "undo", "continue", "skip"
KEEP = 60  # copies of files; those of older answers are let go

Entry = dict[str, Any]


class Journal:
    """The answers of the job in ``folder``; the file is made with the first one.

    An entry has at least ``number`` (from 1), ``at``, ``kind`` and ``id``; of an answer also
    ``how``, ``note``, ``path``, ``unit``, ``before`` and ``after`` (hashes of the file, empty
    when none was written) and ``text`` (what was put there).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "answers.jsonl"

    def entries(self) -> list[Entry]:
        """All entries, oldest first; the half line of a writer that died counts for nothing."""
        try:
            lines = self.path.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and {"number", "at", "kind", "id"} <= set(entry):
                found.append(entry)
        return found

    def active(self) -> list[Entry]:
        """The answers that were not taken back."""
        entries = self.entries()
        undone = {entry["undoes"] for entry in entries if entry["kind"] == UNDO}
        return [e for e in entries if e["kind"] == ANSWER and e["number"] not in undone]

    def latest(self, kind: str, id_: str | None = None) -> Entry | None:
        """The newest entry of a kind (and id); answers that were taken back are left out."""
        entries = self.active() if kind == ANSWER else [e for e in self.entries() if e["kind"] == kind]
        return next((e for e in reversed(entries) if id_ in (None, e["id"])), None)

    def add(self, kind: str, id_: str, **more: Any) -> Entry:
        """Append an entry; on return it is on disk."""
        with locked(self.folder / "answers.lock"):
            number = max((entry["number"] for entry in self.entries()), default=0) + 1
            entry = {"number": number, "at": utc_now(), "kind": kind, "id": id_, **more}
            self._append(json.dumps(entry, ensure_ascii=True, sort_keys=True) + "\n")
        return entry

    def keep(self, digest: str, text: str) -> None:
        """Keep a file's text as it was before an answer, by its hash."""
        write_atomic(self._copy(digest), text)
        copies = sorted((self.folder / "answered").iterdir(), key=lambda path: path.stat().st_mtime)
        for old in copies[:-KEEP]:
            old.unlink(missing_ok=True)

    def kept(self, digest: str) -> str | None:
        """The text kept by :meth:`keep`, None when it was let go."""
        path = self._copy(digest)
        return path.read_bytes().decode("utf-8") if path.exists() else None

    def _copy(self, digest: str) -> Path:
        return self.folder / "answered" / f"{digest}.py"

    def _append(self, line: str) -> None:
        try:
            with self.path.open("a+b") as stream:
                if stream.tell() and not self.path.read_bytes().endswith(b"\n"):
                    stream.write(b"\n")  # close the half line of a writer that died
                stream.write(line.encode())
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise Blocked(
                f"cannot append to {self.path}: {error.strerror or error}",
                expected="room for one more line",
                try_="free some space and answer again",
            ) from error
