"""Blind sets: defects of the whole side that somebody wrote who had not read the checks.

A set is one file of recipes, ``lab/recipes/blind-N.yaml``, committed before anything was run on it. Each is
audited as the command does it, beside the old pair that the command takes by itself, and what the released
triple says already does not count. ``first`` in a recipe is what the first run said; the goals are held
against that, for rules that came after it were written with the set in sight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from bench.audit_runs import in_child
from bench.incidents import FOLDER, Case, Trees, read_recipe
from bench.shared import Run
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import run_checks
from npu_upgrade.audit.triples import old_triple
from npu_upgrade.audit.world import Triple, World
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

# Of 24 defects of a set: new beside the old pair, and among these by the true cause.
GOALS = {"new": 20, "cause": 18}
CAUSE, NEW, LAG, MISSED = "cause", "new", "lag", "missed"
SILENT, TOLD = "silent", "told"


@dataclass(frozen=True)
class Blind:
    """A case with what the audit says of it now: ``state`` and the findings that are new."""

    case: Case
    state: str
    found: tuple[Finding, ...]


@dataclass
class Sides:
    """Released triples and what the audit says of them, kept between the cases."""

    trees: Trees = field(default_factory=Trees)
    worlds: dict[str, World] = field(default_factory=dict)
    told: dict[str, list[Finding]] = field(default_factory=dict)

    def judge(self, case: Case) -> Blind:
        """One case, beside the old pair that the command would take."""
        released = self.trees.triple(case.specs)
        there = self._keys(released, old_triple(released))
        triple = self.trees.triple(case.specs, case.edits)
        old = old_triple(triple)
        if old and old.omni is not triple.omni:
            self._keys(old)
        before, found = in_child(lambda: self._beside(triple, old), case.id)
        more = [item for item in found if item.incident and item.key not in there]
        new = tuple(item for item in more if item.key not in before)
        return Blind(case, state_of(case, new, lag=bool(more)), new or tuple(more))

    def _beside(self, triple: Triple, old: Triple | None) -> tuple[set[str], list[Finding]]:
        before = self._keys(old) if old else set()
        return before, run_checks(World(triple, self._world(old, None) if old else None))

    def _keys(self, triple: Triple, old: Triple | None = None) -> set[str]:
        """What the audit says of a released triple beside an old one."""
        world = self._world(triple, old)
        name = _name(triple, old)
        if name not in self.told:
            self.told[name] = run_checks(world)
        return {item.key for item in self.told[name]}

    def _world(self, triple: Triple, old: Triple | None) -> World:
        name = _name(triple, old)
        if name not in self.worlds:
            self.worlds[name] = World(triple, self._world(old, None) if old else None)
        return self.worlds[name]


def _name(triple: Triple, old: Triple | None) -> str:
    return " ".join(tree.spec for one in (triple, old) if one for tree in one.trees().values())


def state_of(case: Case, new: Sequence[Finding], *, lag: bool) -> str:
    """What one case came to: ``new`` findings beside the old pair, or only such as that has too (``lag``)."""
    if case.group == "negative":
        return TOLD if new else SILENT
    assert case.expect
    if any(map(case.expect.fits, new)):
        return CAUSE
    return NEW if new else LAG if lag else MISSED


def blind_sets() -> list[str]:
    """The names of all sets."""
    return sorted(path.stem for path in FOLDER.glob("blind-*.yaml"))


def first_run(name: str) -> tuple[dict[str, str], list[str]]:
    """The figures of a set's first run as its recipes have them, and the goals that this missed."""
    firsts = [case.first for case in _cases(name) if case.first]
    return ({f"{name}-first": _figures(firsts)}, _short(name, firsts)) if firsts else ({}, [])


def run_set(name: str, run: Run) -> tuple[str, str]:
    """A table of a set's cases, each as at the first run and now, and the figures now."""
    sides = Sides()
    results = []
    for case in _cases(name):
        content = msgspec.to_builtins(case)
        state, found = run.result(case.id, content, tuple[str, tuple[Finding, ...]], _judged, sides, case)
        say(f"{case.id}: {state}")
        results.append(Blind(case, state, found))
    rows = [(r.case.id, r.case.first or "-", r.state, _words(r.found)) for r in results]
    return table(("case", "first run", "now", "findings"), rows), _figures([r.state for r in results])


def _cases(name: str) -> list[Case]:
    return read_recipe(FOLDER / f"{name}.yaml", list[Case])


def _judged(sides: Sides, case: Case) -> tuple[str, tuple[Finding, ...]]:
    result = sides.judge(case)
    return result.state, result.found


def _figures(states: Sequence[str]) -> str:
    negatives = [state for state in states if state in (SILENT, TOLD)]
    new = sum(state in (CAUSE, NEW) for state in states)
    silent = f"{negatives.count(SILENT)}/{len(negatives)}-silent"
    return f"{new}/{len(states) - len(negatives)}-new,{states.count(CAUSE)}-cause,{silent}"


def _short(name: str, states: Sequence[str]) -> list[str]:
    """The goals that a first run missed, for as many defects as the set has."""
    share = sum(state not in (SILENT, TOLD) for state in states) / 24
    counts = {NEW: sum(state in (CAUSE, NEW) for state in states), CAUSE: states.count(CAUSE)}
    goals = {kind: goal * share for kind, goal in GOALS.items()}
    missed = [f"{name}: {counts[k]} {k}, goal {g:g}" for k, g in goals.items() if counts[k] < g]
    return missed + [f"{name}: {states.count(TOLD)} negatives not silent"] * (TOLD in states)


def _words(found: Sequence[Finding]) -> str:
    items = [f"{item.check} {item.owner} {item.subject}" for item in found]
    return "; ".join(items[:2]) + (f" (+{len(items) - 2})" if len(items) > 2 else "") if items else "-"
