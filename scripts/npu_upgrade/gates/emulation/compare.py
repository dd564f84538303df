"""The new pair's outcomes against those of the matched old pair, and both as a table.

A failure is FAIL, unless the same run of the old pair ended with the same failure at the same place: that one
is LAG, and no reason to fail the upgrade. One that fails otherwise with graphs is also run without them, and
may show that failure there. An old pair that fails otherwise, or did not come as far, excuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npu_upgrade.gates.emulation import costs
from npu_upgrade.gates.emulation.changed import Coverage, ranges
from npu_upgrade.gates.emulation.kept import passed_in
from npu_upgrade.gates.emulation.known_defects import met_before
from npu_upgrade.gates.emulation.outcome import (
    ABSENT,
    FAIL,
    INCONCLUSIVE,
    NOT_REACHED,
    PASS,
    Outcome,
    in_tree,
)
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Verdict

LAG = "LAG"
_ANOTHER_END = re.compile(r"^[^:]+: (request \d+: payload '\w+' has shape )")


@dataclass(frozen=True)
class Compared:
    """One (tier, scenario) of the new pair, with that of the old pair where it was asked for.

    ``reused`` tells that it ran before, with the same content.
    """

    new: Outcome
    old: Outcome | None
    reused: bool = False

    @property
    def state(self) -> str:
        """PASS, FAIL, LAG, INCONCLUSIVE, ABSENT or NOT REACHED."""
        was_so = self.new.state == FAIL and self.old is not None and same(self.old, self.new)
        return LAG if was_so else self.new.state

    @property
    def why(self) -> str:
        if self.state == FAIL and self.old and self.old.state not in (PASS, ABSENT):
            otherwise = "fails earlier or otherwise" if self.old.state == FAIL else f"is {self.old.state}"
            return f"{self.new.why} (the old pair does not show it: it {otherwise}: {self.old.why})"
        if self.state == INCONCLUSIVE and self.old:
            return f"{self.new.why} (the old pair is {self.old.state}{self.old.why and f': {self.old.why}'})"
        if self.state == LAG and self.old and self.old.name != self.new.name:
            return f"{self.new.why} (the old pair shows it in {self.old.name})"
        return self.new.why

    @property
    def known(self) -> str:
        """What a failure like this one came of in releases; empty where nobody knows, or nothing failed."""
        if self.state not in (FAIL, LAG, INCONCLUSIVE):
            return ""
        return met_before(self.new.tier, self.new.scenario, self.new.why)

    @property
    def passed_in(self) -> str:
        """The releases that pass a run which failed: their own runners may show what it takes."""
        return passed_in(self.new.tier, self.new.scenario) if self.state in (FAIL, LAG) else ""


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two runs of one kind failed with the same text in the same function, numbers aside; an answer
    that comes to another end than the one before it may do so in either's every group of requests."""
    return _root(one) == _root(other)


def _root(one: Outcome) -> tuple[str, ...]:
    why = _ANOTHER_END.sub(r"\1", one.why)
    return (one.state, *(re.sub(r"0x[0-9a-f]+|\d+", "#", in_tree(text)) for text in (why, one.where)))


def by_costs(old: Outcome, new: Outcome, package: str) -> Outcome:
    """The new outcome: FAIL where it passed but its decode steps cost more, by the doing of ``package``."""
    why = costs.findings(old.costs, new.costs, package) if old.state == new.state == PASS else []
    return replace(new, state=FAIL, why="; ".join(why)) if why else new


def not_shown(all_compared: Sequence[Compared]) -> list[str]:
    """The runs that showed nothing, or a failure that was there before, each with state and reason."""
    silent = (INCONCLUSIVE, NOT_REACHED, LAG)
    shown = ((one, one.known) for one in all_compared if one.state in silent)
    return [f"{one.new.name}: {one.state}, {one.why}{known and f'; {known}'}" for one, known in shown]


def verdict(all_compared: Sequence[Compared]) -> Verdict:
    """FAIL for a new failure; INCONCLUSIVE when something could not be judged; else PASS."""
    states = {one.state for one in all_compared}
    if FAIL in states:
        return Verdict.FAIL
    if states & {INCONCLUSIVE, NOT_REACHED} or not states & {PASS, LAG}:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


def tiers(all_compared: Sequence[Compared]) -> Mapping[str, str]:
    """Tier -> the worst state in it; ABSENT only where nothing of it is there."""
    order = [ABSENT, PASS, LAG, NOT_REACHED, INCONCLUSIVE, FAIL]
    worst: dict[str, str] = {}
    for one in all_compared:
        tier = one.new.tier
        worst[tier] = max(one.state, worst.get(tier, one.state), key=order.index)
    return worst


_WIDEST = 100


def as_text(compared: Sequence[Compared], covered: Sequence[Coverage]) -> str:
    """The outcomes, why each that did not pass did not, and the changed lines nothing executed."""
    rows = [[one.new.name, one.state, one.old.state if one.old else "-", _seconds(one)] for one in compared]
    parts = [table(["run", "new pair", "old pair", "s"], rows)]
    parts += [_explained(one) for one in compared if one.why]
    parts += [_uncovered(one) for one in covered if one.unexecuted]
    return "\n\n".join(part for part in parts if part)


def _seconds(one: Compared) -> str:
    if one.reused:
        return "before"
    return f"{one.new.seconds:.0f}" if one.new.seconds else "-"


def _explained(one: Compared) -> str:
    lines = [f"{one.state} {one.new.name}: {one.why}"]
    if one.new.where:
        lines.append(f"  at {one.new.where}")
    if one.new.log:
        lines.append(f"  log {one.new.log}")
    return "\n".join(lines)


def _uncovered(one: Coverage) -> str:
    shown = ", ".join(ranges(one.unexecuted))
    if len(shown) > _WIDEST:
        shown = shown[:_WIDEST].rpartition(",")[0] + ", ..."
    head = f"hardware or review only: {one.path}, {len(one.unexecuted)} of {one.changed} changed statements"
    return f"{head}\n  lines {shown}"
