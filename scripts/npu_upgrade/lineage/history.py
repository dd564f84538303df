"""The versions of the vllm-ascend file that holds the upstream runner, and the units in each.

:func:`npu_upgrade.lineage.history_sources.open_history` makes one from a clone or the package index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from npu_upgrade.code.outline import outline
from npu_upgrade.code.statements import END, split_statements
from npu_upgrade.lineage.downstream import Upstream
from npu_upgrade.lineage.history_cache import HistoryCache, key_hash, text_hash

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
        if digest not in self._cache.keys:
            self._cache.keys[digest] = list(keys_of(self.unit(version, name) or ""))
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
        self.fetched += 1
        return next((outline(source, self._known) for _, source in self._read([version])), {})


def upstream_unit(units: Mapping[str, T], class_name: str, name: str) -> T | None:
    """The method of that name in the runner class, else what has that name."""
    return units.get(f"{class_name}.{name}") or units.get(name)


def keys_of(source: str) -> Keys:
    """One number per logical statement of ``source``, equal where the statements are; () if not Python."""
    try:
        return tuple(key_hash(s.key) for s in split_statements(source) if s.key != END)
    except SyntaxError:
        return ()
