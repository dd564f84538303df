"""Runs checks over a world for a command: what was found before is kept, and a check that breaks
takes nothing but itself with it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from npu_upgrade.audit.cache import KeptFindings
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import in_order, no_collector, run_checks
from npu_upgrade.audit.world import World
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say


@dataclass
class Outcome:
    """``findings`` in the order of the files; ``faults``: check -> how it broke (a defect of ours)."""

    findings: list[Finding] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Take in what other checks found on the same triple."""
        self.findings = in_order([*self.findings, *other.findings])
        self.faults |= other.faults

    def without(self, checks: Sequence[str]) -> list[Finding]:
        """The findings of all but some checks."""
        return [finding for finding in self.findings if finding.check not in checks]


def look(world: World, names: Sequence[str]) -> Outcome:
    """The findings of the named checks on one triple."""
    kept = KeptFindings(world)
    outcome = Outcome()
    with no_collector(last=True):
        for name in names:
            found = kept.get(name)
            if found is None:
                found = _run(world, name, outcome)
                if name not in outcome.faults:
                    kept.put(name, found)
            outcome.findings += found
    outcome.findings = in_order(outcome.findings)
    return outcome


def _run(world: World, name: str, outcome: Outcome) -> list[Finding]:
    try:
        return run_checks(world, [name])
    except UpgradeError:
        raise
    except Exception as error:
        # The other checks' findings are worth having, and a broken one must never read as FAIL or PASS.
        outcome.faults[name] = f"{type(error).__name__}: {error}"
        say(f"check {name} broke; this is a defect of the audit\n{traceback.format_exc()}")
        return []
