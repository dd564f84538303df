"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Generator
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
    try:
        with _finished(path, data) as new:
            os.replace(new, path)
    except OSError as error:
        raise _unwritable(path, error) from error


@contextlib.contextmanager
def _finished(path: Path, data: bytes | str) -> Generator[Path]:
    """A file beside ``path`` that may be renamed to it; removed at the end if it was not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
        os.chmod(name, path.stat().st_mode & 0o7777 if path.exists() else 0o644)
        yield Path(name)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk; raises :class:`OSError`."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> BadInput:
    return BadInput(
        f"cannot write {path}: {error.strerror or error}",
        expected="a folder this user may write to",
        try_="choose another folder, or fix its permissions or free space",
    )


def json_text(value: Any) -> str:
    """``value`` as the indented JSON of a file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def shown_json(value: Any, indent: str = "") -> str:
    """``value`` as the JSON that an agent reads: a line for each key, and for each entry of a list."""
    inner = f"{indent} "
    if isinstance(value, dict) and value:
        rows = [f"{json.dumps(name)}: {shown_json(one, inner)}" for name, one in value.items()]
        return f"{{\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        rows = [json.dumps(one, ensure_ascii=False) for one in value]
        return f"[\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


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


def rows_of(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list; the file may be of another version."""
    rows = value.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def write_together(files: dict[Path, str]) -> None:
    """Write several files so that a failure leaves all of them as they were.

    Every new text, and a copy of every old file, is put beside its place first; only when all are there are
    the new ones moved in. Raises :class:`BadInput` when a place cannot be written.
    """
    back: list[tuple[Path, Path | None]] = []  # what was moved in, with the copy of what was there
    with contextlib.ExitStack() as stack:
        path = Path()
        try:
            moves = []
            for path, text in files.items():
                new = stack.enter_context(_finished(path, text))
                old = stack.enter_context(_finished(path, path.read_bytes())) if path.exists() else None
                moves.append((path, new, old))
            for path, new, old in moves:
                os.replace(new, path)
                back.append((path, old))
        except BaseException as error:
            for moved, old in reversed(back):
                if old:
                    os.replace(old, moved)
                else:
                    moved.unlink()
            if isinstance(error, OSError):
                raise _unwritable(path, error) from error
            raise
