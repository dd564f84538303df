"""How a port is shown: the list for people, and each hunk for agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from npu_upgrade.ground.tables import table
from npu_upgrade.lineage.items import Item
from npu_upgrade.port.apply import Applied
from npu_upgrade.port.needs import Ranked

_MOST = 20
_TIERS = {1: "first tier: fits", 2: "second tier: look first", 3: "third tier: does not fit as it is"}


def hunk_data(entry: Ranked, note: str, carried: bool) -> dict[str, Any]:
    """A hunk as JSON; what does not fit as it is has its text in the ledger alone."""
    hunk = entry.hunk
    return {
        "id": hunk.id,
        "tier": entry.tier,
        "kind": hunk.kind,
        "path": hunk.runner.path,
        "group": hunk.group,
        "unit": hunk.unit,
        "lines": hunk.added.total() + hunk.removed.total(),
        "followed": round(entry.followed, 2),
        "needs": entry.needs.hunks,
        "unresolved": entry.needs.unresolved,
        "reasons": entry.reasons,
        "carried": carried,
        "callers": entry.callers,
        "note": note,
        "text": hunk.text,
    }


def brief_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """What is decided on first: the hunks of the first tier by method, and what was refused."""
    first: dict[str, list[str]] = {}
    for one in data["hunks"]:
        if one["tier"] == 1:
            first.setdefault(one["group"], []).append(f"{one['id']} ({one['lines']} lines)")
    rows = [f"{group}: {', '.join(ids)}" for group, ids in first.items()]
    shown = {"taken": _grouped(data["ported"]), "imports": data["imports"], "first_tier": rows[:_MOST]}
    shown["along"] = [
        f"{one['group']} ({one['id']}), needed by {', '.join(one['needed_by'])}: {'; '.join(one['reasons'])}"
        for one in data["along"]
    ]
    shown["refused"] = [f"{one['id']}: {one['reason']}" for one in data["refused"]]
    shown["by_hand"] = data["by_hand"]
    shown["more"] = sum(map(len, list(first.values())[_MOST:]))
    return {name: value for name, value in shown.items() if value}


def _grouped(taken: Mapping[str, str]) -> list[str]:
    """The methods that hunks were taken into, each with their number where it is more than one."""
    groups = Counter(taken.values())
    return [f"{name} ({number})" if number > 1 else name for name, number in groups.items()]


def survey_text(left: Sequence[Ranked], items: Sequence[Item], done: Applied) -> str:
    """A table per tier, the texts of the first one, and what was taken or refused."""
    parts = [f"taken: {name}" for name in done.taken]
    parts += [f"refused: {name}: {reason}" for name, reason in done.refused.items()]
    parts += [f"import: {line}" for line in done.imports]
    parts += [f"by hand: {what}" for what in done.by_hand]
    for tier, title in _TIERS.items():
        entries = [entry for entry in left if entry.tier == tier]
        if entries:
            parts += ["", f"{title} ({len(entries)})", table(_HEAD, map(_row, entries))]
    for entry in left:
        if entry.tier == 1:
            parts += ["", f"{entry.hunk.id}  {entry.hunk.group}", entry.hunk.text]
    if items:
        parts += ["", "overridden without a copy, and changed in vllm-ascend:"]
        parts += [f"  {item.id}  {item.title}" for item in items]
    return "\n".join(parts).strip("\n")


_HEAD = ("hunk", "kind", "method", "lines", "needs", "why not higher")


def _row(entry: Ranked) -> tuple[str, ...]:
    hunk = entry.hunk
    lines = f"+{hunk.added.total()} -{hunk.removed.total()}"
    return (
        hunk.id,
        hunk.kind,
        hunk.group,
        lines,
        " ".join(entry.needs.hunks),
        "; ".join(entry.reasons)[:100],
    )
