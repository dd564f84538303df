"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from npu_upgrade.ground.errors import BadInput


def sha256(data: bytes | str) -> str:
    """The hex SHA-256 of bytes, or of a text's UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write ``path`` by renaming a finished file over it; make its folder when missing.

    Raises :class:`BadInput` when the place cannot be written; the old file then stands.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(payload)
        os.chmod(temporary, path.stat().st_mode & 0o7777 if path.exists() else 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise BadInput(
            f"cannot write {path}: {error.strerror or error}",
            expected="a folder this user may write to",
            try_="choose another folder, or fix its permissions or free space",
        ) from error


def json_text(value: Any) -> str:
    """``value`` as the indented JSON of a file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_atomic(path, json_text(value))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when it is missing, damaged or something else."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_together(files: dict[Path, str]) -> None:
    """Write several files so that a failure leaves all of them as they were.

    Every new text is put beside its place first; only when all are there are they moved in.
    Raises :class:`BadInput` when a place cannot be written.
    """
    staged: list[tuple[Path, Path]] = []
    try:
        for path, text in files.items():
            beside = path.with_name(f".{path.name}.new")
            write_atomic(beside, text)
            staged.append((beside, path))
        for beside, path in staged:
            if path.exists():
                os.chmod(beside, path.stat().st_mode & 0o7777)
            os.replace(beside, path)
    except OSError as error:
        raise BadInput(
            f"cannot write {error.filename}: {error.strerror or error}",
            expected="a folder this user may write to",
            try_="choose another folder, or fix its permissions or free space",
        ) from error
    finally:
        for beside, _ in staged:
            with contextlib.suppress(OSError):
                beside.unlink()
