"""Unpack the source files of one sdist or wheel, refusing anything unsafe.

Only regular files that matter to reading the project are written. Nothing is built,
imported or executed. The caller gives an empty folder and throws it away on error.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn, Protocol, cast

from npu_upgrade.ground.errors import BadInput

MAX_MEMBERS = 200_000
MAX_FILE = 32 << 20
MAX_WRITTEN = 512 << 20
MAX_RATIO = 50  # of a whole tar to its archive; real sdists stay below 10
MAX_SLACK = 100 << 20
MAX_JSON = 1 << 20
MAX_LINK = 4096
NAMES = (
    "*.py", "*.toml", "*.txt", "*.cfg", "*.yaml", "*.yml", "*.json", "*.md", "*.commit",
    "Dockerfile*", "METADATA", "RECORD", "PKG-INFO",
)  # fmt: skip
_OPENERS = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
    EOFError, ValueError, LookupError, OverflowError, RuntimeError,
)  # fmt: skip

_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class _Member:
    """One regular file of an archive, with a stream that is read before the next one is asked for."""

    name: str
    size: int
    stream: IO[bytes]


def unpack(archive: Path, folder: Path, *, label: str, strip_top: bool) -> dict[str, int]:
    """Write the files that matter below ``folder``; return their posix paths and sizes in bytes.

    ``label`` names the archive in messages; ``strip_top`` drops the one top folder of an sdist.
    Raises :class:`BadInput` for escapes, special files, bombs, and damaged archives.
    """
    written: dict[str, int] = {}
    tops: set[str] = set()
    total = 0
    with archive.open("rb") as stream:
        members = _zip_members if stream.read(2) == b"PK" else _tar_members
    try:
        for member in members(archive, label):
            path = safe_path(member.name, label)
            if not path.parts:
                _refuse(label, f"unsafe member name {member.name!r}")
            tops.add(path.parts[0])
            if strip_top:
                path = PurePosixPath(*path.parts[1:])
            if not matters(path, member.size):
                continue
            if member.size > MAX_FILE or total + member.size > MAX_WRITTEN:
                _refuse(label, f"it unpacks to more than is reasonable ({member.name})")
            data = member.stream.read(member.size + 1)
            if len(data) != member.size:
                _refuse(label, f"it is truncated or lies about the size of {member.name}")
            total += member.size
            _write(folder, path, data, label)
            written[str(path)] = len(data)
    except _BROKEN as error:
        _refuse(label, f"it is damaged or truncated ({error or type(error).__name__})", error)
    except OSError as error:
        if error.errno not in (None, errno.ENAMETOOLONG):
            raise  # the disk, not the archive
        _refuse(label, f"it is damaged or truncated ({error})", error)
    if not written:
        _refuse(label, "it holds no source files")
    if strip_top and len(tops) != 1:
        _refuse(label, f"an sdist holds one top folder, this one has {len(tops)}")
    return dict(sorted(written.items()))


def safe_path(name: str, label: str) -> PurePosixPath:
    """A member's name as a relative path inside the archive; :class:`BadInput` when it could escape."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    bad = name.startswith("/") or "\\" in name or ".." in parts or re.match(r"[A-Za-z]:", "".join(parts))
    if bad or _CONTROL.search(name):
        _refuse(label, f"unsafe member name {name!r}")
    return PurePosixPath(*parts)


def matters(path: PurePosixPath, size: int) -> bool:
    """Whether a file takes part in reading a project: sources, pins, metadata, build recipes."""
    if _SURROGATE.search(str(path)):
        return False  # a name that is no UTF-8
    if path.suffix == ".json":
        return size < MAX_JSON
    if path.suffix in (".cpp", ".h"):
        return "csrc" in path.parts[:-1]
    if path.name == "entry_points.txt":
        return True
    return any(fnmatchcase(path.name, pattern) for pattern in NAMES)


def _write(folder: Path, path: PurePosixPath, data: bytes, label: str) -> None:
    target = folder / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as stream:
            stream.write(data)
        target.chmod(0o444)
    except (FileExistsError, NotADirectoryError):
        if not (target.is_file() and target.read_bytes() == data):
            _refuse(label, f"two members claim {path}")


def _zip_members(archive: Path, label: str) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        infos = opened.infolist()
        if len(infos) > MAX_MEMBERS:
            _refuse(label, f"it has {len(infos)} members")
        for info in infos:
            # zipfile cuts the name at a NUL; the name as written is what is judged.
            safe_path(info.orig_filename, label)
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.flag_bits & 0x1:
                _refuse(label, f"encrypted member {info.filename!r}")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                _refuse(label, f"special file {info.filename!r}")
            if info.is_dir():
                continue
            with opened.open(info) as stream:
                if kind == stat.S_IFLNK:
                    _check_link(info.filename, stream.read(MAX_LINK).decode("utf-8", "replace"), label)
                else:
                    yield _Member(info.filename, info.file_size, stream)


def _tar_members(archive: Path, label: str) -> Iterator[_Member]:
    with archive.open("rb") as raw:
        opener = _OPENERS.get(raw.read(2))
    if opener is None:
        _refuse(label, "it is neither a zip nor a compressed tar file")
    with opener(archive, "rb") as decompressed:
        limited = _Limited(decompressed, archive.stat().st_size * MAX_RATIO + MAX_SLACK, label)
        with tarfile.open(fileobj=cast(IO[bytes], limited), mode="r|") as opened:
            for count, info in enumerate(opened):
                safe_path(info.name, label)
                if count >= MAX_MEMBERS:
                    _refuse(label, f"it has more than {MAX_MEMBERS} members")
                if info.issym() or info.islnk():
                    _check_link(info.name if info.issym() else "top", info.linkname, label)
                elif info.isdev():
                    _refuse(label, f"special file {info.name!r}")
                elif info.isfile() and (stream := opened.extractfile(info)):
                    yield _Member(info.name, info.size, stream)
        while limited.read(1 << 20):
            pass  # the checksum of the compressed stream comes last


def _check_link(name: str, target: str, label: str) -> None:
    """Links are never written; one that points out of the archive marks a hostile archive."""
    depth = len(PurePosixPath(name).parts) - 1
    for part in target.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            break
    if target.startswith("/") or "\\" in target or depth < 0:
        _refuse(label, f"the link {name!r} points out of the archive")


class SupportsRead(Protocol):
    """Anything that gives bytes: gzip, bz2 and lzma files share no other type."""

    def read(self, size: int, /) -> bytes: ...


class _Limited:
    """A readable stream that refuses to give more than ``limit`` bytes."""

    def __init__(self, stream: SupportsRead, limit: int, label: str) -> None:
        self._stream, self._left, self._label = stream, limit, label

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            _refuse(self._label, "it unpacks to more than is reasonable")
        return data


def _refuse(label: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise BadInput(
        f"refused {label}: {why}",
        expected="an intact sdist or wheel that stays inside its own folder",
        try_="fetch it again; if it stays like this, use a git: or dir: source and tell the publisher",
    ) from cause
