"""How much one unit of ours has in common with upstream's unit, version by version.

Statements are matched over a common subsequence; each distinct upstream text is compared
once, and only when a cheap upper bound says that it can matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from npu_upgrade.code.sequences import dice, overlap
from npu_upgrade.lineage.history import History, Keys, Version


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
