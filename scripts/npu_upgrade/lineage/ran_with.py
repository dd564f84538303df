"""The release that the device's side of a tree is, byte for byte: what that side really ran with."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from packaging.version import Version

from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.sources.git import Repo, below
from npu_upgrade.sources.index import versions_of
from npu_upgrade.sources.releases import version_of_tag
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.spec import Spec, parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source

_MOST = 24
"""So many releases are looked at, from the newest back."""


def released_as(tree: SourceTree) -> str | None:
    """The spec of the newest release with the same files for the device, else with the same runners; or None.

    Asked are the tags of the clone that the tree is of; without tags the package index, about the files
    beside the runners alone. A release is not asked.
    """
    spec = parse_spec(tree.requested)
    if spec.kind == "pypi":
        return None
    with contextlib.suppress(UpgradeError, OSError):
        side = Downstream(tree)
        path = Path(spec.path or ".").expanduser()
        if tree.sha and (tags := _tagged(Repo(path))):
            return _same_tag(side, Repo(path), tags)
        return _same_release(side)
    return None


def at_last_change(tree: SourceTree) -> SourceTree:
    """The tree at the commit that last changed its runners, with what was around them then; else itself."""
    spec = parse_spec(tree.requested)
    with contextlib.suppress(UpgradeError, OSError):
        if spec.kind != "pypi" and tree.sha:
            repo = Repo(Path(spec.path or ".").expanduser())
            paths = [one.path for one in Downstream(tree).runners]
            commits = [one for path in paths for one in repo.file_history(path, [tree.sha])[:1]]
            if newest := max(commits, key=lambda one: one.date, default=None):
                return open_source(str(Spec("git", path=str(repo.path), ref=newest.sha)))
    return tree


def _tagged(repo: Repo) -> list[tuple[Version, str, str]]:
    """The version tags of a clone with their commits, the newest first."""
    named = ((version_of_tag(tag), tag, sha) for tag, _, sha in repo.tags())
    return sorted(((Version(number), tag, sha) for number, tag, sha in named if number), reverse=True)


def _same_tag(side: Downstream, repo: Repo, tags: list[tuple[Version, str, str]]) -> str | None:
    own = {path: _blob(data) for path, data in side.tree.contents(side.paths).items()}
    runners = {(one.path, own[one.path]) for one in side.runners}
    nearly = None
    for _, tag, sha in tags[:_MOST]:
        all_files = repo.files(sha)
        theirs = filter(side.project.holds, below(all_files, side.project.package))
        files = {path: all_files[path] for path in theirs}
        if files == own:
            return str(Spec("git", path=str(repo.path), ref=tag))
        if nearly is None and runners <= files.items():
            nearly = str(Spec("git", path=str(repo.path), ref=tag))
    return nearly


def _same_release(side: Downstream) -> str | None:
    project = side.project.name
    texts = {path: side.tree.read(path) for path in side.runner_files}
    for number in versions_of(project)[::-1][:_MOST]:
        if all(peek_file(project, str(number), path) == text for path, text in texts.items()):
            return str(Spec("pypi", project=project, version=str(number)))
    return None


def _blob(data: bytes) -> str:
    """The name that git has for a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
