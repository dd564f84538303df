"""What was written down before, a file for each: found again where it can be, or it has to be as it was."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import write_atomic

T = TypeVar("T")


def kept(path: Path, kind: type[T]) -> T | None:
    """What a file keeps, None where it keeps nothing of that kind."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


def keep(path: Path, value: T) -> T:
    """Keep a value, and give it back."""
    with contextlib.suppress(BadInput):
        write_atomic(path, msgspec.json.encode(value))
    return value


def written(path: Path, kind: type[T], *, try_: str, schema: str = "") -> T | None:
    """What this tool wrote into a file, None where there is none; ``schema`` is what it has to name.

    Raises :class:`BadInput` for a file that is damaged, or of another version.
    """
    try:
        value = msgspec.json.decode(path.read_bytes(), type=kind)
        if schema and getattr(value, "schema", "") != schema:
            raise ValueError(f"schema {getattr(value, 'schema', '')!r}")
        return value
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read {path}: {error}",
            expected="the file as this version of the tool writes it" + (f" ({schema})" if schema else ""),
            try_=try_,
        ) from error
