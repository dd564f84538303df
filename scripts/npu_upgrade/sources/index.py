"""What the user's package indexes hold of a project: files, releases, one exact version.

Pages are kept for ten minutes, and used past that when the network is down.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

import msgspec
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.pipconfig import Anchors, Index, indexes, without_credentials
from npu_upgrade.ground.progress import say

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"


@dataclass(frozen=True)
class ReleaseFile:
    """One downloadable file of a release. ``size`` in bytes; ``hashes`` maps algorithm to hex digest.

    ``url`` never carries credentials. ``upload_time`` is UTC or None when the index does not tell.
    """

    project: str
    version: str
    filename: str
    url: str
    hashes: dict[str, str] = field(hash=False)
    size: int | None
    upload_time: datetime | None
    yanked: bool
    kind: Literal["sdist", "wheel"]


class UnreadablePage(Exception):
    """The answer is no project page; the text says what it is instead."""


def parse_page(project: str, content_type: str, body: str, url: str) -> list[ReleaseFile]:
    """The files of ``project`` on a page fetched from ``url``, judged by its content type.

    Files of other projects, unknown formats and unusable links are left out.
    Raises :class:`UnreadablePage` when the page is neither JSON nor HTML of an index.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith("json"):
        return _from_json(project, body, url)
    if kind in ("text/html", "application/xhtml+xml", "application/vnd.pypi.simple.v1+html"):
        return _from_html(project, body, url)
    raise UnreadablePage(f"answered {kind or 'no content type'} instead of an index page")


def parse_time(text: object) -> datetime | None:
    """An ISO 8601 time as UTC, or None when it is none."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time and (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _from_json(project: str, body: str, url: str) -> list[ReleaseFile]:
    try:
        entries = json.loads(body)["files"]
        if not isinstance(entries, list):
            raise TypeError("files is no list")
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadablePage(f"answered JSON without a list of files ({error})") from error
    return _files(project, url, url, (entry for entry in entries if isinstance(entry, dict)))


def _from_html(project: str, body: str, url: str) -> list[ReleaseFile]:
    parser = Anchors()
    parser.feed(body)
    parser.close()
    files = _files(project, url, urljoin(url, parser.base or ""), map(_entry, parser.anchors))
    if not files:
        raise UnreadablePage("answered an HTML page without release files (a login or error page?)")
    return files


def _entry(attributes: dict[str, str | None]) -> dict[str, Any]:
    """A PEP 503 anchor as a PEP 691 file entry."""
    link, fragment = urldefrag(attributes["href"] or "")
    algorithm, equals, digest = fragment.partition("&")[0].partition("=")
    return {
        "filename": unquote(urlsplit(link).path.rpartition("/")[2]),
        "url": link,
        "hashes": {algorithm: digest} if equals else {},
        "yanked": "data-yanked" in attributes,
        "upload-time": attributes.get("data-upload-time"),
    }


def _files(project: str, page: str, base: str, entries: Iterable[dict[str, Any]]) -> list[ReleaseFile]:
    # A page on the network must not make us read files of this machine.
    allowed = {"http", "https", urlsplit(page).scheme}
    found = (_release_file(project, base, allowed, entry) for entry in entries)
    return [file for file in found if file is not None]


def _release_file(project: str, base: str, allowed: set[str], entry: dict[str, Any]) -> ReleaseFile | None:
    filename, link, hashes, size = (entry.get(key) for key in ("filename", "url", "hashes", "size"))
    if not isinstance(filename, str) or not isinstance(link, str):
        return None
    kind: Literal["sdist", "wheel"] = "wheel" if filename.endswith(".whl") else "sdist"
    try:
        name, version = (parse_wheel_filename if kind == "wheel" else parse_sdist_filename)(filename)[:2]
        url = urldefrag(urljoin(base, link)).url
        scheme = urlsplit(url).scheme
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, ValueError):
        return None
    if name != canonicalize_name(project) or scheme not in allowed:
        return None
    return ReleaseFile(
        project=name,
        version=str(version),
        filename=filename,
        url=without_credentials(url),
        hashes={
            str(key): str(value).lower()
            for key, value in (hashes if isinstance(hashes, dict) else {}).items()
        },
        size=size if isinstance(size, int) and size >= 0 else None,
        upload_time=parse_time(entry.get("upload-time")),
        yanked=bool(entry.get("yanked")),
        kind=kind,
    )


FRESH_SECONDS = 600.0
KNOWN_SECONDS = 86400.0  # for a release that a page has: a later page would hardly say otherwise of it
RETRY_SECONDS = 60.0  # how long a stale page is used before the network is tried again


@dataclass(frozen=True)
class Published:
    """One published version; ``yanked`` and ``sha`` are None where the source cannot tell."""

    version: str
    date: datetime | None
    prerelease: bool
    yanked: bool | None = None
    tag: str | None = None
    sha: str | None = None


@dataclass(frozen=True)
class Release(Published):
    """One version on the index. ``date`` is its first upload (UTC); ``yanked`` when every file is."""

    files: tuple[ReleaseFile, ...] = ()


class _Page(msgspec.Struct, frozen=True):
    """A kept page: when it was fetched and last checked, in seconds since the epoch."""

    fetched: float
    checked: float
    files: list[ReleaseFile]


def project_files(name: str, fresh: float | None = None) -> list[ReleaseFile]:
    """All sdists and wheels of a project on the configured indexes, in page order.

    ``fresh``: how old a kept page may be, in seconds (default: :data:`FRESH_SECONDS`). Raises
    :class:`BadInput` when no index knows the project, :class:`Blocked` when none could be read.
    """
    project = canonicalize_name(name)
    configured = indexes()
    if not configured:
        raise Blocked(
            "the package index is switched off (no-index)",
            expected="a configured package index",
            try_="unset PIP_NO_INDEX and no-index in pip.conf, or give git: or dir: sources",
        )
    failures: list[Blocked] = []
    files: dict[str, ReleaseFile] = {}
    for index in configured:
        try:
            for file in _files_on(index, project, FRESH_SECONDS if fresh is None else fresh):
                files.setdefault(file.filename, file)
        except Blocked as failure:
            failures.append(failure)
    if failures and not files:
        raise failures[0]
    for failure in failures:
        say(f"note: {failure.what}; the other indexes are used")
    if not files:
        raise BadInput(
            f"no package {project} on {', '.join(index.url for index in configured)}",
            expected="the name of a package on the configured index",
            try_="check the name, or set PIP_INDEX_URL to an index that has it",
        )
    return list(files.values())


def releases_of(project: str, fresh: float | None = None) -> list[Release]:
    """All releases of a project, sorted by version, oldest first. Raises as :func:`project_files`."""
    by_version: dict[str, list[ReleaseFile]] = defaultdict(list)
    for file in project_files(project, fresh):
        by_version[file.version].append(file)
    return [_release(version, by_version[version]) for version in sorted(by_version, key=Version)]


def versions_of(project: str) -> list[Version]:
    """The versions of a project that were not withdrawn, oldest first. Raises as :func:`project_files`."""
    return [Version(found.version) for found in releases_of(project) if not found.yanked]


def release(project: str, version: str) -> Release:
    """One release; :class:`BadInput` names the nearest versions when it does not exist."""
    wanted = str(Version(version))
    for fresh in (KNOWN_SECONDS, None):
        releases = releases_of(project, fresh)
        for found in releases:
            if Version(found.version) == Version(wanted):
                return found
    raise BadInput(
        f"{canonicalize_name(project)} has no release {wanted} on the package index",
        expected=f"an existing release, such as {', '.join(_nearest(wanted, releases))}",
        try_="one of these versions; a version just uploaded is seen after ten minutes",
    )


def _release(version: str, files: list[ReleaseFile]) -> Release:
    return Release(
        version=version,
        date=min((file.upload_time for file in files if file.upload_time), default=None),
        files=tuple(files),
        yanked=all(file.yanked for file in files),
        prerelease=Version(version).is_prerelease,
    )


def _nearest(wanted: str, releases: list[Release], count: int = 6) -> list[str]:
    """The most similar version texts and the neighbours in version order, sorted."""
    versions = [found.version for found in releases]
    place = sum(Version(version) < Version(wanted) for version in versions)
    near = versions[max(0, place - 2) : place + 2]
    similar = sorted(versions, key=lambda text: -SequenceMatcher(None, wanted, text).ratio())
    return sorted(list(dict.fromkeys(near + similar))[:count], key=Version)


def _files_on(index: Index, project: str, fresh: float) -> list[ReleaseFile]:
    """The files on one index: cached, fetched, or the stale cache when the network is down."""
    url = f"{index.url}/{project}/"
    if urlsplit(url).scheme == "file":
        return _local_files(url, project)
    cache = cache_root() / "index" / f"{sha256(url)}.json"
    stored = None
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        state = cache.stat()
        stored = _page(cache, (state.st_ino, state.st_mtime_ns, state.st_size))
    if stored and 0 <= time.time() - stored.checked < fresh:
        return stored.files
    try:
        files = _fetch(index, url, project)
    except Blocked as failure:
        if not stored:
            raise
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(stored.fetched))
        say(f"note: {failure.what}; using the page of {when} UTC")
        soon = time.time() - FRESH_SECONDS + RETRY_SECONDS
        write_atomic(cache, msgspec.json.encode(_Page(stored.fetched, soon, stored.files)))
        return stored.files
    write_atomic(cache, msgspec.json.encode(_Page(time.time(), time.time(), files)))
    return files


@functools.lru_cache(maxsize=16)
def _page(cache: Path, _state: tuple[int, ...]) -> _Page:
    return msgspec.json.decode(cache.read_bytes(), type=_Page)


def _local_files(url: str, project: str) -> list[ReleaseFile]:
    page = Path(url2pathname(urlsplit(url).path)) / "index.html"
    if not page.is_file():
        return []
    try:
        return parse_page(project, "text/html", page.read_text("utf-8", errors="replace"), url)
    except (UnreadablePage, OSError) as error:
        raise _not_a_page(page.as_uri(), str(error)) from error


def _fetch(index: Index, url: str, project: str) -> list[ReleaseFile]:
    from npu_upgrade.sources import fetch  # httpx takes long to import, and a warm cache needs none of it

    answer = fetch.get(url, {"Accept": ACCEPT})
    if answer.status_code in (404, 410):
        return []
    if answer.status_code != 200:
        raise _not_a_page(fetch.place(url), f"answered HTTP {answer.status_code}")
    try:
        files = parse_page(project, answer.headers.get("content-type", ""), answer.text, str(answer.url))
    except UnreadablePage as error:
        raise _not_a_page(fetch.place(url), str(error)) from error
    if all(file.upload_time and file.size is not None for file in files):
        return files
    return _completed(files, f"{index.url.removesuffix('/simple')}/pypi/{project}/json")


def _completed(files: list[ReleaseFile], url: str) -> list[ReleaseFile]:
    """``files`` with dates and sizes from the JSON API, where the index has one."""
    from npu_upgrade.sources import fetch

    try:
        answer = fetch.get(url, {"Accept": "application/json"})
        releases = answer.json()["releases"] if answer.status_code == 200 else {}
        known = {entry["filename"]: entry for entries in releases.values() for entry in entries}
    except (Blocked, ValueError, KeyError, TypeError, AttributeError):
        return files
    return [_complete(file, known.get(file.filename, {})) for file in files]


def _complete(file: ReleaseFile, entry: dict[str, Any]) -> ReleaseFile:
    size, when = entry.get("size"), parse_time(entry.get("upload_time_iso_8601"))
    return replace(
        file,
        size=file.size if file.size is not None or not isinstance(size, int) else size,
        upload_time=file.upload_time or when,
    )


def _not_a_page(place: str, why: str) -> Blocked:
    return Blocked(
        f"cannot use the package index page {place}: {why}",
        expected="the project page of a package index (PEP 503 HTML or PEP 691 JSON)",
        try_="check pip's index-url and its credentials, and that a proxy does not answer with a login page",
    )
