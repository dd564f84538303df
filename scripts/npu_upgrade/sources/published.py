"""Four places that can say what was published of a project: gh, GitHub's REST API, a clone, the index.

Each reader returns what it found or raises :class:`PassedOver` with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.index import releases_of

if TYPE_CHECKING:
    import httpx

REST_URL = "https://api.github.com"
_PAGES = 10
_TOOL_SECONDS = 60.0
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 15.0


class PassedOver(Exception):
    """A source cannot answer; the message is the reason shown to the user."""


@dataclass(frozen=True)
class Published:
    """One published version; ``yanked`` and ``sha`` are None where the source cannot tell."""

    version: str
    date: datetime | None
    prerelease: bool
    yanked: bool | None = None
    tag: str | None = None
    sha: str | None = None


def version_of_tag(tag: str) -> str | None:
    """The version a tag names ("v0.18.0rc1" -> "0.18.0rc1"), or None for another kind of tag."""
    try:
        return str(Version(tag))
    except InvalidVersion:
        return None


def from_index(project: str) -> list[Published]:
    """What the package index holds, with yanked versions marked."""
    try:
        found = releases_of(project)
    except UpgradeError as error:
        raise PassedOver(error.what) from error
    if not found:
        raise PassedOver(f"the package index has no {project}")
    return [Published(r.version, r.date, r.prerelease, r.yanked) for r in found]


def from_clone(clone: Path | None) -> list[Published]:
    """The version tags of a local clone, each with its date and commit."""
    if clone is None:
        raise PassedOver("no clone given (--repo NAME=PATH)")
    try:
        listing = Repo(clone).tags()
    except UpgradeError as error:
        raise PassedOver(error.what) from error
    found = []
    for tag, date, sha in listing:
        if version := version_of_tag(tag):
            found.append(Published(version, date, Version(version).is_prerelease, None, tag, sha))
    return _some(found, f"no version tag in {clone}")


def from_gh(repository: str) -> list[Published]:
    """The releases of a GitHub repository by the ``gh`` tool (any version that has ``gh api``)."""
    if shutil.which("gh") is None:
        raise PassedOver("gh is not installed")
    command = ["gh", "api", "--paginate", f"repos/{repository}/releases?per_page=100"]
    quiet = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    done = _run(command, timeout=_TOOL_SECONDS, env=os.environ | quiet)
    if done.returncode == 4:
        raise PassedOver("gh is not logged in (rc 4): `gh auth login`")
    if done.returncode != 0:
        raise PassedOver(f"gh rc {done.returncode}: {_first_line(done.stderr) or 'no network'}")
    return _from_json(_json_pages(done.stdout), repository)


def from_rest(repository: str, rest_url: str = REST_URL) -> list[Published]:
    """The releases of a GitHub repository by its REST API; ``GITHUB_TOKEN`` is used when set."""
    import httpx  # slow to import, and no other command needs it

    headers = {"Accept": "application/vnd.github+json"}
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    if token := os.environ.get("GITHUB_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    url: str | None = f"{rest_url}/repos/{repository}/releases?per_page=100"
    entries: list[dict[str, Any]] = []
    try:
        with httpx.Client(headers=headers, timeout=timeout, follow_redirects=True) as client:
            for _ in range(_PAGES):
                response = client.get(url)
                _refuse(response)
                entries += _entries(response.json())
                url = response.links.get("next", {}).get("url")
                if url is None:
                    break
    except httpx.TimeoutException as error:
        raise PassedOver(f"{rest_url} timed out") from error
    except httpx.HTTPError as error:
        raise PassedOver(f"no network to {rest_url}: {error}") from error
    except (ValueError, ImportError) as error:  # an answer that is no JSON, a proxy httpx cannot use
        raise PassedOver(f"{rest_url}: {error}") from error
    return _from_json(entries, repository)


def _refuse(response: httpx.Response) -> None:
    """Turn an HTTP refusal into its reason."""
    if response.is_success:
        return
    if response.status_code in (403, 429) and response.headers.get("x-ratelimit-remaining") == "0":
        until = datetime.fromtimestamp(int(response.headers.get("x-ratelimit-reset", 0)), UTC)
        limited = f"rate limited until {until:%H:%M} UTC (HTTP {response.status_code})"
        raise PassedOver(f"{limited}: set GITHUB_TOKEN")
    raise PassedOver(f"HTTP {response.status_code} {response.reason_phrase}")


def _entries(page: Any) -> list[dict[str, Any]]:
    if not isinstance(page, list) or not all(isinstance(e, dict) and "tag_name" in e for e in page):
        raise PassedOver("GitHub answered with something other than a list of releases")
    return page


def _from_json(entries: Sequence[dict[str, Any]], repository: str) -> list[Published]:
    found = [
        Published(version, _date(entry), Version(version).is_prerelease, None, entry["tag_name"])
        for entry in entries
        if not entry.get("draft") and (version := version_of_tag(entry["tag_name"]))
    ]
    return _some(found, f"{repository} has no release named by a version")


def _json_pages(text: str) -> list[dict[str, Any]]:
    """The entries of JSON arrays written one after another, as older ``gh --paginate`` does."""
    decoder, position, entries = json.JSONDecoder(), 0, []
    text = text.strip()
    try:
        while position < len(text):
            page, position = decoder.raw_decode(text, position)
            entries += _entries(page)
            position += len(text[position:]) - len(text[position:].lstrip())
    except json.JSONDecodeError as error:
        raise PassedOver("gh did not answer with JSON") from error
    return entries


def _date(entry: dict[str, Any]) -> datetime | None:
    text = entry.get("published_at")
    return datetime.fromisoformat(text) if text else None


def _some(found: list[Published], otherwise: str) -> list[Published]:
    if not found:
        raise PassedOver(otherwise)
    return found


def _run(
    command: list[str], timeout: float, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=env, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise PassedOver(f"{command[0]} gave no answer in {timeout:.0f} s") from error
    except OSError as error:
        raise PassedOver(f"{command[0]}: {error.strerror}") from error


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
