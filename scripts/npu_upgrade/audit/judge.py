"""Which findings count: new ones against the matched old pair, less what was waived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.waivers import Waivers

NEW, LAG, NOTE, WAIVED = "NEW", "LAG", "NOTE", "WAIVED"
STATES = (NEW, LAG, NOTE, WAIVED)


@dataclass(frozen=True)
class Judged:
    """A finding with its state: ``NEW`` fails the audit, ``LAG`` the old pair has too, ``NOTE`` is
    advice that breaks nothing, ``WAIVED`` a person accepted.

    ``reason`` is the waiver's, or why it does not count any more.
    """

    finding: Finding
    state: str
    reason: str = ""


def judge(
    found: Iterable[Finding], old: Sequence[Finding] | None, waivers: Waivers, version: str | None
) -> list[Judged]:
    """Give every finding its state. ``old`` are the old pair's, None when there is no such pair;
    ``version`` is the audited version, by which waivers expire.
    """
    known = {finding.key for finding in old or ()}
    return [_one(finding, known, waivers, version) for finding in found]


def _one(finding: Finding, known: set[str], waivers: Waivers, version: str | None) -> Judged:
    waiver = waivers.of(finding.key)
    if waiver and not waiver.expired(version):
        return Judged(finding, WAIVED, f"{waiver.reason} (until {waiver.until})")
    reason = f"its waiver ended with {waiver.until}: {waiver.reason}" if waiver else ""
    if not finding.incident:
        return Judged(finding, NOTE, reason)
    return Judged(finding, LAG if finding.key in known else NEW, reason)
