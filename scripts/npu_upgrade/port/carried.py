"""Hunks of earlier upgrades that are still open: found again on the GPU side of today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from npu_upgrade.code.sequences import Change
from npu_upgrade.code.statements import END, Statement, split_statements
from npu_upgrade.port.hunks import Hunk
from npu_upgrade.port.npu_side import NpuSide
from npu_upgrade.port.sides import GpuSide, statements
from npu_upgrade.port.standing import is_ported
from npu_upgrade.port.unit_diff import UnitDiff


def carried(
    entries: Mapping[str, Mapping[str, Any]], present: Sequence[Hunk], npu: NpuSide, new: GpuSide
) -> dict[str, Hunk | None]:
    """The hunks of ledger entries that ``present`` does not list any more, by their ids.

    None for one that the GPU side does not have any more, or that a present hunk includes.
    """
    listed = {hunk.id for hunk in present}
    return {
        name: _found(entry, present, npu, new)
        for name, entry in entries.items()
        if name not in listed and entry["kind"] != "upstream"
    }


def _found(entry: Mapping[str, Any], present: Iterable[Hunk], npu: NpuSide, new: GpuSide) -> Hunk | None:
    runner = next((runner for runner in npu.runners if runner.kind == entry["runner"]), None)
    if runner is None:
        return None
    old, after = (tuple(s for s in split_statements(entry[side]) if s.key != END) for side in ("old", "new"))
    hunk = Hunk(entry["kind"], runner, entry["unit"], old, after, after=entry["after"])
    if hunk.kind != "change":
        # What a class lacks altogether is listed anew as long as it lacks it.
        return hunk if is_ported(hunk, npu) else None
    side = statements(new.unit(runner.kind, hunk.unit))
    place = _place(hunk, side)
    if place is None or any(_includes(other, hunk) for other in present):
        return None
    before = [*side[:place], *old, *side[place + len(after) :]]
    piece = Change(place, place + len(old), place, place + len(after))
    return replace(hunk, diff=UnitDiff(before, side, [piece]), pieces=(piece,))


def _place(hunk: Hunk, side: Sequence[Statement]) -> int | None:
    """Where the GPU unit has what the hunk brought, or had what the hunk took away."""
    keys, wanted = [s.key for s in side], [s.key for s in hunk.new]
    if wanted:
        ends = range(len(keys) - len(wanted) + 1)
        return next((n for n in ends if keys[n : n + len(wanted)] == wanted), None)
    if set(keys) & set(hunk.removed):
        return None  # it came back
    return keys.index(hunk.after) + 1 if hunk.after in keys else None


def _includes(other: Hunk, hunk: Hunk) -> bool:
    if (other.runner, other.unit) != (hunk.runner, hunk.unit):
        return False
    return hunk.added <= other.added and hunk.removed <= other.removed
