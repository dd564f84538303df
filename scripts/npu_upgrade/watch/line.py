"""The steps of an upstream since a point: commits of a branch, or releases."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from packaging.version import Version

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.lineage.history import parse_history_spec
from npu_upgrade.program.version_guards import version_of
from npu_upgrade.sources.git import Repo, clone_at
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.spec import Spec
from npu_upgrade.sources.tree import SourceTree, open_source, tree_at

_ORIGIN = re.compile(r"(?:https://(?:[^@/]+@)?|(?:ssh://)?git@)(?P<place>[\w.-]+[:/][\w./~+-]+?)(?:\.git)?/?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T.*)?")
_POINT = "a release like 0.24.0rc1, a commit of a clone, or a date like 2026-07-01"


@dataclass(frozen=True)
class Step:
    """One commit or release; ``blobs``: the content of each changed file that is looked at, None if gone."""

    label: str
    spec: str
    date: datetime | None
    subject: str
    blobs: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """``start`` with the content of every file in question, and the ``steps`` after it, oldest first."""

    start: Step
    steps: list[Step]
    tree: Callable[[Step], SourceTree]
    texts: Callable[[Iterable[str]], dict[str, str]]
    content: Callable[[Step], str]
    """What pins the package at a step: equal where its files are."""


def source_of(spec: str) -> str:
    """What a spec is a version of: a clone or a project."""
    parsed = parse_history_spec(spec)
    if parsed.kind == "dir":
        raise BadInput(
            f"{spec} is one state of a folder: nothing is newer in it",
            expected="a clone, or the releases on the package index",
            try_="git:PATH[@REF] or pypi:NAME",
        )
    return f"git:{clone_at(parsed.path).path}" if parsed.kind == "git" else f"pypi:{parsed.project}"


def page_of(spec: str) -> str:
    """Where a release or a commit can be read by others; empty for a clone of nothing on the web."""
    parsed = parse_history_spec(spec)
    if parsed.kind == "pypi":
        return f"https://pypi.org/project/{parsed.project}/{parsed.version}/"
    origin = _ORIGIN.fullmatch(_origin(parsed.path))
    return f"https://{origin['place'].replace(':', '/', 1)}/commit/{parsed.ref}" if origin else ""


@functools.cache
def _origin(path: str) -> str:
    return clone_at(path).origin


def open_line(spec: str, package: str, since: str, paths: Iterable[str]) -> Line:
    """What came after ``since`` (a commit, a release or an ISO date) up to ``spec``, or up to the newest.

    Raises :class:`BadInput` for a point that is not there, and as the sources do.
    """
    parsed = parse_history_spec(spec)
    if parsed.kind == "pypi":
        return _releases(parsed, since, sorted(paths))
    return _commits(parsed, package, since, set(paths))


def _commits(spec: Spec, package: str, since: str, paths: set[str]) -> Line:
    repo = clone_at(spec.path)
    until = repo.resolve(spec.ref)
    start = _start(repo, until, since)

    def step(sha: str, date: datetime, subject: str, blobs: dict[str, str | None]) -> Step:
        return Step(sha[:9], str(Spec("git", path=str(repo.path), ref=sha)), date, subject, blobs)

    files = repo.files(start)
    first = step(start, repo.commit_date(start), "", {path: files.get(path) for path in paths})
    steps = [
        step(one.sha, one.date, one.subject, {p: blob for p, blob in one.blobs.items() if p in paths})
        for one in repo.changes(start, until, package)
        if any(path.endswith(".py") for path in one.blobs)
    ]

    def tree(at: Step) -> SourceTree:
        sha = at.spec.rpartition("@")[2]
        found = repo.files(sha)
        repo.keep(
            blob for path, blob in found.items() if path.startswith(f"{package}/") and path.endswith(".py")
        )
        return tree_at(repo, sha)

    def texts(blobs: Iterable[str]) -> dict[str, str]:
        wanted = list(blobs)
        repo.keep(wanted)
        return {blob: repo.blob(blob).decode("utf-8", "replace") for blob in wanted}

    return Line(first, steps, tree, texts, lambda at: repo.folder(at.spec.rpartition("@")[2], package))


def _start(repo: Repo, until: str, since: str) -> str:
    if not (day := _day(since)):
        return repo.resolve(since)
    found = repo.before(day, until)
    if found is None:
        raise BadInput(f"no commit up to {since}", expected="a date in the history", try_="a later --since")
    return found


def _day(since: str) -> datetime | None:
    """The moment that a point names; None for a release or a commit."""
    if not _DATE.fullmatch(since):
        return None
    try:
        day = datetime.fromisoformat(since)
    except ValueError as error:
        raise BadInput(f"--since {since!r}: {error}", expected=_POINT, try_="--since 2026-07-01") from error
    return day if day.tzinfo else day.replace(tzinfo=UTC)


def _releases(spec: Spec, since: str, paths: list[str]) -> Line:
    """The releases with a higher number; each is compared with the one before it."""
    found = sorted((r for r in releases_of(spec.project) if not r.yanked), key=lambda r: Version(r.version))
    end = Version(spec.version) if spec.version else None
    if day := _day(since):
        older = [r for r in found if r.date and r.date <= day]
    elif point := version_of(since):
        older = [r for r in found if Version(r.version) <= point]
    else:
        raise BadInput(f"--since {since!r} is no release", expected=_POINT, try_="--since 0.24.0rc1")
    if not older:
        raise BadInput(
            f"{spec.project} has no release up to {since}",
            expected="a release that is on the package index",
            try_=f"--since {found[0].version}" if found else "another project",
        )
    known: dict[str, str] = {}

    def blob(version: str, path: str) -> str | None:
        text = peek_file(spec.project, version, path)
        if text is None:
            return None
        known[sha256(text)] = text
        return sha256(text)

    last = {path: blob(older[-1].version, path) for path in paths}
    one = Spec("pypi", project=spec.project, version=older[-1].version)
    start = Step(older[-1].version, str(one), older[-1].date, "", dict(last))
    steps = []
    for release in found[found.index(older[-1]) + 1 :]:
        if end and Version(release.version) > end:
            break
        now = {path: blob(release.version, path) for path in paths}
        changed = {path: content for path, content in now.items() if content != last[path]}
        one = Spec("pypi", project=spec.project, version=release.version)
        steps.append(
            Step(release.version, str(one), release.date, f"{spec.project} {release.version}", changed)
        )
        last = now
    return Line(
        start,
        steps,
        lambda at: open_source(at.spec),
        lambda blobs: {content: known[content] for content in blobs},
        lambda at: at.spec,
    )
