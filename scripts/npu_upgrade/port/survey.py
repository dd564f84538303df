"""One look at what the NPU runners lack of the GPU side: every hunk with its state and its rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.port.carried import carried
from npu_upgrade.port.correspondence import Since
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.gather import gather
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.needs import closure
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.rank import Ranked, rank
from npu_upgrade.port.sides import GpuSide
from npu_upgrade.port.standing import is_ported


@dataclass
class Survey:
    """What was found: ``left`` are the hunks that the NPU side lacks, best first.

    ``ported`` are those it holds, ``carried`` the ids of those an earlier upgrade left, and
    ``gone`` the ids of ledger entries that the GPU side itself does not have any more.
    """

    left: list[Ranked]
    ported: list[Hunk] = field(default_factory=list)
    carried: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)


def survey(
    npu: NpuSide, since: Since, new: GpuSide, upstream: Upstream, entries: Mapping[str, Mapping[str, Any]]
) -> Survey:
    """Gather, sort out and rank; ``entries`` are those of the ledger that are open or waived."""
    hunks = gather(npu, since.side, new, upstream)
    again = carried(entries, hunks, npu, new)
    hunks += [hunk for hunk in again.values() if hunk is not None]
    ported = [hunk for hunk in hunks if is_ported(hunk, npu)]
    done = {hunk.id for hunk in ported}
    ranked = rank([hunk for hunk in hunks if hunk.id not in done], npu, upstream, since.before)
    ported += [entry.hunk for entry in ranked if entry.held]
    _lower_waived(ranked, {name for name, entry in entries.items() if entry["state"] == "waived"})
    left = sorted((entry for entry in ranked if not entry.held), key=lambda entry: entry.tier)
    found = {name for name, hunk in again.items() if hunk is not None} & {entry.hunk.id for entry in left}
    return Survey(left, ported, found, [name for name, hunk in again.items() if hunk is None])


def _lower_waived(ranked: Sequence[Ranked], waived: set[str]) -> None:
    """What needs a hunk that is not to be ported is no more for the first tier."""
    needs = {entry.hunk.id: entry.needs for entry in ranked}
    for entry in ranked:
        for name in sorted(waived.intersection(closure([entry.hunk.id], needs)) - {entry.hunk.id}):
            entry.lower(2, f"needs {name}, which was waived")
