"""What has been published of each project, who answered, and why nobody earlier did.

Asked in order: ``gh`` (when present and logged in), the GitHub REST API, the tags of
a local clone, the package index. Versions are sorted as versions: upload order is
another order, and a package index's "latest" hides pre-releases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from npu_upgrade.ground.errors import Blocked
from npu_upgrade.sources.published import (
    REST_URL,
    PassedOver,
    Published,
    from_clone,
    from_gh,
    from_index,
    from_rest,
)

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
        answer = _only_index(answer)
    answer.notes = _notes(answer)
    return answer


def _only_index(answer: Answer) -> Answer:
    """torch-npu from its one authority, whatever source was asked for the others."""
    fallback = find("torch-npu", "index")
    fallback.passed_over = answer.passed_over | fallback.passed_over
    return fallback


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
