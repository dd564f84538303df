"""Locks between processes: one writer at a time of a file; one maker or remover of a folder of the cache.

The lock of a folder is a file beside it. Whoever uses the folder holds it shared until the process ends. The
kernel frees a lock when its holder dies. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say

try:
    import fcntl
except ImportError:
    from npu_upgrade.ground import windows_locks as fcntl


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock file ``path``, which is made when it is missing."""
    with open(path, "a", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


_held: dict[Path, IO[str]] = {}


def use(folder: Path, *, inherited: bool = False) -> None:
    """Hold the folder's lock shared until this process ends; waits for who makes or removes it.

    ``inherited`` keeps it over an exec. A cache that cannot be written is used without a lock.
    """
    with suppress(Blocked):
        handle = _held.get(folder) or _open(folder)
        _held[folder] = handle
        _take(handle, fcntl.LOCK_SH, f"another process is making {folder.name}")
        if inherited:
            os.set_inheritable(handle.fileno(), True)


def release(folder: Path) -> None:
    """Stop using the folder."""
    if handle := _held.pop(folder, None):
        handle.close()


def keep(
    folder: Path, is_complete: Callable[[], bool], make: Callable[[int], object], *, inherited: bool = False
) -> None:
    """Have the folder complete, and in use until this process ends; who finds it incomplete makes it alone.

    ``make`` gets a descriptor of the lock, which every child process keeps open.
    """
    use(folder, inherited=inherited)
    if not is_complete():
        with alone(folder) as lock:
            if not is_complete():
                make(lock)
        use(folder, inherited=inherited)


@contextmanager
def alone(folder: Path) -> Generator[int]:
    """Hold the folder's lock alone; yields its descriptor. Raises :class:`Blocked`."""
    release(folder)
    with _open(folder) as handle:
        _take(handle, fcntl.LOCK_EX, f"another process is making or using {folder.name}")
        yield handle.fileno()


@contextmanager
def alone_now(folder: Path) -> Generator[bool]:
    """Hold the folder's lock alone when nobody else holds it; yields whether that is so."""
    with _open(folder) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def lock_file(folder: Path) -> Path:
    """The file whose lock stands for ``folder``."""
    return folder.with_name(f"{folder.name}.lock")


def _take(handle: IO[str], kind: int, waiting: str) -> None:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"note: {waiting}; waiting for it")
        fcntl.flock(handle, kind)


def _open(folder: Path) -> IO[str]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return open(lock_file(folder), "a", encoding="utf-8")
    except OSError as error:
        raise Blocked(
            f"cannot write to the cache folder {folder.parent}: {error.strerror}",
            expected="a cache folder this user may write to",
            try_="fix its permissions, or point XDG_CACHE_HOME at another folder",
        ) from error
