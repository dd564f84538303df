"""Which runs a change needs, the cheapest first, and which others it can touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation import kept
from npu_upgrade.gates.emulation.catalogue import TIERS, chosen
from npu_upgrade.gates.emulation.changed import changed_functions, watched
from npu_upgrade.gates.emulation.dry_run import Wanted
from npu_upgrade.gates.emulation.environment import packages_of
from npu_upgrade.gates.emulation.outcome import FAIL

_SECONDS = {"eager": 12.0, "graph": 20.0, "serve": 70.0, "pipelines": 120.0}  # of a run that was never seen


@dataclass(frozen=True)
class Choice:
    """``needed``: the core and, for each changed function, the cheapest run that executes it.

    ``pending``: what else the change can touch. ``unknown``: changed functions of which no run is known.
    """

    needed: Wanted
    pending: Wanted
    changed: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


def choose(new: Triple, old: Triple | None, paths: Iterable[str], tiers: Sequence[str]) -> Choice:
    """The runs for what changed in the downstream's own files: its runners and ``paths``."""
    omni = new.omni is not None
    everything = chosen(["all"], tiers, omni=omni)
    core = chosen(["core"], tiers, omni=omni)
    executed, seconds = kept.executed_by()
    changed = _changed(new, old, paths) if old else None
    return chosen_for(core, everything, changed, executed, seconds, _failed_last(everything, new))


def chosen_for(
    core: Wanted,
    everything: Wanted,
    changed: set[str] | None,
    executed: Mapping[str, set[str]],
    seconds: Mapping[str, float],
    failed: Iterable[str],
) -> Choice:
    """The choice, from what is known: function -> runs that execute it, run -> seconds.

    ``changed`` is None where nothing tells what changed: anything may be touched. ``failed`` are the runs
    that failed last; they start first.
    """
    failed = set(failed)

    def cost(run: tuple[str, Any]) -> tuple[bool, float, int]:
        return _name(run) not in failed, seconds.get(_name(run)) or _SECONDS[run[0]], TIERS.index(run[0])

    needed, touched = list(core), set()
    unknown = set()
    for function in sorted(changed or ()):
        fitting = [run for run in everything if _name(run) in executed.get(function, ())]
        if function not in executed:
            unknown.add(function)
            fitting = _by_words(function, everything)
        touched |= {_name(run) for run in fitting}
        if fitting and not any(run in needed for run in fitting):
            needed.append(min(fitting, key=cost))
    others = [run for run in everything if run not in needed]
    pending = [run for run in others if changed is None or _name(run) in touched]
    return Choice(
        _two_lanes(sorted(needed, key=cost)),
        sorted(pending, key=cost),
        frozenset(changed or ()),
        frozenset(unknown),
    )


def _two_lanes(runs: list[tuple[str, Any]]) -> Wanted:
    """The longest second: it plays beside all the others."""
    last = [run for run in runs[1:] if run[0] == "serve"][:1]
    return [*runs[:1], *last, *(run for run in runs[1:] if run not in last)]


def _by_words(function: str, runs: Wanted) -> list[tuple[str, Any]]:
    """The runs that are about what the name of a function says."""
    return [run for run in runs if any(word in function.lower() for word in run[1].words)]


def _name(run: tuple[str, Any]) -> str:
    return f"{run[0]} {run[1].name}"


def _changed(new: Triple, old: Triple, paths: Iterable[str]) -> set[str]:
    top = "vllm_omni" if new.omni else "vllm_ascend"
    tree, before = new.trees()[top], old.trees().get(top)
    found: set[str] = set()
    for path in {*watched(new), *paths}:
        if path.startswith(f"{top}/") and path.endswith(".py") and tree.exists(path):
            text = before.read(path) if before and before.exists(path) else ""
            if text != tree.read(path):
                found |= changed_functions(text, tree.read(path))
    return found


def _failed_last(runs: Wanted, new: Triple) -> list[str]:
    """The runs that failed when they ran last on this vllm-ascend."""
    _, here = packages_of(new.omni, new.ascend, new.vllm)
    ascend = here.packages["vllm_ascend"].name
    found = []
    for tier, one in runs:
        known = (ran for ran in kept.all_kept(tier, one.name) if ran.packages["vllm_ascend"] == ascend)
        newest = next(known, None)
        found += [_name((tier, one))] if newest and newest.outcome.state == FAIL else []
    return found
