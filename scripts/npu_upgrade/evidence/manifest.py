"""The files of a run with their hashes, and whether they still are what they were."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any

SCHEMA = "npu-upgrade/run/1"
NAME = "manifest.json"


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file of any size."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def listing(folder: Path) -> dict[str, dict[str, Any]]:
    """Relative path -> sha256 and bytes, for all files but the manifest itself."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and name != NAME:
            found[name] = {"sha256": file_sha256(path), "bytes": path.stat().st_size}
    return found


def differences(folder: Path) -> list[str]:
    """What of a run's folder is not as its manifest says; empty when all is."""
    try:
        said = json.loads((folder / NAME).read_text("utf-8"))
        wanted = dict(said["files"])
        if said["schema"] != SCHEMA:
            return [f"{NAME} has the schema {said['schema']!r}"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{NAME} cannot be read: {error}"]
    there = listing(folder)
    wrong = [f"{name} is missing" for name in wanted if name not in there]
    wrong += [f"{name} was added" for name in there if name not in wanted]
    wrong += [f"{name} was changed" for name in there if name in wanted and there[name] != wanted[name]]
    wrong += [f"{path.relative_to(folder)} is a link" for path in folder.rglob("*") if path.is_symlink()]
    return sorted(wrong)


def is_plain(name: str) -> bool:
    """Whether a name stays below the folder it is put in, on any system."""
    parts = PurePosixPath(name).parts
    odd = not name or "\\" in name or "\0" in name or ":" in name or not name.isprintable()
    return (
        not odd
        and not name.startswith("/")
        and name == "/".join(parts)
        and ".." not in parts
        and "." not in parts
    )
