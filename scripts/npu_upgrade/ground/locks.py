"""One writer at a time for a job's files, between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock file ``path`` (made when missing); the kernel frees it when its holder dies."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
