"""The one thing everything downstream reads: a read-only tree of files with an identity."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from npu_upgrade.ground.errors import BadInput, UpgradeError
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.progress import say
from npu_upgrade.sources import archives, index
from npu_upgrade.sources.git import Repo, below, clone_at, decoded, no_file, version_of_tag
from npu_upgrade.sources.spec import Spec, parse_spec

PACKAGES = {"vllm_ascend": "vllm-ascend", "vllm_omni": "vllm-omni", "vllm": "vllm"}
Paths = list[str]  # SourceTree.list hides the builtin inside the class
_SINGLY = 20  # so many files of a commit are read one by one, then its Python at once
_FEW = 200  # files: then at the first one
_SKIPPED = {".git", "__pycache__", ".npu-upgrade"}


@dataclass
class SourceTree:
    """A read-only source. Paths are relative to its top, with ``/``.

    ``spec`` is canonical (a git ref becomes its full SHA) and ``requested`` is what was asked for.
    ``date`` is the upload (pypi) or the commit (git; dir of a clean checkout), in UTC.
    ``dirty`` tells of a ``dir:`` checkout whether it differs from ``sha``; ``verified`` of an
    archive whether the index vouched for it by a strong hash. ``root`` is the folder on disk,
    None for git. ``over`` is the tree that some texts are laid over, and those (:func:`overlay`). Fields
    that do not apply, or are unknown, are None.
    """

    spec: str
    requested: str
    project: str | None = None
    version: str | None = None
    sha: str | None = None
    archive_sha256: str | None = None
    date: datetime | None = None
    dirty: bool | None = None
    verified: bool | None = None
    root: Path | None = None
    over: tuple[SourceTree, dict[str, str | None]] | None = None
    _built: Callable[[], str | None] = field(default=lambda: None, repr=False)
    _has: Callable[[str], bool] = field(default=lambda path: False, repr=False)
    _bytes: Callable[[str], bytes] = field(default=lambda path: b"", repr=False)
    _paths: Callable[[str], Paths] = field(default=lambda prefix: [], repr=False)
    _many: Callable[[Paths], dict[str, bytes]] | None = field(default=None, repr=False)

    @property
    def built_as(self) -> str | None:
        """Its version, or the one that a build of its commit gets; None where that cannot be told."""
        return self.version or self._built()

    def exists(self, path: str) -> bool:
        """Whether ``path`` is a file of this source."""
        return self._has(path)

    def read(self, path: str) -> str:
        """The text of a file; :class:`BadInput` when it is missing or not UTF-8."""
        if not self._has(path):
            raise no_file(path, self.spec)
        try:
            return decoded(self._bytes(path), path)
        except OSError as error:
            raise BadInput(
                f"cannot read {path} of {self.spec}: {error.strerror or error}",
                expected="a readable file",
                try_="check its permissions; for a release, run again: opening it repairs the cache",
            ) from error

    def contents(self, paths: Paths) -> dict[str, bytes]:
        """The bytes of several files, of git in one go. Raises OSError when one cannot be read."""
        return self._many(paths) if self._many else {path: self._bytes(path) for path in paths}

    def list(self, prefix: str = "") -> Paths:
        """Sorted paths of all files, or of those in the folder ``prefix``."""
        return self._paths(prefix)

    def identity(self) -> dict[str, Any]:
        """Which source this is, JSON-able: what a result records about its input."""
        names = ("spec", "requested", "project", "version", "sha", "archive_sha256", "dirty", "verified")
        return {name: getattr(self, name) for name in names} | {"date": self.date and self.date.isoformat()}


def open_source(spec: str | Spec) -> SourceTree:
    """Open a source spec for reading.

    Raises :class:`BadInput` for a wrong spec, version, ref, path or archive, and
    :class:`npu_upgrade.ground.errors.Blocked` when the network, the index or objects of a clone are missing.
    """
    parsed = parse_spec(spec) if isinstance(spec, str) else spec
    return {"pypi": _open_release, "git": _open_git, "dir": _open_folder}[parsed.kind](parsed)


def _open_release(spec: Spec) -> SourceTree:
    if spec.version is None:
        raise BadInput(f"{spec} names no version", expected=f"{spec}==VERSION", try_="add the version")
    release = index.release(spec.project, spec.version)
    if release.yanked:
        say(f"note: {spec} was yanked from the index")
    archive = archives.unpacked(archives.pick(release.files))
    tree = SourceTree(
        spec=str(spec),
        requested=str(spec),
        version=release.version,
        archive_sha256=archive.sha256,
        date=release.date,
        verified=archive.verified,
        root=archive.root,
        _has=archive.files.__contains__,
        _bytes=lambda path: (archive.root / path).read_bytes(),
        _paths=lambda prefix: below(archive.files, prefix),
    )
    tree.project = _project(tree) or spec.project
    return tree


def _open_git(spec: Spec) -> SourceTree:
    repo = clone_at(spec.path)
    return _tree_of(repo, *repo.look_up(spec.ref), str(spec))


def tree_at(repo: Repo, sha: str) -> SourceTree:
    """The tree of a commit; trees of one ``repo`` share what was read."""
    return _tree_of(repo, sha, *repo.describe(sha))


def _tree_of(repo: Repo, sha: str, date: datetime, tags: Paths, requested: str = "") -> SourceTree:
    blobs = cache(lambda: repo.files(sha))  # listed on first use

    def data(path: str) -> bytes:
        repo.asked[sha] += 1
        if repo.asked[sha] == (1 if len(blobs()) <= _FEW else _SINGLY):
            with contextlib.suppress(UpgradeError):  # a clone may lack what nobody asks for
                repo.keep(blob for name, blob in blobs().items() if name.endswith(".py"))
        return repo.blob(blobs()[path])

    spec = str(Spec("git", path=str(repo.path), ref=sha))
    tree = SourceTree(
        spec=spec,
        requested=requested or spec,
        version=max(filter(None, map(version_of_tag, tags)), key=Version, default=None),
        sha=sha,
        date=date,
        _built=lambda: repo.built_version(sha),
        _has=lambda path: path in blobs(),
        _bytes=data,
        _paths=lambda prefix: below(blobs(), prefix),
        _many=lambda paths: repo.blobs_of(blobs(), paths),
    )
    tree.project = _project(tree)
    return tree


def _open_folder(spec: Spec) -> SourceTree:
    root = Path(spec.path).expanduser().resolve()
    if not root.is_dir():
        raise BadInput(f"no folder {root}", expected="a folder with the sources", try_="check the path")
    real = cache(os.path.realpath)
    tree = SourceTree(
        spec=str(Spec("dir", path=str(root))),
        requested=str(spec),
        root=root,
        _has=lambda path: _inside(root, path, real) is not None,
        _bytes=lambda path: (root / path).read_bytes(),
        _paths=lambda prefix: _walk(root, prefix),
    )
    if (root / ".git").exists():
        _add_checkout(tree, root)
    tree.project = _project(tree)
    tree.version = _folder_version(root, tree)
    return tree


def _add_checkout(tree: SourceTree, root: Path) -> None:
    """Record the commit of a checkout; a folder whose git cannot be read is still a folder."""
    try:
        repo = Repo(root)
        tree.sha, tree.dirty = repo.head_and_dirty()
        if tree.sha and not tree.dirty:
            tree.date = repo.commit_date(tree.sha)
    except UpgradeError as error:
        say(f"note: the commit of {root} is unknown: {error.what}")


def _project(tree: SourceTree) -> str | None:
    """Which project a source is, by the package folder at its top."""
    return next((name for package, name in PACKAGES.items() if tree.exists(f"{package}/__init__.py")), None)


def _folder_version(root: Path, tree: SourceTree) -> str | None:
    """The version a folder states as text: package metadata, or a generated ``_version.py``."""
    package = next((package for package, name in PACKAGES.items() if name == tree.project), None)
    infos = [root / "PKG-INFO"]
    if package:
        infos += sorted(root.glob(f"{package}-*.dist-info/METADATA"))
        infos.append(root / f"{package}.egg-info" / "PKG-INFO")
    patterns = [(path, r"^Version:\s*(\S+)") for path in infos]
    if package:
        patterns.append(
            (root / package / "_version.py", r"^(?:__version__|version)\b[^\n]*['\"]([^'\"\n]+)['\"]")
        )
    for path, pattern in patterns:
        name = path.relative_to(root).as_posix()
        if tree.exists(name) and (found := re.search(pattern, tree.read(name), re.MULTILINE)):
            return found.group(1)
    return None


def _inside(root: Path, path: str, real: Callable[[str], str] = os.path.realpath) -> str | None:
    """The regular file at ``path`` when it lies in ``root`` after following links.

    ``real`` is where a folder is; most files of a tree are in a few.
    """
    if not path or "\0" in path:
        return None
    folder, name = os.path.split(root / path)
    target = os.path.join(real(folder), name)
    if name in ("", ".", "..") or os.path.islink(target):
        target = os.path.realpath(target)
    return target if os.path.isfile(target) and target.startswith(f"{root}{os.sep}") else None


def _walk(root: Path, prefix: str) -> list[str]:
    start = prefix.rstrip("/")
    if _inside(root, start):
        return [start]
    top = Path(os.path.realpath(root / start))
    if not top.is_dir() or not top.is_relative_to(root):
        return []
    begin = "" if top == root else f"{top.relative_to(root).as_posix()}/"
    return sorted(_below(root, str(top), begin))


def _below(root: Path, folder: str, begin: str) -> Iterator[str]:
    """The regular files below ``folder``, each with ``begin``; links to folders are not followed."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED:
                yield from _below(root, entry.path, f"{begin}{entry.name}/")
        elif entry.is_file(follow_symlinks=False) or (entry.is_symlink() and _inside(root, entry.path)):
            yield f"{begin}{entry.name}"


def overlay(tree: SourceTree, texts: Mapping[str, str | None]) -> SourceTree:
    """``tree`` with the files of ``texts`` (path -> text, None for a file that is gone) in their place.

    The result is no release and no commit any more: its identity names the content of the
    replaced files, and it counts as dirty.
    """
    if not texts:
        return tree
    digest = sha256("".join(f"{path} {sha256(text or '')}\n" for path, text in sorted(texts.items())))

    def listed(prefix: str) -> list[str]:
        gone = {path for path, text in texts.items() if text is None}
        return below(sorted({*tree.list(), *texts} - gone), prefix)

    def data(path: str) -> bytes:
        text = texts.get(path)
        return tree._bytes(path) if text is None else text.encode()

    def many(paths: Sequence[str]) -> dict[str, bytes]:
        new = {path: text.encode() for path, text in texts.items() if text is not None}
        return tree.contents([path for path in paths if path not in new]) | {
            path: new[path] for path in paths if path in new
        }

    return replace(
        tree,
        spec=f"{tree.spec} with {len(texts)} files replaced ({digest[:12]})",
        archive_sha256=None,
        dirty=True,
        root=None,
        over=(tree, dict(texts)),
        _has=lambda path: texts[path] is not None if path in texts else tree.exists(path),
        _bytes=data,
        _paths=listed,
        _many=many,
    )
