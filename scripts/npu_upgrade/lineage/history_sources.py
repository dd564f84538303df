"""Where the history of the upstream runner comes from: a clone, or the package index.

A clone gives every commit that changed the file, on all branches and tags; the index gives
every release, and one is only fetched when it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.lineage.history import History, Version
from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.spec import Spec, parse_spec

BATCH = 48  # files read at once: one has a quarter of a megabyte


def open_history(ascend: str | Spec, upstream: Upstream) -> History:
    """The history of ``upstream`` in ``git:PATH[@REF]``, ``pypi:NAME[==VERSION]`` or a ``dir:`` checkout.

    Raises :class:`BadInput` when the source has no history of that file, and
    :class:`Blocked` when the clone is shallow or the index cannot be reached.
    """
    spec = parse_history_spec(ascend) if isinstance(ascend, str) else ascend
    if spec.kind == "pypi":
        return _of_index(spec, upstream)
    if spec.kind == "dir" and not (Path(spec.path).expanduser() / ".git").exists():
        raise BadInput(
            f"{spec} is a plain folder: it has no history to find the base in",
            expected="a git clone of vllm-ascend, or its releases on the package index",
            try_="git:PATH@REF of a clone, or pypi:vllm-ascend",
        )
    return _of_clone(spec, upstream)


def parse_history_spec(text: str) -> Spec:
    """As ``parse_spec``; moreover ``git:PATH`` means its HEAD, and ``pypi:NAME`` all releases."""
    kind, _, path = text.strip().partition(":")
    if kind == "git" and path and Path(path).expanduser().is_dir():
        return Spec("git", path=path, ref="HEAD")
    return parse_spec(text, allow_unversioned=True)


def _of_clone(spec: Spec, upstream: Upstream) -> History:
    repo = Repo(spec.path)
    if repo.is_shallow:
        raise Blocked(
            f"{repo.path} is a shallow clone: the commits the runners were copied from may be missing",
            expected="a clone with the full history",
            try_=f"`git -C {repo.path} fetch --unshallow --tags`, or pypi:vllm-ascend",
        )
    head = repo.resolve(spec.ref or "HEAD")
    commits = [commit for commit in reversed(repo.file_history(upstream.path)) if commit.blob]
    if not commits:
        raise BadInput(
            f"{repo.path} has no commit with {upstream.path}",
            expected="a clone of vllm-ascend; the path is where the runners import their base class from",
            try_="name another clone, or pypi:vllm-ascend",
        )
    blobs = {
        Version(commit.sha[:9], f"git:{repo.path}@{commit.sha}", commit.date, sha=commit.sha): str(
            commit.blob
        )
        for commit in sorted(commits, key=lambda commit: commit.date)
    }
    newest = next((commit.sha for commit in repo.file_history(upstream.path, [head])), None)

    def read(versions: Sequence[Version]) -> Iterator[tuple[Version, str]]:
        if len(versions) > BATCH:
            say(f"reading {len(versions)} versions of {upstream.path}")
        for start in range(0, len(versions), BATCH):
            some = versions[start : start + BATCH]
            texts = repo.blobs(blobs[version] for version in some)
            yield from ((version, texts[blobs[version]]) for version in some)

    target = next((version for version in blobs if version.sha == newest), None)
    return History(upstream, list(blobs), read, blobs=blobs, target=target)


def _of_index(spec: Spec, upstream: Upstream) -> History:
    versions = [
        Version(r.version, f"pypi:{spec.project}=={r.version}", r.date, version=r.version, yanked=r.yanked)
        for r in releases_of(spec.project)
    ]
    if all(version.date for version in versions):  # else they stay in the order of their numbers
        versions.sort(key=lambda version: version.date.timestamp() if version.date else 0)
    target = next((version for version in versions if version.version == spec.version), None)
    if spec.version and target is None:
        raise BadInput(
            f"{spec.project} has no release {spec.version} on the package index",
            expected="an existing release",
            try_=versions[-1].spec,
        )

    def read(some: Sequence[Version]) -> Iterator[tuple[Version, str]]:
        for version in some:
            yield version, peek_file(spec.project, version.label, upstream.path) or ""

    return History(upstream, versions, read, target=target, lazy=True)
