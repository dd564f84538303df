"""What is known of where the methods of the NPU runners come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion
from packaging.version import Version as Number

from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.kept import keep, kept
from npu_upgrade.ground.paths import cache_root
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.lineage.history import History, Version
from npu_upgrade.sources.content import code_digest
from npu_upgrade.sources.tree import SourceTree
from npu_upgrade.threeway.nearest_base import nearest_base

OLDER = (1, 2, 3, 4, 8, 16, 32)  # which of the distinct older texts of a method serve as neighbours
NEWER = (1, 2, 3, 4, 5, 6)
SURE = 0.5
"""From this confidence on, a base needs no one to look at it."""

LAZY_REACH = 6  # so many older releases are worth a download for it


@dataclass(frozen=True, slots=True)
class MethodLineage:
    """What one unit of an NPU runner file has to do with upstream's unit of that name.

    ``runner`` is the kind of runner (base, ar, generation), ``name`` the qualified name in
    ``path``, ``upstream`` the name to ask the history for. ``coverage`` is the matched part
    of upstream's statements, ``share`` of ours, ``score`` their dice, all at ``best``; the
    runner-up is the best version that scores lower; of a unit that its siblings' base was given, the newer
    one that scores higher on too little evidence. ``window`` is the first and the last
    version with the text of ``best``. ``behind`` counts the texts that came after the window
    up to the date of the omni tree, ``behind_days`` the days of that.
    """

    runner: str
    path: str
    name: str
    upstream: str
    upstream_exists: bool
    copied: bool
    statements: int
    matched: int = 0
    coverage: float = 0.0
    share: float = 0.0
    score: float = 0.0
    best: Version | None = None
    runner_up: Version | None = None
    runner_up_score: float = 0.0
    confidence: float = 0.0
    window: tuple[Version, Version] | None = None
    behind: int = 0
    behind_days: int | None = None

    @property
    def rival(self) -> Version | None:
        """The newer version that fits the unit's text better than its base; None where the base fits best."""
        return self.runner_up if self.runner_up_score > self.score else None


@dataclass(frozen=True, slots=True)
class Base:
    """The one version that fits all copied methods best; ``window`` spans the equally good ones.

    ``runner_up`` is the label of the best version that scores lower.
    """

    version: Version
    score: float
    runner_up: str | None
    runner_up_score: float
    confidence: float
    window: tuple[Version, Version]

    @property
    def label(self) -> str:
        return self.version.label

    @property
    def spec(self) -> str:
        return self.version.spec

    @property
    def date(self) -> datetime | None:
        return self.version.date


@dataclass(frozen=True)
class Lineage:
    """The lineage of units with one upstream file; ``base`` is None when none is a copy.

    ``considered`` are the versions that were compared, oldest first; ``runners`` the files that
    the units are in, where those are runner files.
    """

    base: Base | None
    methods: tuple[MethodLineage, ...]
    history: History
    considered: tuple[Version, ...]
    runners: tuple[Runner, ...] = ()

    @property
    def copied(self) -> list[MethodLineage]:
        return [method for method in self.methods if method.copied]

    def method(self, path: str, name: str) -> MethodLineage | None:
        """The entry of one unit."""
        return next((entry for entry in self.methods if (entry.path, entry.name) == (path, name)), None)

    def neighbours(
        self, name: str, version: Version, newest: Version | None = None
    ) -> tuple[list[str], list[str]]:
        """Other texts of one upstream unit, older and newer than ``version``, nearest first.

        Distinct ones at the distances :data:`OLDER` and :data:`NEWER`; newer ones up to
        ``newest`` (default: the version the history was asked for, else the last one).
        """
        versions = [v for v in self.history.versions if not v.yanked or v in (version, newest)]
        place = versions.index(version)
        last = newest or self.history.target or versions[-1]
        end = versions.index(last) + 1 if last in versions else len(versions)
        own = self.history.digest(version, name)
        before = versions[:place][::-1]
        older = self._texts(name, before[:LAZY_REACH] if self.history.lazy else before, {own}, OLDER)
        return older, self._texts(name, versions[place + 1 : end], {own}, NEWER)

    def _texts(
        self, name: str, versions: Sequence[Version], seen: set[str | None], distances: tuple[int, ...]
    ) -> list[str]:
        seen, distance, chosen = seen | {None}, 0, []
        for version in versions:
            if distance == distances[-1]:
                break
            digest = self.history.digest(version, name)
            if digest in seen:
                continue
            seen.add(digest)
            distance += 1
            if distance in distances:
                chosen.append(version)
        return self.history.units(chosen, name)


@dataclass(frozen=True)
class Bases:
    """Where base texts come from.

    ``forced`` is the version a person named (None: each method's own best one);
    ``target`` is the version upgraded to where the history knows it.
    """

    lineage: Lineage
    forced: Version | None = None
    target: Version | None = None

    def version(self, entry: MethodLineage) -> Version:
        version = self.forced or entry.best
        assert version is not None, "only asked for copied methods"
        return version

    def is_sure(self, entry: MethodLineage) -> bool:
        """Whether the base was named, or the method itself or what was copied with it tells it."""
        joint = self.lineage.base
        together = joint.confidence if joint and entry.best == joint.version and not entry.rival else 0.0
        return self.forced is not None or max(entry.confidence, together) >= SURE

    def statements(
        self, entry: MethodLineage, ours: list[Statement], version: Version | None = None
    ) -> list[Statement] | None:
        """The base of a method (or its text at ``version``), None when upstream had no such method then."""
        version = version or self.version(entry)
        (text,) = self.lineage.history.units([version], entry.upstream)
        if not text:
            return None
        older, newer = self.lineage.neighbours(entry.upstream, version, self.target)
        known = _kept_as([text, *older, "newer", *newer], ours)
        if (base := kept(known, list[Statement])) is not None:
            return base
        sides = [[split_statements(other) for other in texts] for texts in (older, newer)]
        return keep(known, nearest_base(split_statements(text), *sides, ours))


def _kept_as(texts: Sequence[str], ours: Sequence[Statement]) -> Path:
    """Where the base of a method is kept: after an edit, that of the others is known."""
    content = msgspec.json.encode([texts, ours, code_digest("code", "threeway")])
    return cache_root() / "bases" / f"{sha256(content)[:24]}.json"


def find_version(history: History, spec: str) -> Version:
    """The version of ``history`` that a base spec names; raises :class:`BadInput` when there is none."""
    name = spec.partition("@")[2] if spec.startswith("git:") else spec.partition("==")[2]
    matches = [v for v in history.versions if name and (v.label == name or (v.sha or "").startswith(name))]
    if not matches:
        raise BadInput(
            f"the base {spec} is not among the versions of {history.upstream.path}",
            expected="a release on the package index, or a commit that changed that file",
            try_="--base auto, or one of " + ", ".join(v.spec for v in history.versions[-3:]),
        )
    return matches[-1]


def is_older(one: SourceTree | Version, other: SourceTree | Version) -> bool:
    """Whether a source came before another one, by their numbers, else by their dates."""
    try:
        return Number(one.version or "") < Number(other.version or "")
    except InvalidVersion:
        return bool(one.date and other.date and one.date < other.date and one.sha != other.sha)


def check_direction(base: Version, target: SourceTree) -> None:
    """Raise :class:`BadInput` when the target is older than what the runners are based on."""
    if not is_older(target, base):
        return
    raise BadInput(
        f"{target.spec} is older than the base of the runners, {base.label}",
        expected="a vllm-ascend that is newer than the version the runners were copied from",
        try_="name a newer --ascend, or --base where the inferred one is wrong (upgrade.py lineage)",
    )
