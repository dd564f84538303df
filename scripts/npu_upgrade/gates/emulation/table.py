"""The result of an emulated run as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from npu_upgrade.gates.emulation.changed import Coverage, ranges
from npu_upgrade.gates.emulation.compare import Compared
from npu_upgrade.ground.tables import table

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
