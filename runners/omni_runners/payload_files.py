"""Payload files: each engine owns a folder with a size limit, and sweeps those of engines that are gone.

An owner holds a lock on ``NAME.lock`` beside its folder ``NAME`` for as long as its process lives; the kernel
lets go of it however the process ends. Whoever starts next removes the folders whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from omni_runners.errors import PayloadError

FOLDER = "OMNI_PAYLOAD_DIR"
LIMIT = "OMNI_PAYLOAD_MAX_BYTES"
DEFAULT_LIMIT = 1 << 30
UNREAD_SECONDS = 600.0  # a file that nobody read for so long makes room for others

_MEMORY = Path("/dev/shm")


def default_base() -> Path:
    """``$OMNI_PAYLOAD_DIR``, else a folder of this user's in memory, or where temporary files go."""
    if os.environ.get(FOLDER):
        return Path(os.environ[FOLDER])
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    return place / f"omni-payloads-{os.getuid()}"


class PayloadFiles:
    """The files of one engine. ``limit`` is in bytes, over all files that are not read yet.

    Raises :class:`PayloadError` when the folder cannot be made.
    """

    def __init__(self, base: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(base / ".lock"):
                sweep(base)
                self.folder = Path(tempfile.mkdtemp(prefix="engine-", dir=base))
                self._owner = _lock_of(self.folder).open("w")
                fcntl.flock(self._owner, fcntl.LOCK_EX)
        except OSError as error:
            raise PayloadError(
                f"no folder for payloads can be made in {base}: {error.strerror}",
                expected="a folder that this user may write to",
                try_=f"{FOLDER}=FOLDER",
            ) from error

    @classmethod
    def from_environment(cls) -> PayloadFiles:
        """Where and how much the environment variables say."""
        limit = os.environ.get(LIMIT, str(DEFAULT_LIMIT))
        if not limit.isdecimal():
            raise PayloadError(
                f"{LIMIT} is {limit!r}", expected="bytes as a whole number", try_=f"{LIMIT}=1073741824"
            )
        return cls(default_base(), int(limit))

    def write(self, data: bytes) -> Path:
        """Write one file, which appears whole or not at all. Raises :class:`PayloadError`."""
        target = self.folder / f"{uuid.uuid4().hex}.safetensors"
        scratch = target.with_suffix(".part")
        try:
            self._make_room(len(data))
            scratch.write_bytes(data)
            scratch.rename(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise PayloadError(
                f"{len(data)} bytes of tensors could not be written to {self.folder}: {error.strerror}",
                expected="a folder with room for them",
                try_=f"free some, or set {FOLDER} to another file system",
            ) from error
        return target

    def _make_room(self, size: int) -> None:
        files = sorted(self._files())
        used = sum(one for _, one, _ in files)
        for written, one, path in files:
            if used + size <= self.limit or time.time() - written < UNREAD_SECONDS:
                break
            path.unlink(missing_ok=True)
            used -= one
        if used + size > self.limit:
            raise PayloadError(
                f"the request's tensors have {size} bytes and {used} bytes of others are not read yet",
                expected=f"at most {self.limit} bytes together",
                try_=f"read payloads as they come (reading removes them), or raise {LIMIT}",
            )

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Each with the time it was written and its size."""
        for path in self.folder.glob("*.safetensors"):
            with contextlib.suppress(FileNotFoundError):  # a client reads meanwhile
                found = path.stat()
                yield found.st_mtime, found.st_size, path

    def close(self) -> None:
        """Remove everything of this engine."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _lock_of(self.folder).unlink(missing_ok=True)
        self._owner.close()


def sweep(base: Path) -> None:
    """Remove the folders in ``base`` whose owners are gone; the caller holds the lock of ``base``."""
    for lock in base.glob("engine-*.lock"):
        with lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
