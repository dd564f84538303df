"""What has been published of each project, who answered, and why nobody earlier did.

Asked in order: ``gh`` (when present and logged in), the GitHub REST API, the tags of a local clone, the
package index. Versions are sorted as versions: upload order is another order, and a package index's "latest"
hides pre-releases.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.version import Version

from npu_upgrade.ground.errors import Blocked, UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.git import Repo, version_of_tag
from npu_upgrade.sources.index import Published, releases_of
from npu_upgrade.sources.pins import pair_of
from npu_upgrade.sources.tree import SourceTree

if TYPE_CHECKING:
    import httpx

REST_URL = "https://api.github.com"
_PAGES = 10
_TOOL_SECONDS = 60.0
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 15.0


class PassedOver(Exception):
    """A source cannot answer; the message is the reason shown to the user."""


def from_index(project: str) -> list[Published]:
    """What the package index holds, or :class:`PassedOver`."""
    try:
        found = [Published(r.version, r.date, r.prerelease, r.yanked) for r in releases_of(project)]
    except UpgradeError as error:
        raise PassedOver(error.what) from error
    if not found:
        raise PassedOver(f"the package index has no {project}")
    return found


def published(project: str) -> list[Published]:
    """What the package index holds; nothing, with a word on why, where it does not answer."""
    try:
        return from_index(project)
    except PassedOver as error:
        say(f"note: the releases of {project} are not known: {error}")
        return []


def vllm_beside(omni: SourceTree) -> str | None:
    """The vllm release with the number of a vllm-omni (they share it), None when nothing tells."""
    pair = pair_of([], omni.version, omni.date, published("vllm")) if omni.version else None
    return f"pypi:vllm=={pair.vllm}" if pair and pair.vllm else None


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
    return _or_passed_over(found, f"no version tag in {clone}")


def from_gh(repository: str) -> list[Published]:
    """The releases of a GitHub repository by the ``gh`` tool (any version that has ``gh api``)."""
    if shutil.which("gh") is None:
        raise PassedOver("gh is not installed")
    command = ["gh", "api", "--paginate", f"repos/{repository}/releases?per_page=100"]
    quiet = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            timeout=_TOOL_SECONDS,
            env=os.environ | quiet,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise PassedOver(f"gh gave no answer in {_TOOL_SECONDS:.0f} s") from error
    except OSError as error:
        raise PassedOver(f"gh: {error.strerror}") from error
    if done.returncode == 4:
        raise PassedOver("gh is not logged in (rc 4): `gh auth login`")
    if done.returncode != 0:
        why = done.stderr.strip().partition("\n")[0] or "no network"
        raise PassedOver(f"gh rc {done.returncode}: {why}")
    return _from_json(_json_pages(done.stdout), repository)


def from_rest(repository: str, rest_url: str = REST_URL) -> list[Published]:
    """The releases of a GitHub repository by its REST API; ``GITHUB_TOKEN`` is used when set."""
    import httpx  # slow to import, and no other command needs it

    headers = {"Accept": "application/vnd.github+json"}
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    if token := os.environ.get("GITHUB_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    url: str | None = f"{rest_url}/repos/{repository}/releases?per_page=100"
    entries: list[_Entry] = []
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


class _Entry(msgspec.Struct, frozen=True):
    """A release as GitHub tells it."""

    tag_name: str
    published_at: datetime | None = None
    draft: bool = False


def _entries(page: Any) -> list[_Entry]:
    try:
        return msgspec.convert(page, list[_Entry])
    except msgspec.ValidationError as error:
        raise PassedOver("GitHub answered with something other than a list of releases") from error


def _from_json(entries: Sequence[_Entry], repository: str) -> list[Published]:
    found = [
        Published(version, one.published_at, Version(version).is_prerelease, None, one.tag_name)
        for one in entries
        if not one.draft and (version := version_of_tag(one.tag_name))
    ]
    return _or_passed_over(found, f"{repository} has no release named by a version")


def _json_pages(text: str) -> list[_Entry]:
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


def _or_passed_over(found: list[Published], otherwise: str) -> list[Published]:
    if not found:
        raise PassedOver(otherwise)
    return found


REPOSITORIES = {
    "vllm": "vllm-project/vllm",
    "vllm-omni": "vllm-project/vllm-omni",
    "vllm-ascend": "vllm-project/vllm-ascend",
    "torch-npu": "Ascend/pytorch",
}
ORDER = ("gh", "rest", "git", "index")
NOT_MAPPED = "tags such as v7.3.0-pytorch2.7.1 name no torch-npu version"


@dataclass
class Answer:
    """The releases of one project, newest version first, and the source that named them.

    ``source`` is None when nobody answered; ``passed_over`` maps each source asked
    before to its reason.
    """

    project: str
    source: str | None = None
    where: str = ""
    releases: list[Published] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def newest(self, *, pre: bool) -> Published | None:
        """The highest version that is a pre-release (``pre``) or a stable one, yanked ones left out."""
        return next((r for r in self.releases if r.prerelease is pre and not r.yanked), None)

    def last_uploaded(self) -> Published | None:
        """The one with the latest date, which need not be the highest version."""
        dated = [(r.date, Version(r.version), r) for r in self.releases if r.date]
        return max(dated, default=(None, None, None))[2]


def find_all(
    source: str = "auto", clones: dict[str, Path] | None = None, rest_url: str | None = None
) -> dict[str, Answer]:
    """Ask for all four projects at once; ``source`` is "auto" or one of :data:`ORDER`.

    ``rest_url`` is GitHub's API; by default ``GITHUB_API_URL``, as GitHub's own runners set it.
    """
    clones = clones or {}
    rest_url = rest_url or os.environ.get("GITHUB_API_URL") or REST_URL
    with ThreadPoolExecutor(max_workers=len(REPOSITORIES)) as pool:
        asked = {
            project: pool.submit(find, project, source, clones.get(project), rest_url)
            for project in REPOSITORIES
        }
        return {project: future.result() for project, future in asked.items()}


def find(project: str, source: str = "auto", clone: Path | None = None, rest_url: str = REST_URL) -> Answer:
    """The releases of one project from the first source that can answer; never raises for a silent one."""
    readers: dict[str, Callable[[], list[Published]]] = {
        "gh": lambda: from_gh(REPOSITORIES[project]),
        "rest": lambda: from_rest(REPOSITORIES[project], rest_url),
        "git": lambda: from_clone(clone),
        "index": lambda: from_index(project),
    }
    places = {"gh": "github.com", "rest": rest_url, "git": str(clone), "index": f"package {project}"}
    answer = Answer(project)
    for name in ORDER if source == "auto" else (source,):
        try:
            if project == "torch-npu" and name != "index":
                raise PassedOver(NOT_MAPPED)
            releases = readers[name]()
        except PassedOver as reason:
            answer.passed_over[name] = str(reason)
            continue
        if source == "auto" and name == "git" and (newer := _newer_on_index(project, releases)):
            answer.passed_over[name] = newer
            continue
        answer.source, answer.where, answer.releases = name, places[name], _newest_first(releases)
        break
    if project == "torch-npu" and answer.source is None and source != "index":
        # torch-npu from its one authority, whatever source was asked for the others
        passed_over, answer = answer.passed_over, find("torch-npu", "index")
        answer.passed_over = passed_over | answer.passed_over
    answer.notes = _notes(answer)
    return answer


def _newer_on_index(project: str, tags: list[Published]) -> str | None:
    """Why a clone must not answer: it was fetched before the newest release came out."""
    try:
        published = _newest_first(from_index(project))[0]
    except PassedOver:
        return None
    newest = _newest_first(tags)[0]
    if Version(published.version) <= Version(newest.version):
        return None
    return f"clone is behind: newest tag {newest.version}, the package index has {published.version}"


def _notes(answer: Answer) -> list[str]:
    if not answer.releases:
        return []
    notes = []
    newest, last = answer.releases[0], answer.last_uploaded()
    if last and last.version != newest.version:
        notes.append(
            f"upload order is not version order: {last.version} came last ({_day(last)}), "
            f"{newest.version} is the highest ({_day(newest)})"
        )
    stable = answer.newest(pre=False)
    if newest.prerelease and stable:
        notes.append(f"an installer that is not told --pre picks {stable.version}, not {newest.version}")
    if answer.source == "git" and last:
        notes.append(f"tags of a clone, newest of {_day(last)}: later releases are unknown to it")
    return notes


def _day(release: Published) -> str:
    return release.date.date().isoformat() if release.date else "no date"


def _newest_first(releases: Iterable[Published]) -> list[Published]:
    return sorted(releases, key=lambda r: Version(r.version), reverse=True)


def refuse_if_silent(answers: dict[str, Answer]) -> None:
    """Raise :class:`Blocked` when no project was answered by anybody."""
    if any(answer.source for answer in answers.values()):
        return
    reasons = {
        f"{name}: {why}"
        for answer in answers.values()
        for name, why in answer.passed_over.items()
        if why != NOT_MAPPED
    }
    raise Blocked(
        "no source could name a release of any project (" + "; ".join(sorted(reasons)) + ")",
        expected="gh logged in, a network to the GitHub API or to the package index, or a local clone",
        try_="discover --repo vllm-ascend=PATH --repo vllm-omni=PATH, or `gh auth login`, or set pip's index",
    )
