"""The folder of one run while it is written: recognisably incomplete until it is whole and hashed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npu_upgrade.evidence.manifest import NAME, SCHEMA, listing
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import json_text, sync_folder

PARTIAL = ".partial"


@dataclass(frozen=True)
class RunFolder:
    """Where one run's files go; everything passes the redactor on its way in."""

    id: str
    gate: str
    folder: Path
    redactor: Redactor

    def text(self, name: str, text: str) -> None:
        self._write(name, [self.redactor.text(text).encode()])

    def json(self, name: str, value: Any) -> None:
        self._write(name, [json_text(self.redactor.value(value)).encode()])

    def command(self, argv: list[str], environment: dict[str, str]) -> None:
        """``command.json``: what was started, and with which variables."""
        redacted = {
            "argv": self.redactor.argv(argv),
            "environment": self.redactor.environment(environment),
        }
        self._write("command.json", [json_text(redacted).encode()])

    def log(self, name: str, source: Path) -> None:
        """The whole log of a process, redacted, whatever its size."""
        with open(source, "rb") as stream:
            self._write(name, self.redactor.log(stream))

    def close(self) -> Path:
        """Hash everything and give the folder its final name; after this it is never written to again."""
        manifest = {"schema": SCHEMA, "id": self.id, "files": listing(self.folder)}
        self._write(NAME, [json_text(manifest).encode()])
        final = self.folder.with_name(self.id)
        sync_folder(self.folder)
        os.rename(self.folder, final)
        sync_folder(final.parent)
        return final

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise _no_room(path, error) from error


def begin(runs: Path, gate: str, redactor: Redactor) -> RunFolder:
    """A new, empty folder below ``runs``, named so that it sorts by time and reads as incomplete."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    id = f"{now}-{gate}-{secrets.token_hex(4)}"
    folder = runs / f"{id}{PARTIAL}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise _no_room(folder, error) from error
    return RunFolder(id, gate, folder, redactor)


def _no_room(path: Path, error: OSError) -> Blocked:
    return Blocked(
        f"cannot write {path}: {error.strerror or error}",
        expected="room for the evidence of a run",
        try_="free some space and run the gate again; the folder stays, marked as incomplete",
    )
