"""What was found before, a file for each; one that cannot be read or written is no reason to fail."""

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
