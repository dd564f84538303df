"""What changed in one folder between two source trees: files, line counts, commits."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from packaging.version import Version

from npu_upgrade.sources.git import Repo
from npu_upgrade.sources.releases import Published, version_of_tag
from npu_upgrade.sources.tree import SourceTree


@dataclass(frozen=True)
class Change:
    """One file that differs: ``status`` is "added", "removed" or "changed"; counts are lines."""

    file: str
    status: str
    added: int
    removed: int


def changes_under(prefix: str, old: SourceTree, new: SourceTree) -> list[Change]:
    """The Python files below ``prefix`` that differ, by path."""
    before, after = _python_files(old, prefix), _python_files(new, prefix)
    found = []
    for path in sorted(before | after):
        old_lines = old.read(path).splitlines() if path in before else []
        new_lines = new.read(path).splitlines() if path in after else []
        if old_lines == new_lines and path in before & after:
            continue
        status = "changed" if path in before & after else "added" if path in after else "removed"
        found.append(Change(path, status, *_line_counts(old_lines, new_lines)))
    return found


def _python_files(tree: SourceTree, prefix: str) -> set[str]:
    return {path for path in tree.list(prefix) if path.endswith(".py")}


def _line_counts(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Lines added and removed, by the shortest diff difflib finds."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    return sum(e[4] - e[3] for e in edits), sum(e[2] - e[1] for e in edits)


def previous_release(version: str | None, date: datetime | None, releases: Sequence[Published]) -> str | None:
    """The newest stable release below ``version`` (of 0.30.0rc1 and 0.30.0 alike: 0.28.0).

    Without a version (a commit between releases) the newest one published before ``date``.
    """
    stable = [r for r in releases if not r.prerelease and not r.yanked]
    if version:
        target = Version(version).release
        below = [r.version for r in stable if Version(r.version).release < target]
    else:
        below = [r.version for r in stable if r.date and date and r.date < date]
    return max(below, key=Version, default=None)


def previous_tag(repo: Repo, sha: str) -> str | None:
    """The newest version tag in the history of ``sha``, other than on ``sha`` itself; stable ones first."""
    own = set(repo.describe(sha)[1])
    tags = [tag for tag, _, _ in repo.tags(merged=sha) if tag not in own]
    versions = {tag: Version(version) for tag in tags if (version := version_of_tag(tag))}
    return max(versions, key=lambda tag: (not versions[tag].is_prerelease, versions[tag]), default=None)
