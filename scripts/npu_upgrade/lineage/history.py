"""The versions of a file of upstream, and the units in each.

:func:`open_history` makes one from a clone or the package index.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.version import Version as Number

from npu_upgrade.code.outline import outline, unit_texts
from npu_upgrade.code.statements import END, split_statements
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.files import sha256, write_atomic
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.ground.progress import say
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.git import clone_at
from npu_upgrade.sources.index import releases_of
from npu_upgrade.sources.remote_wheel import peek_release
from npu_upgrade.sources.spec import Spec, parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source

Keys = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the upstream file.

    ``label`` is a release number or an abbreviated SHA, ``spec`` the canonical source spec,
    ``date`` the commit or the upload (UTC; None where the index does not tell), ``yanked``
    whether the release was withdrawn.
    """

    label: str
    spec: str
    date: datetime | None
    sha: str | None = None
    version: str | None = None
    yanked: bool = False


ReadMany = Callable[[Sequence[Version]], Iterator[tuple[Version, str]]]


class History:
    """The ``versions`` of one upstream file and class, oldest first.

    ``target`` is the version that the source spec named, None when it named none. ``lazy``
    tells that looking at a version costs a download; ``fetched`` counts the files read.
    ``read`` gives the text of the file at some versions ("" where it does not exist), and
    ``blobs`` names the content of each version where that is known without reading it.
    """

    def __init__(
        self,
        upstream: Upstream,
        versions: Sequence[Version],
        read: ReadMany,
        *,
        blobs: Mapping[Version, str] | None = None,
        target: Version | None = None,
        lazy: bool = False,
    ) -> None:
        self.upstream, self.versions, self.target, self.lazy = upstream, list(versions), target, lazy
        self.fetched = 0
        self._read, self._blobs = read, blobs or {}
        self._cache = HistoryCache(upstream.path)
        self._outlines: dict[Version, dict[str, str]] = {}
        self._known: set[str] = set()
        self._texts = functools.lru_cache(maxsize=32)(self._read_one)

    def unit(self, version: Version, name: str) -> str | None:
        """The source of a unit: the method of that name in the runner class, else what has that name."""
        return self._named(self._texts(version), name)

    def units(self, versions: Sequence[Version], name: str) -> list[str]:
        """The source of a unit at each of some versions, read together; "" where it does not exist.

        Of a clone only the unit is looked for, by its hash where that is known.
        """
        digests = {version: self.digest(version, name) for version in versions}
        if self.lazy:
            return [self.unit(version, name) or "" for version in versions]
        texts = dict(self._read([version for version, digest in digests.items() if digest]))
        self.fetched += len(texts)
        found = {
            version: next((one for one in unit_texts(text) if text_hash(one) == digests[version]), None)
            for version, text in texts.items()
        }
        return [found.get(version) or self.unit(version, name) or "" for version in versions]

    def digest(self, version: Version, name: str) -> str | None:
        """The hash of the text of :meth:`unit`, None where it does not exist."""
        if version not in self._outlines:
            blob = self._blobs.get(version, "")
            if blob not in self._cache.outlines:
                self._learn(version, self._texts(version), ())
            else:
                self._outlines[version] = self._cache.outlines[blob]
        return self._named(self._outlines[version], name)

    def keys(self, version: Version, name: str) -> Keys:
        """The statement keys of :meth:`unit`, as of :func:`keys_of`; empty where it does not exist."""
        digest = self.digest(version, name)
        if digest is None:
            return ()
        known = self._cache.keys.get(digest)
        return self.keys_of(self.unit(version, name) or "") if known is None else tuple(known)

    def keys_of(self, source: str) -> Keys:
        """The statement keys of another unit, kept as those of the versions are."""
        digest = text_hash(source)
        if digest not in self._cache.keys:
            self._cache.keys[digest] = list(keys_of(source))
        return tuple(self._cache.keys[digest])

    def prepare(self, names: Iterable[str]) -> None:
        """Read what comparing these units over all versions needs in few passes; nothing when lazy."""
        if self.lazy:
            return
        names = list(names)
        first = {self._blobs[version]: version for version in reversed(self.versions)}
        self._pass((first[blob] for blob in first if blob not in self._cache.outlines), names)
        without: dict[str, Version] = {}
        for version in first.values():
            for digest in filter(None, (self.digest(version, name) for name in names)):
                if digest not in self._cache.keys:
                    without.setdefault(digest, version)
        self._pass(dict.fromkeys(without.values()), names)

    def read_ahead(self, versions: Sequence[Version], names: Iterable[str]) -> None:
        """Read together what these units are at some versions."""
        if unknown := [one for one in versions if not self._is_known(one)]:
            self._pass(unknown, list(names))

    def fetch(self, version: Version) -> None:
        """Have the file at a version at hand, where its outline is not known."""
        if not self._is_known(version):
            for _ in self._read([version]):
                pass

    def _is_known(self, version: Version) -> bool:
        return self._blobs.get(version, "") in self._cache.outlines

    def save(self) -> None:
        """Keep what was read for the next run."""
        self._cache.save()

    def _pass(self, versions: Iterable[Version], names: Sequence[str] = ()) -> None:
        for version, source in self._read(list(versions)):
            self.fetched += 1
            self._learn(version, outline(source, self._known), names)

    def _learn(self, version: Version, texts: Mapping[str, str], names: Sequence[str]) -> None:
        found = {name: text_hash(text) for name, text in texts.items()}
        self._outlines[version] = found
        if version in self._blobs:
            self._cache.outlines[self._blobs[version]] = found
        for name in names:
            digest = self._named(found, name)
            if digest and digest not in self._cache.keys:
                self._cache.keys[digest] = list(keys_of(self._named(texts, name) or ""))

    def _named(self, units: Mapping[str, str], name: str) -> str | None:
        return upstream_unit(units, self.upstream.class_name, name)

    def _read_one(self, version: Version) -> dict[str, str]:
        # what was published does not change, and few versions are; a clone has thousands
        blob = self._blobs.get(version) if self.lazy else None
        name = sha256(f"{self.upstream.path} {blob} {code_digest('code')}")[:24]
        place = cache_root() / "outlines" / f"{name}.json"
        if blob and (known := kept(place, dict[str, str])):
            return known
        self.fetched += 1
        found = next((outline(source, self._known) for _, source in self._read([version])), {})
        return keep(place, found) if blob and found else found


def upstream_unit(units: Mapping[str, T], class_name: str, name: str) -> T | None:
    """The method of that name in the runner class, else what has that name."""
    return units.get(f"{class_name}.{name}") or units.get(name)


def keys_of(source: str) -> Keys:
    """One number per logical statement of ``source``, equal where the statements are; () if not Python."""
    try:
        return tuple(key_hash(s.key) for s in split_statements(source) if s.key != END)
    except SyntaxError:
        return ()


Outline = dict[str, str]


class _Stored(msgspec.Struct):
    """The file of a cache: who made it, units as (name, text hash), blob -> its units, text hash -> keys."""

    made_by: str
    units: list[tuple[str, str]]
    blobs: dict[str, list[int]]
    keys: dict[str, list[int]]


class HistoryCache:
    """``outlines``: blob -> {qualified name: text hash}. ``keys``: text hash -> statement keys.

    ``place`` is the file below the cache folder; outlines are stored with one table of
    (name, hash) pairs, since neighbouring versions share nearly all of them.
    """

    def __init__(self, name: str) -> None:
        self.place: Path = cache_root() / "lineage" / f"{sha256(name)[:16]}.json"
        self.outlines: dict[str, Outline] = {}
        self.keys: dict[str, list[int]] = {}
        self._saved = (0, 0)
        with contextlib.suppress(OSError, msgspec.MsgspecError, IndexError):
            self._load(msgspec.json.decode(self.place.read_bytes(), type=_Stored))

    def save(self) -> None:
        """Write what was added; a cache that cannot be written is no reason to fail."""
        size = (len(self.outlines), len(self.keys))
        if size == self._saved:
            return
        numbers: dict[tuple[str, str], int] = {}
        blobs = {
            blob: [numbers.setdefault(unit, len(numbers)) for unit in outline.items()]
            for blob, outline in self.outlines.items()
        }
        with contextlib.suppress(BadInput):
            write_atomic(
                self.place, msgspec.json.encode(_Stored(code_digest("code"), list(numbers), blobs, self.keys))
            )
            self._saved = size

    def _load(self, stored: _Stored) -> None:
        if stored.made_by == code_digest("code"):
            blobs = stored.blobs.items()
            self.outlines = {
                blob: dict(stored.units[number] for number in numbers) for blob, numbers in blobs
            }
            self.keys = stored.keys
            self._saved = (len(self.outlines), len(self.keys))


def text_hash(text: str) -> str:
    """What a text is filed under."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_hash(key: str) -> int:
    """A number for a statement key: shorter to keep, and as good for comparing."""
    return int.from_bytes(
        hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big"
    )


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


def history_state(ascend: str) -> list[str]:
    """What a history depends on: the releases of the index, or the refs of a clone; nothing of a folder."""
    spec = parse_history_spec(ascend)
    if spec.kind == "pypi":
        return [f"{one.version} {one.date} {one.yanked}" for one in releases_of(spec.project)]
    if spec.kind == "dir" and not (Path(spec.path).expanduser() / ".git").exists():
        return []
    return clone_at(spec.path).refs()


def parse_history_spec(text: str) -> Spec:
    """As ``parse_spec``; moreover ``git:PATH`` means its HEAD, and ``pypi:NAME`` all releases."""
    kind, _, path = text.strip().partition(":")
    if kind == "git" and path and Path(path).expanduser().is_dir():
        return Spec("git", path=path, ref="HEAD")
    return parse_spec(text, allow_unversioned=True)


def whole_path(text: str) -> str:
    """The spec of a history that means the same from any folder."""
    spec = parse_history_spec(text)
    return str(replace(spec, path=str(Path(spec.path).expanduser().resolve())) if spec.path else spec)


def open_newest(text: str) -> SourceTree:
    """The tree of a spec; of a project without a version its newest release, of a clone its HEAD."""
    say(f"reading {text}")
    spec = parse_history_spec(text)
    if spec.kind != "pypi" or spec.version:
        return open_source(spec)
    releases = releases_of(spec.project)
    usable = [release for release in releases if not release.yanked] or releases
    newest = max(usable, key=lambda release: Number(release.version))
    return open_source(Spec("pypi", project=spec.project, version=newest.version))


def _of_clone(spec: Spec, upstream: Upstream) -> History:
    repo = clone_at(spec.path)
    if repo.is_shallow:
        raise Blocked(
            f"{repo.path} is a shallow clone: the commits the runners were copied from may be missing",
            expected="a clone with the full history",
            try_=f"`git -C {repo.path} fetch --unshallow --tags`, or pypi:vllm-ascend",
        )
    head = repo.resolve(spec.ref or "HEAD")
    commits = [commit for commit in reversed(repo.file_history(upstream.path)) if commit.blobs[upstream.path]]
    if not commits:
        raise BadInput(
            f"{repo.path} has no commit with {upstream.path}",
            expected="a clone of vllm-ascend; the path is where the runners import their base class from",
            try_="name another clone, or pypi:vllm-ascend",
        )
    blobs = {
        Version(commit.sha[:9], f"git:{repo.path}@{commit.sha}", commit.date, sha=commit.sha): str(
            commit.blobs[upstream.path]
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
    releases = {release.version: release for release in releases_of(spec.project)}
    versions = [
        Version(
            r.version, f"pypi:{spec.project}=={r.version}", r.date, version=r.version, yanked=bool(r.yanked)
        )
        for r in releases.values()
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
        with ThreadPoolExecutor(BATCH) as pool:
            texts = pool.map(lambda version: peek_release(releases[version.label], upstream.path), some)
            yield from ((version, text or "") for version, text in zip(some, texts, strict=True))

    blobs = {version: version.spec for version in versions}  # what was published does not change
    return History(upstream, versions, read, blobs=blobs, target=target, lazy=True)
