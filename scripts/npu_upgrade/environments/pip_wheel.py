"""Get pip's own wheel from the configured package index, for a Python that came without pip.

Asks the main index only: the rest is left to pip itself once it is there. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import ssl
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.pipconfig import Anchors, ca_bundle, credentials_for, indexes
from npu_upgrade.ground.progress import say

_WHEEL = re.compile(r"/(pip-(\d+(?:\.\d+)*)-py3-none-any\.whl)$")


def fetch_pip_wheel(folder: Path) -> Path:
    """Download the newest pip wheel for this Python into ``folder``, its SHA-256 checked.

    Raises :class:`Blocked` when the index does not answer, has no such wheel, or the content is not what
    the index announced.
    """
    configured = indexes()
    if not configured:
        raise _blocked("pip is configured to use no index")
    page = configured[0].url + "/pip/"
    links = Anchors()
    links.feed(_get(page).decode("utf-8", "replace"))
    url, digest, name = _newest(page, links.anchors)
    say(f"  Downloading {name}")
    content = _get(url)
    if hashlib.sha256(content).hexdigest() != digest:
        raise _blocked(f"{name} from {_host(url)} has not the SHA-256 its index announces")
    path = folder / name
    path.write_bytes(content)
    return path


def _newest(page: str, links: list[dict[str, str | None]]) -> tuple[str, str, str]:
    """The address, SHA-256 and file name of the newest wheel this Python can use."""
    best: tuple[tuple[int, ...], tuple[str, str, str]] | None = None
    for link in links:
        url, fragment = urldefrag(urljoin(page, link.get("href") or ""))
        match = _WHEEL.search(url)
        if not match or "data-yanked" in link or not fragment.startswith("sha256="):
            continue
        oldest = re.search(r">=\s*3\.(\d+)", link.get("data-requires-python") or "")
        version = tuple(int(part) for part in match[2].split("."))
        usable = oldest is None or int(oldest[1]) <= sys.version_info[1]
        if usable and (best is None or version > best[0]):
            best = (version, (url, fragment.removeprefix("sha256="), match[1]))
    if best is None:
        raise _blocked(
            f"the package index at {_host(page)} offers no pip wheel with a SHA-256 for this Python"
        )
    return best[1]


def _get(url: str) -> bytes:
    headers = {"Accept": "text/html, */*"}
    credentials = credentials_for(url)
    if credentials:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    try:
        context = ssl.create_default_context(cafile=ca_bundle())
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            return response.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _blocked(f"cannot fetch pip from {_host(url)}: {error}") from error


def _host(url: str) -> str:
    """The host alone: an index address may hold a password."""
    return urlsplit(url).hostname or url


def _blocked(what: str) -> Blocked:
    return Blocked(
        f"this Python has no ensurepip, and {what}",
        expected="a Python that can make virtual environments with pip",
        try_="install it (Debian, Ubuntu: apt install python3-venv ca-certificates), "
        "or set PIP_INDEX_URL to an index that answers",
    )
