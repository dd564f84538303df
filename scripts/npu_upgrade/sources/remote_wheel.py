"""Read one file of a release without downloading all of it: ranges of a wheel over HTTP.

Only for ranking candidates. Anything that enters a result is read from a whole archive
checked against the index's hash; what is read here is checked against the wheel's own RECORD.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import functools
import hashlib
import io
import re
import zipfile
import zlib
from pathlib import Path

import msgspec

from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.sources import archives
from npu_upgrade.sources.git import decoded
from npu_upgrade.sources.index import Release, ReleaseFile, release

BLOCK = 128 << 10
MAX_MEMBER = 32 << 20


class NoRanges(Exception):
    """The server does not answer ranges as needed, or the wheel does not hold up; read the whole archive."""


def peek_file(project: str, version: str, path: str) -> str | None:
    """The text of one file of a release, or None when the release does not have it.

    Raises as :func:`npu_upgrade.sources.tree.open_source` does.
    """
    return peek_release(release(project, version), path)


def peek_release(found: Release, path: str) -> str | None:
    """As :func:`peek_file`, of a release that the index was asked for."""
    chosen = archives.pick(found.files)
    archive = _at_hand(chosen, cache_root())
    wheels = [file for file in found.files if file.kind == "wheel" and file.url.startswith("http")]
    if archive is None and wheels:
        with contextlib.suppress(NoRanges):
            return _remembered(archives.pick(wheels), path)
    if archive is None:
        archive = archives.unpacked(chosen)
        _at_hand.cache_clear()
    return decoded((archive.root / path).read_bytes(), path) if path in archive.files else None


@functools.lru_cache(maxsize=64)  # each of the thousands of files of an archive is looked at
def _at_hand(file: ReleaseFile, cache: Path) -> archives.Archive | None:
    """The archive of a file in the cache folder, as it was when a file of it was first asked for."""
    return archives.cached(file)


def _remembered(wheel: ReleaseFile, path: str) -> str | None:
    """The answer for this wheel and path from the cache, or read now and remembered."""
    digest = wheel.hashes.get("sha256")
    if not digest or not digest.isalnum():
        return read_member(wheel.url, path)
    cache = cache_root() / "peeks" / digest / f"{sha256(path)}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(cache.read_bytes(), type=tuple[str | None])[0]
    text = read_member(wheel.url, path)
    write_atomic(cache, msgspec.json.encode([text]))
    return text


def read_member(url: str, path: str) -> str | None:
    """One text file of a remote wheel, checked by CRC and RECORD; None when it has no such file.

    Raises :class:`NoRanges` when that cannot be done by ranges.
    """
    try:
        wheel, stated = _opened(url)
        if path not in stated:
            return None
        data = _bounded(wheel, path)
        algorithm, _, digest = stated[path].partition("=")
        made = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode().rstrip("=")
        if made != digest:
            raise NoRanges(f"{path} does not match the wheel's RECORD")
        return decoded(data, path)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        IndexError,
        KeyError,
        StopIteration,
        NotImplementedError,
        Blocked,
    ) as error:
        raise NoRanges(str(error)) from error


@functools.lru_cache(maxsize=96)  # one file after another is looked for in many releases
def _opened(url: str) -> tuple[zipfile.ZipFile, dict[str, str]]:
    """A remote wheel, and the hash of each of its files as its RECORD states it."""
    reader = _RangeReader(url)
    wheel = zipfile.ZipFile(reader)
    names = wheel.namelist()
    record = next(name for name in names if re.fullmatch(r"[^/]+\.dist-info/RECORD", name))
    rows = csv.reader(io.StringIO(_bounded(wheel, record).decode("utf-8")))
    stated = {row[0]: row[1] for row in rows if len(row) > 1}
    reader.forget()
    return wheel, {name: stated.get(name, "") for name in names}


def _bounded(wheel: zipfile.ZipFile, name: str) -> bytes:
    if wheel.getinfo(name).file_size > MAX_MEMBER:
        raise NoRanges(f"{name} is too large")
    return wheel.read(name)


class _RangeReader(io.RawIOBase):
    """A seekable file over HTTP ranges; blocks of :data:`BLOCK` bytes are read once."""

    def __init__(self, url: str) -> None:
        self._url, self._position = url, 0
        self._blocks: dict[int, bytes] = {}
        tail, self._size = self._range(f"-{BLOCK}")
        start = self._size - len(tail)
        first = -(-start // BLOCK)
        for block in range(first, -(-self._size // BLOCK)):
            self._blocks[block] = tail[block * BLOCK - start : (block + 1) * BLOCK - start]

    def forget(self) -> None:
        """Let go of what was read: the directory of a large wheel has megabytes."""
        self._blocks.clear()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = max(0, offset + (0, self._position, self._size)[whence])
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        size = left if size is None or size < 0 else min(size, left)
        if size == 0:
            return b""
        start = self._position
        first, last = start // BLOCK, (start + size - 1) // BLOCK
        self._fetch(first, last)
        data = b"".join(self._blocks[block] for block in range(first, last + 1))
        self._position += size
        return data[start - first * BLOCK :][:size]

    def _fetch(self, first: int, last: int) -> None:
        """Get the missing blocks between ``first`` and ``last`` with one request."""
        missing = [block for block in range(first, last + 1) if block not in self._blocks]
        if not missing:
            return
        start, end = missing[0] * BLOCK, min((missing[-1] + 1) * BLOCK, self._size)
        data, size = self._range(f"{start}-{end - 1}")
        if size != self._size or len(data) != end - start:
            raise NoRanges("the file changed while it was read")
        for block in range(missing[0], missing[-1] + 1):
            self._blocks[block] = data[block * BLOCK - start : (block + 1) * BLOCK - start]

    def _range(self, wanted: str) -> tuple[bytes, int]:
        """The bytes of one range and the size of the whole file."""
        from npu_upgrade.sources import fetch  # see index._fetch

        def once() -> tuple[bytes, int]:
            with fetch.stream(
                self._url, {"Range": f"bytes={wanted}", "Accept-Encoding": "identity"}
            ) as response:
                total = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("content-range", ""))
                if response.status_code != 206 or total is None:
                    raise NoRanges(f"HTTP {response.status_code} to a range request")
                return response.read(), int(total[1])

        return fetch.with_tries(self._url, once)
