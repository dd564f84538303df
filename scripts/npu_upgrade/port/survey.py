"""One look at what the NPU runners lack of the GPU side: every hunk with its state and its rank."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from npu_upgrade.code.module import Unit
from npu_upgrade.code.sequences import Change
from npu_upgrade.code.statements import Statement
from npu_upgrade.lineage.downstream import Runner
from npu_upgrade.port.correspondence import Since
from npu_upgrade.port.driven import Upstream
from npu_upgrade.port.hunks import Hunk, unit_hunks
from npu_upgrade.port.needs import Ranked, closure
from npu_upgrade.port.npu_side import NpuSide, is_ported
from npu_upgrade.port.rank import rank
from npu_upgrade.port.sides import GpuSide, statements
from npu_upgrade.port.unit_diff import UnitDiff


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
    npu: NpuSide,
    since: Since,
    new: GpuSide,
    upstream: Upstream,
    kept: Mapping[str, Hunk | None],
    decided: Collection[str] = (),
    wanted: Callable[[Hunk], bool] | None = None,
    *,
    together: bool = False,
) -> Survey:
    """Gather, sort out and rank.

    ``kept`` are the hunks of earlier upgrades that the ledger holds; ``decided`` are the ids of those that
    are not to be taken. ``wanted`` and ``together`` are of :func:`rank`.
    """
    hunks = gather(npu, since.side, new, upstream)
    again = carried(kept, hunks, npu, new)
    hunks += [hunk for hunk in again.values() if hunk is not None]
    ported = [hunk for hunk in hunks if is_ported(hunk, npu)]
    done = {hunk.id for hunk in ported}
    lacking = [hunk for hunk in hunks if hunk.id not in done]
    ranked = rank(lacking, npu, upstream, since.before, new, wanted, together=together)
    ported += [entry.hunk for entry in ranked if entry.held]
    _lower_decided(ranked, decided)
    left = sorted((entry for entry in ranked if not entry.held), key=lambda entry: entry.tier)
    found = {name for name, hunk in again.items() if hunk is not None} & {entry.hunk.id for entry in left}
    return Survey(left, ported, found, [name for name, hunk in again.items() if hunk is None])


def _lower_decided(ranked: Sequence[Ranked], decided: Collection[str]) -> None:
    """What needs a hunk that is not to be ported is no more for the first tier."""
    needs = {entry.hunk.id: entry.needs for entry in ranked}
    for entry in ranked:
        for name in sorted(set(closure([entry.hunk.id], needs)) & set(decided) - {entry.hunk.id}):
            entry.lower(2, f"needs {name}, which is not to be taken")


def gather(npu: NpuSide, since: GpuSide, new: GpuSide, upstream: Upstream) -> list[Hunk]:
    """The hunks of all runners in the order of their files; those the NPU side has already too."""
    found: list[Hunk] = []
    for runner in npu.runners:
        found += _bases(runner, npu, new)
        own = npu.modules[runner.kind].units
        for name, unit in new.modules[runner.kind].units.items():
            old = since.unit(runner.kind, name)
            if name in own and npu.goes_on_to_gpu(runner, unit.name):
                continue
            if name in own and old:
                found += unit_hunks(runner, name, statements(old), statements(unit), upstream)
            elif name not in own and unit.owner == runner.class_name and _lacks(npu, runner, unit.name):
                found.append(Hunk("method", runner, name, (), tuple(statements(unit))))
    return found


def _lacks(npu: NpuSide, runner: Runner, method: str) -> bool:
    """Whether no NPU class provides a method of the GPU runner, and none inherits it."""
    if npu.inherits_gpu(runner):
        return False
    return npu.provider(runner, method) != "npu"


def _bases(runner: Runner, npu: NpuSide, new: GpuSide) -> Iterator[Hunk]:
    """Base classes of the GPU runner that the NPU runner does not derive from."""
    node = new.modules[runner.kind].class_def(runner.class_name)
    if node is None or npu.inherits_gpu(runner):
        return
    names = {cls.name for cls in npu.ancestors(runner)}
    for base in node.bases:
        name = ast.unparse(base)
        if name not in names and name.rpartition(".")[2] not in names:
            yield Hunk("base", runner, runner.class_name, (), (Statement(name, 0, (name,)),))


def carried(
    kept: Mapping[str, Hunk | None], present: Sequence[Hunk], npu: NpuSide, new: GpuSide
) -> dict[str, Hunk | None]:
    """The ``kept`` hunks that ``present`` does not list any more, by their ids.

    None for one that the GPU side does not have any more, or that a present hunk includes. What changes a
    method that the NPU side does not have, as on another branch, waits in the ledger.
    """
    listed = {hunk.id for hunk in present}
    return {
        name: hunk and _found(hunk, present, npu, new)
        for name, hunk in kept.items()
        if name not in listed and not (hunk and hunk.kind == "change" and hunk.unit not in _units(hunk, npu))
    }


def _units(hunk: Hunk, npu: NpuSide) -> Mapping[str, Unit]:
    return npu.modules[hunk.runner.kind].units


def _found(hunk: Hunk, present: Iterable[Hunk], npu: NpuSide, new: GpuSide) -> Hunk | None:
    if hunk.kind != "change":
        # What a class lacks altogether is listed anew as long as it lacks it.
        return hunk if is_ported(hunk, npu) else None
    side = statements(new.unit(hunk.runner.kind, hunk.unit))
    place = _place(hunk, side)
    if place is None or any(_includes(other, hunk) for other in present):
        return None
    before = [*side[:place], *hunk.old, *side[place + len(hunk.new) :]]
    piece = Change(place, place + len(hunk.old), place, place + len(hunk.new))
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
