"""Runs the audit's checks over the cases: each world once, cases of one triple together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from bench.incidents import Case, Trees
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import check_names, run_checks
from npu_upgrade.audit.world import World
from npu_upgrade.progress import say


@dataclass(frozen=True)
class Result:
    """A case with what the audit said: ``found`` are the findings that are the expected one
    (for a negative case: those that should not be there)."""

    case: Case
    found: tuple[Finding, ...]
    new: int

    @property
    def passed(self) -> bool:
        """Whether the expected finding is there, or the negative case stayed silent."""
        return not self.found if self.case.group == "negative" else bool(self.found)


@dataclass
class Bench:
    """Worlds and findings of released triples, kept between the cases that share them."""

    trees: Trees = field(default_factory=Trees)
    worlds: dict[str, World] = field(default_factory=dict)
    released: dict[str, list[Finding]] = field(default_factory=dict)

    def world(self, specs: dict[str, str]) -> World:
        key = str(sorted(specs.items()))
        if key not in self.worlds:
            self.worlds[key] = World(self.trees.triple(specs))
        return self.worlds[key]

    def findings(self, specs: dict[str, str], names: Sequence[str]) -> list[Finding]:
        """The findings of the named checks over a released triple."""
        found: list[Finding] = []
        for name in names:
            key = f"{name} {sorted(specs.items())}"
            if key not in self.released:
                self.released[key] = run_checks(self.world(specs), [name])
            found += self.released[key]
        return found

    def run(self, case: Case, names: Sequence[str]) -> list[Finding]:
        """The findings of a case that its baseline does not have."""
        if case.old == case.specs and not case.edits:
            return self.findings(case.specs, names)
        old = self.world(case.old) if case.old else None
        known = {finding.key for finding in self.findings(case.old, names)} if case.old else set()
        world = World(self.trees.triple(case.specs, case.edits), old)
        return [finding for finding in run_checks(world, names) if finding.key not in known]

    def result(self, case: Case) -> Result:
        """Judge one case by the checks that its recipe names (a negative one by all)."""
        wanted = case.silent if case.group == "negative" else case.expect
        if wanted is None and case.group != "negative":
            return Result(case, (), 0)
        there = check_names()
        names = [name for name in (wanted.checks if wanted else there) if name in there]
        new = self.run(case, names)
        found = [finding for finding in new if wanted is None or wanted.fits(finding)]
        return Result(case, tuple(found), len(new))


def run_cases(cases: Sequence[Case], jobs: int | None = None) -> list[Result]:
    """All results in the order of the cases; triples are spread over ``jobs`` processes."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(str(sorted((case.old or case.specs).items())), []).append(case)
    ordered = sorted(groups.values(), key=len, reverse=True)
    jobs = min(jobs or os.cpu_count() or 1, len(ordered))
    if jobs <= 1:
        done = [_group(group) for group in ordered]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            done = list(pool.map(_group, ordered))
    by_id = {result.case.id: result for results in done for result in results}
    return [by_id[case.id] for case in cases]


def _group(cases: list[Case]) -> list[Result]:
    bench = Bench()
    results = []
    for case in cases:
        results.append(bench.result(case))
        say(f"{case.id}: {'as expected' if results[-1].passed else 'not as expected'}")
    return results
