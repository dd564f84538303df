"""The new pair's outcomes against those of the matched old pair, and both as a table.

A failure the old pair does not have is new: FAIL. One that both have, with the same text, is LAG when it is
the pair's own, and no reason to fail the upgrade. Where the old pair fails in another way, the emulator may
be at fault: INCONCLUSIVE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_upgrade.gates.emulation.changed import Coverage, ranges
from npu_upgrade.gates.emulation.outcome import ABSENT, FAIL, INCONCLUSIVE, NOT_REACHED, PASS, Outcome
from npu_upgrade.ground.tables import table
from npu_upgrade.ground.verdict import Verdict

LAG = "LAG"


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
        if self.new.state != FAIL or self.old is None or self.old.state in (PASS, ABSENT):
            return self.new.state
        return LAG if self.old.state == FAIL and same(self.old, self.new) else INCONCLUSIVE

    @property
    def why(self) -> str:
        if self.state == INCONCLUSIVE and self.new.state == FAIL and self.old:
            return f"{self.new.why} (the matched old pair does not pass either: {self.old.why})"
        return self.new.why


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two failures say the same, numbers and places aside."""
    return _plain(one.why) == _plain(other.why)


def _plain(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)


def verdict(all_compared: Sequence[Compared], *, has_old: bool) -> Verdict:
    """FAIL for a new failure; INCONCLUSIVE when something could not be judged; else PASS.

    Without an old pair a failure cannot be told from a fault of the emulator: INCONCLUSIVE.
    """
    states = {one.state for one in all_compared}
    if FAIL in states:
        return Verdict.FAIL if has_old else Verdict.INCONCLUSIVE
    if states & {INCONCLUSIVE, NOT_REACHED} or not states & {PASS, LAG}:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


def tiers(all_compared: Sequence[Compared]) -> Mapping[str, str]:
    """Tier -> the worst state in it."""
    order = [PASS, ABSENT, LAG, NOT_REACHED, INCONCLUSIVE, FAIL]
    worst: dict[str, str] = {}
    for one in all_compared:
        known = worst.get(one.new.tier)
        worst[one.new.tier] = max(one.state, known or PASS, key=order.index)
    return worst


_WIDEST = 100


def as_text(compared: Sequence[Compared], covered: Sequence[Coverage]) -> str:
    """The outcomes, why each that did not pass did not, and the changed lines nothing executed."""
    rows = [[one.new.tier, _scenario(one), one.state, _old(one), _seconds(one)] for one in compared]
    parts = [table(["tier", "scenario", "new pair", "old pair", "s"], rows)]
    parts += [_explained(one) for one in compared if one.why]
    parts += [_uncovered(one) for one in covered if one.unexecuted]
    return "\n\n".join(part for part in parts if part)


def _scenario(one: Compared) -> str:
    return "" if one.new.tier == "import" else one.new.scenario


def _old(one: Compared) -> str:
    return one.old.state if one.old else "-"


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
