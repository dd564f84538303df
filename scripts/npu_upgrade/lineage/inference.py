"""Which units of a downstream are copies of upstream's, and of which version.

Read from the texts alone: no method name is written down here. A version newer than the
omni tree is never a candidate, and of equally good versions the oldest is taken, since a
base that is too new hides upstream changes without a conflict. A method is newer than what was
copied together only when it has statements that came later.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from packaging.version import InvalidVersion
from packaging.version import Version as Number

from npu_upgrade.code.sequences import dice, overlap
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.downstream import Downstream, Runner, omni_side, read_runner
from npu_upgrade.lineage.history import History, Keys, Version, open_history
from npu_upgrade.lineage.records import Base, Lineage, MethodLineage
from npu_upgrade.sources.tree import SourceTree

PATIENCE = 4  # releases older than the best one that are looked at before the walk ends
GAIN = 3
"""So many statements that came later show that a method (or those of a file together) did too."""
_HALF_DAYS = 30.0


def infer_base(omni: SourceTree, ascend: str) -> Base:
    """The version of ``ascend`` that the copied methods of ``omni`` come from.

    Raises as :func:`infer`, and :class:`BadInput` when nothing is copied.
    """
    found = infer(omni, ascend)
    if found.base is None:
        raise BadInput(
            f"no method of the NPU runners of {omni.spec} is a copy of one in {ascend}",
            expected="runners that copy methods of vllm-ascend, and a history that reaches back to the copy",
            try_="another clone, or pypi:vllm-ascend; runners without copies have no base",
        )
    return found.base


def infer(omni: SourceTree | Downstream, ascend: str | History) -> Lineage:
    """Compare every unit of the runner files with the history of the upstream runner's file.

    Raises :class:`BadInput` when no class of ``omni`` builds on an upstream, or every version is
    newer than it, and as :func:`npu_upgrade.lineage.history.open_history`.
    """
    side = omni if isinstance(omni, Downstream) else omni_side(omni)
    history = ascend if isinstance(ascend, History) else open_history(ascend, side.upstream)
    entries = []
    for runner in side.runners:
        for unit in read_runner(side.tree, runner.path).units.values():
            name = runner.upstream_name(unit.owner, unit.name, side.upstream)
            keys = history.keys_of(unit.source)
            entry = MethodLineage(runner.kind, runner.path, unit.qualname, name, False, False, len(keys))
            entries.append((entry, keys))
    return infer_units(side.tree, entries, history, side.runners)


def infer_units(
    omni: SourceTree,
    units: Sequence[tuple[MethodLineage, Keys]],
    history: History,
    runners: Sequence[Runner] = (),
) -> Lineage:
    """Compare units, each with its statement keys, with the history of one upstream file.

    The base is joint over those that are copies: what one file has of another was taken together.
    """
    entries = [(entry, Scores(history, entry.upstream, keys)) for entry, keys in units]
    history.prepare({unit.name for _, unit in entries})
    cap = _date_of(omni)
    versions = candidates(history, omni, cap)
    scores = [unit for _, unit in entries]
    if history.lazy:
        versions = _walk_back(scores, versions)
    ranks = [rank([unit], versions) for unit in scores]
    copied = [unit for unit, ranked in zip(scores, ranks, strict=True) if unit.is_copy(ranked.best[0])]
    base = _base(copied, versions, cap) if copied else None
    methods = [
        _method(entry, unit, ranked, rival, versions, base, cap)
        for (entry, unit), ranked, rival in zip(entries, ranks, _rivals(entries, ranks, base), strict=True)
    ]
    history.save()
    return Lineage(base, tuple(methods), history, tuple(versions), tuple(runners))


def confidence(margin: float, days: float) -> float:
    """How sure a best version is, 0 to 1.

    The geometric mean of two parts: ``m / (m + 1)`` for a lead of ``m`` statements over the
    best version that scores lower, and ``30 / (30 + d)`` for the ``d`` days in which the
    copy can have been made (from the last version before the equally good ones to the
    first one after them). One statement and no time is 0.71, three and a month 0.61.
    """
    lead = max(0.0, margin)
    return round((lead / (lead + 1) * _HALF_DAYS / (_HALF_DAYS + max(0.0, days))) ** 0.5, 2)


def candidates(history: History, omni: SourceTree, cap: datetime) -> list[Version]:
    """The versions that ``omni`` can have copied, oldest first; withdrawn ones when there is no other."""
    possible = [version for version in history.versions if _not_newer(version, omni, cap)]
    if not possible:
        raise BadInput(
            f"every version of {history.upstream.path} is newer than {omni.spec} ({cap:%Y-%m-%d})",
            expected="a history of vllm-ascend that reaches back to when the runners were copied",
            try_="a full clone of vllm-ascend, or pypi:vllm-ascend",
        )
    return [version for version in possible if not version.yanked] or possible


def _not_newer(version: Version, omni: SourceTree, cap: datetime) -> bool:
    if version.date:
        return version.date <= cap
    # An index without dates: the two projects share the number of the vllm they follow.
    try:
        own, theirs = Number(omni.version or ""), Number(version.version or "")
    except InvalidVersion:
        return True
    return theirs.release[:2] <= own.release[:2]


def first_looked_at(history: History, omni: SourceTree) -> list[Version]:
    """The releases with which the walk back begins; none of a clone, which is read as a whole."""
    if not history.lazy:
        return []
    return _newest_first(v for v in history.versions if _not_newer(v, omni, _date_of(omni)))[: PATIENCE + 1]


def _date_of(omni: SourceTree) -> datetime:
    return omni.date or datetime.now(UTC)


def _newest_first(versions: Iterable[Version]) -> list[Version]:
    """Releases by number: an older branch gets releases later, and what follows is what came before."""
    return sorted(versions, key=lambda version: Number(version.version or "0"), reverse=True)


def _walk_back(units: Sequence[Scores], versions: Sequence[Version]) -> list[Version]:
    """The releases worth looking at: from the newest back until the score has only fallen.

    Where the units do not change, not every release is looked at, but how far back they are the same: what
    two releases have alike, those between them have, too.
    """
    order = _newest_first(versions)
    seen: list[Version] = []
    units[0].history.read_ahead(order[: PATIENCE + 1], {unit.name for unit in units})
    at = 0
    while at < len(order):
        seen.append(order[at])
        copied = [unit for unit in units if unit.is_copy(rank([unit], seen).best[0])]
        top = rank(copied or units, seen).best[-1]
        if at - order.index(top) >= PATIENCE:
            break
        if top is order[at] and at >= PATIENCE and (last := _last_alike(units, order, at)) > at:
            seen.append(order[last])
            at = last
        at += 1
    return [version for version in versions if version in seen]


def _last_alike(units: Sequence[Scores], order: Sequence[Version], at: int) -> int:
    """The place of the oldest release that has all units as the one at a place has them."""

    def differs(place: int) -> bool:
        return place >= len(order) or any(
            unit.digest(order[place]) != unit.digest(order[at]) for unit in units
        )

    step = 1
    while not differs(at + step):
        step *= 2
    return at + bisect.bisect_left(range(at, at + step), True, key=differs) - 1


def _base(copied: Sequence[Scores], versions: Sequence[Version], cap: datetime) -> Base:
    found = rank(copied, versions)
    version = found.best[0]
    statements = sum(len(unit.keys) + unit.match(version).theirs for unit in copied) / 2
    return Base(
        version,
        round(found.score, 4),
        found.runner_up.label if found.runner_up else None,
        round(found.runner_up_score, 4),
        confidence((found.score - found.runner_up_score) * statements, _span(found.best, versions, cap)),
        (version, found.best[-1]),
    )


def _rivals(
    entries: Sequence[tuple[MethodLineage, Scores]], ranks: Sequence[Ranked], base: Base | None
) -> list[Version | None]:
    """The best version of each unit where it is newer than the base and nothing but that shows it.

    A text gets nearer to ours when upstream drops what ours never had, too. What is judged is therefore how
    many statements of ours came after the base, in the unit and in those beside it in its file: one copy
    brought them all.
    """
    rivals: list[Version | None] = []
    gains: Counter[str] = Counter()
    own: list[int] = []
    for (entry, unit), ranked in zip(entries, ranks, strict=True):
        best = ranked.best[0]
        newer = base and unit.digest(base.version) and base.version not in ranked.best
        place = unit.history.versions.index
        newer = newer and place(best) > place(base.window[1])
        gain = unit.match(best).matched - unit.match(base.version).matched if base and newer else 0
        rivals.append(best if newer and unit.is_copy(best) else None)
        own.append(max(0, gain))
        gains[entry.path] += max(0, gain)
    sure = [gain > 0 and gains[entry.path] >= GAIN for gain, (entry, _) in zip(own, entries, strict=True)]
    return [None if known else rival for known, rival in zip(sure, rivals, strict=True)]


def _method(
    entry: MethodLineage,
    unit: Scores,
    ranked: Ranked,
    rival: Version | None,
    versions: Sequence[Version],
    base: Base | None,
    cap: datetime,
) -> MethodLineage:
    """``entry`` filled in; the base is named where it is as good as any, or another one too thinly better."""
    if not any(unit.digest(version) for version in versions):
        return entry
    best = base.version if base and (rival or base.version in ranked.best) else ranked.best[0]
    match = unit.match(best)
    same = [version for version in versions if unit.digest(version) == unit.digest(best)]
    behind, days = _behind(unit, same[-1], versions)
    second = rival or ranked.runner_up
    second_score = unit.match(rival).score if rival else ranked.runner_up_score
    margin = (match.score - second_score) * (len(unit.keys) + match.theirs) / 2
    return replace(
        entry,
        upstream_exists=True,
        copied=unit.is_copy(best) or rival is not None,
        matched=match.matched,
        coverage=round(match.matched / max(1, match.theirs), 4),
        share=round(match.matched / max(1, len(unit.keys)), 4),
        score=round(match.score, 4),
        best=best,
        runner_up=second,
        runner_up_score=round(second_score, 4),
        confidence=confidence(margin, _span(ranked.best, versions, cap)),
        window=(same[0], same[-1]),
        behind=behind,
        behind_days=days,
    )


def _behind(unit: Scores, last: Version, versions: Sequence[Version]) -> tuple[int, int | None]:
    """How many new texts came after ``last``, and how many days before the newest version that was."""
    place = versions.index(last)
    known = {unit.digest(version) for version in versions[: place + 1]}
    newer = {unit.digest(version) for version in versions[place + 1 :]} - known
    if not newer:
        return 0, 0
    return len(newer), _days(last.date, versions[-1].date)


def _span(same: Sequence[Version], versions: Sequence[Version], cap: datetime) -> float:
    """The days from the last version before ``same`` to the first one after it."""
    first, last = versions.index(same[0]), versions.index(same[-1])
    after = versions[last + 1].date if last + 1 < len(versions) else cap
    days = _days(versions[max(0, first - 1)].date, after)
    return _HALF_DAYS if days is None else days


def _days(first: datetime | None, last: datetime | None) -> int | None:
    return (last - first).days if first and last else None


class Match(NamedTuple):
    """``score`` is the dice (0 to 1), ``matched`` the common statements, ``theirs`` upstream's number."""

    score: float
    matched: int
    theirs: int


NOTHING = Match(0.0, 0, 0)
COPIED_SHARE = 0.6
FEWEST_STATEMENTS = 6


def match(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Match:
    """What two units have in common."""
    return Match(*dice(ours, theirs), len(theirs))


def is_copy(found: Match, ours: int) -> bool:
    """Whether most of upstream's unit is in ours, or most of our statements (``ours``) in upstream's."""
    most = max(found.matched / max(1, found.theirs), found.matched / max(1, ours))
    return found.matched >= FEWEST_STATEMENTS and most >= COPIED_SHARE


class Ranked(NamedTuple):
    """The best score over some versions, the versions that reach it (oldest first), and the runner-up.

    The runner-up is the best of the versions that score lower; None when there is none.
    """

    score: float
    best: list[Version]
    runner_up_score: float
    runner_up: Version | None


class Scores:
    """The matches of one unit with the unit ``name`` of the history."""

    def __init__(self, history: History, name: str, keys: Keys) -> None:
        self.history, self.name, self.keys = history, name, keys
        self._counted = Counter(keys)
        self._bounds: dict[str, float] = {}
        self._matches: dict[str, Match] = {}

    def digest(self, version: Version) -> str | None:
        return self.history.digest(version, self.name)

    def bound(self, version: Version) -> float:
        """A number that the score is never above."""
        digest = self.digest(version)
        if digest is None:
            return 0.0
        if digest not in self._bounds:
            self._bounds[digest] = overlap(self._counted, Counter(self.history.keys(version, self.name)))
        return self._bounds[digest]

    def match(self, version: Version) -> Match:
        digest = self.digest(version)
        if digest is None:
            return NOTHING
        if digest not in self._matches:
            self._matches[digest] = match(self.keys, self.history.keys(version, self.name))
        return self._matches[digest]

    def is_copy(self, version: Version) -> bool:
        return is_copy(self.match(version), len(self.keys))


def rank(units: Sequence[Scores], versions: Sequence[Version]) -> Ranked:
    """The versions (oldest first) with the highest mean score over ``units``.

    Exact: texts are compared from the highest upper bound down, until no other can be
    among the first two.
    """
    groups: dict[tuple[str | None, ...], list[Version]] = {}
    for version in versions:
        groups.setdefault(tuple(unit.digest(version) for unit in units), []).append(version)
    open_ = sorted(
        ((sum(unit.bound(group[0]) for unit in units) / len(units), group) for group in groups.values()),
        key=lambda entry: -entry[0],
    )
    done: list[tuple[float, list[Version]]] = []
    lower: tuple[float, Version | None] = (-1.0, None)
    for bound, group in open_:
        if bound < lower[0]:
            break
        score = sum(unit.match(group[0]).score for unit in units) / len(units)
        done = sorted([*done, (score, group)], key=lambda entry: -entry[0])
        lower = next(((score, group[0]) for score, group in done if score < done[0][0]), lower)
    order = {version: number for number, version in enumerate(versions)}
    top = done[0][0]
    best = sorted((v for score, group in done if score == top for v in group), key=order.__getitem__)
    return Ranked(top, best, max(0.0, lower[0]), lower[1])
