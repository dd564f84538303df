"""A release's sources, unpacked once into a content-addressed folder of the cache.

``archives/<sha256 of the archive>/`` holds ``files/`` and ``archive.json``; it appears by
one rename when complete, so a reader never sees half of it and two writers do not meet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256, write_json
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.index import ReleaseFile
from npu_upgrade.sources.unpack import unpack

STRONG = ("sha256", "sha512", "sha384", "sha3_256", "sha3_512", "blake2b")  # in order of preference
SDIST_WORTH = 3  # an sdist may be this much larger than a wheel: it holds Dockerfiles and pins
MAX_ARCHIVE = 4 << 30
LAYOUT = 1  # raise it when what is unpacked changes
_ABANDONED_SECONDS = 24 * 3600.0


class _Manifest(msgspec.Struct, frozen=True):
    """``archive.json``: what was unpacked, with the sizes of the files in bytes."""

    layout: int
    filename: str
    files: dict[str, int]


@dataclass(frozen=True)
class Archive:
    """One unpacked archive: ``root`` holds ``files`` (posix path -> size in bytes).

    ``verified`` tells whether the index vouched for it by a strong hash.
    """

    root: Path
    sha256: str
    verified: bool
    files: dict[str, int]


def pick(files: Sequence[ReleaseFile]) -> ReleaseFile:
    """The file to read a release from: its sdist, or its smallest wheel when that is much smaller."""
    files = [file for file in files if not file.yanked] or files
    sdists = sorted((file for file in files if file.kind == "sdist"), key=_by_size)
    wheels = sorted((file for file in files if file.kind == "wheel"), key=_by_size)
    if not sdists or not wheels:
        return (sdists or wheels)[0]
    sdist, wheel = sdists[0], wheels[0]
    known = sdist.size is not None and wheel.size is not None
    return wheel if known and sdist.size > SDIST_WORTH * wheel.size else sdist


def unpacked(file: ReleaseFile) -> Archive:
    """Download, check and unpack ``file``, or find it already unpacked.

    Raises :class:`BadInput` for a wrong hash or an unsafe archive (nothing is left
    behind) and :class:`Blocked` when it cannot be downloaded.
    """
    if found := cached(file):
        return found
    store = _store()
    with scratch_folder(store) as scratch:
        try:
            digest = _unpack_into(scratch, file)
            _publish(scratch / "finished", store / digest)
        except OSError as error:
            raise cannot_write(store, error) from error
    if "sha256" not in file.hashes:
        write_json(_alias(file), {"sha256": digest})
    if found := cached(file):
        return found
    raise cannot_write(store / digest, OSError("the folder vanished while it was written"))


def cached(file: ReleaseFile) -> Archive | None:
    """The unpacked archive of ``file`` when the cache has it complete."""
    digest = file.hashes.get("sha256")
    if not digest:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            digest = json.loads(_alias(file).read_text("utf-8"))["sha256"]
    if not digest or not digest.isalnum():
        return None
    files = _complete_files(_store() / digest)
    return Archive(_store() / digest / "files", digest, bool(_strong(file)), files) if files else None


def _unpack_into(scratch: Path, file: ReleaseFile) -> str:
    """Fill ``scratch/finished`` from ``file``; return the archive's SHA-256."""
    digest = _download(file, scratch / "archive")
    if not _strong(file):
        say(f"note: the index gives no strong hash for {file.filename}; its content is unverified")
    finished = scratch / "finished"
    (finished / "files").mkdir(parents=True)
    label = file.filename
    files = unpack(scratch / "archive", finished / "files", label=label, strip_top=file.kind == "sdist")
    write_json(finished / "archive.json", msgspec.to_builtins(_Manifest(LAYOUT, label, files)))
    return digest


def _by_size(file: ReleaseFile) -> tuple[float, bool, str]:
    size = float("inf") if file.size is None else file.size
    return size, not file.filename.endswith("-none-any.whl"), file.filename


def _strong(file: ReleaseFile) -> tuple[str, str] | None:
    return next(((name, file.hashes[name]) for name in STRONG if name in file.hashes), None)


def _store() -> Path:
    return cache_root() / "archives"


def _alias(file: ReleaseFile) -> Path:
    """Where the SHA-256 of a file that the index does not identify by it is remembered."""
    return cache_root() / "downloads" / f"{sha256(json.dumps([file.url, file.hashes], sort_keys=True))}.json"


def _complete_files(folder: Path) -> dict[str, int] | None:
    """The files of a finished folder; None when some are gone or cut (a cleaner, a power loss)."""
    try:
        found = msgspec.json.decode((folder / "archive.json").read_bytes(), type=_Manifest)
        intact = all(os.stat(f"{folder}/files/{path}").st_size == size for path, size in found.files.items())
        return found.files if intact and found.layout == LAYOUT else None
    except (OSError, msgspec.MsgspecError):
        return None


@contextlib.contextmanager
def scratch_folder(store: Path) -> Generator[Path]:
    """A private folder beside the finished ones, gone afterwards; old abandoned ones go too."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        for old in store.glob(".unfinished-*"):
            if time.time() - old.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=store))
    except OSError as error:
        raise cannot_write(store, error) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _publish(finished: Path, target: Path) -> None:
    """Rename a finished folder into place; whoever came first wins, a damaged one is replaced."""
    if _complete_files(target):
        return
    try:
        with contextlib.suppress(FileNotFoundError):
            target.rename(finished.parent / "damaged")
        finished.rename(target)
    except OSError as error:
        if not _complete_files(target):
            raise cannot_write(target, error) from error


def _download(file: ReleaseFile, target: Path) -> str:
    """Write the archive to ``target``, check it against the index's hash, return its SHA-256."""
    name, wanted = _strong(file) or ("sha256", None)
    say(f"fetching {file.filename}" + (f" ({file.size / 1e6:.1f} MB)" if file.size else ""))
    if urlsplit(file.url).scheme == "file":
        digests = _copy_local(file, target, name)
    else:
        digests = _copy_remote(file, target, name)
    if wanted and digests[name] != wanted:
        raise BadInput(
            f"wrong hash for {file.filename}: {name} is {digests[name]}",
            expected=f"the file the index vouches for ({name} {wanted})",
            try_="run again; if it stays like this, the mirror or a proxy changes files: use another index",
        )
    return digests["sha256"]


def _copy_local(file: ReleaseFile, target: Path, algorithm: str) -> dict[str, str]:
    path = Path(url2pathname(urlsplit(file.url).path))
    try:
        with path.open("rb") as stream:
            return _hashed_copy(iter(lambda: stream.read(1 << 20), b""), target, algorithm)
    except OSError as error:
        raise Blocked(
            f"cannot read {path}, which the index lists: {error.strerror or error}",
            expected="the file the index page links to",
            try_="repair the local index, or use another one",
        ) from error


def _copy_remote(file: ReleaseFile, target: Path, algorithm: str) -> dict[str, str]:
    from npu_upgrade.sources import fetch  # see index._fetch

    def once() -> dict[str, str]:
        with fetch.stream(file.url, {"Accept-Encoding": "identity"}) as response:
            if response.status_code != 200:
                raise Blocked(
                    f"cannot download {fetch.place(file.url)}: HTTP {response.status_code}",
                    expected="the file the index lists",
                    try_="check the credentials of the index, or use another index",
                )
            return _hashed_copy(response.iter_raw(1 << 20), target, algorithm)

    return fetch.with_tries(file.url, once)


def _hashed_copy(chunks: Iterator[bytes], target: Path, algorithm: str) -> dict[str, str]:
    hashers = {name: hashlib.new(name) for name in {"sha256", algorithm}}
    written = 0
    with target.open("wb") as stream:
        for chunk in chunks:
            written += len(chunk)
            if written > MAX_ARCHIVE:
                raise BadInput(
                    f"the download exceeds {MAX_ARCHIVE >> 30} GiB",
                    expected="an sdist or wheel",
                    try_="check what the index serves",
                )
            stream.write(chunk)
            for hasher in hashers.values():
                hasher.update(chunk)
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def cannot_write(place: Path, error: OSError) -> Blocked:
    return Blocked(
        f"cannot write the cache folder {place}: {error.strerror or error}",
        expected="a cache folder with free space that this user may write",
        try_="free space or correct permissions there, or set XDG_CACHE_HOME to another folder",
    )
