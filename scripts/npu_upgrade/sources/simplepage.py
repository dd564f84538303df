"""Parse one project page of a package index (PEP 503 HTML or PEP 691 JSON) into files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion

from npu_upgrade.ground.pipconfig import Anchors, without_credentials

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
