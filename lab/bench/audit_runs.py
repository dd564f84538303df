"""Runs the audit's checks over the cases: each world once, cases of one triple together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from bench.incidents import COUNTED, Case, Trees
from bench.shared import Run
from npu_upgrade.audit.finding import Finding
from npu_upgrade.audit.run import check_names, run_checks
from npu_upgrade.audit.world import World
from npu_upgrade.ground.progress import say

T = TypeVar("T")
_BATCH = 8  # cases of one process: fewer read the same triple more often, more leave cores idle


@dataclass(frozen=True)
class Result:
    """A case with what the audit said: ``found`` are the findings that are the expected one
    (for a negative case: those that should not be there)."""

    case: Case
    found: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether the expected finding is there, or the negative case stayed silent."""
        return not self.found if self.case.group == "negative" else bool(self.found)

    @property
    def state(self) -> str:
        """The outcome in words, in capitals what counts against the audit."""
        if self.case.group == "negative":
            return "silent" if self.passed else "NOT SILENT"
        if self.case.expect is None:
            return "for the dry run"
        if not self.passed:
            return "MISSED" if self.case.kind in COUNTED else "not found (not counted)"
        return "new" if self.case.old else "standing"


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
        wanted = case.wanted
        found = [item for item in self.run(case, self.names(case)) if wanted is None or wanted.fits(item)]
        return Result(case, tuple(found))

    @staticmethod
    def names(case: Case) -> list[str]:
        """The checks that a case is judged by."""
        there = check_names()
        if case.wanted is None:
            return there if case.group == "negative" else []
        return [name for name in case.wanted.checks if name in there]


def run_cases(cases: Sequence[Case], run: Run, jobs: int | None = None) -> list[Result]:
    """All results in the order of the cases, by ``jobs`` processes (default: one for each core)."""
    judged = {case.id: msgspec.to_builtins(case) for case in cases}
    found = {case.id: run.found(case.id, judged[case.id], tuple[Finding, ...]) for case in cases}
    left = _batches([case for case in cases if found[case.id] is None])
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(_batch, batch) for batch in left]):
            for result in done.result():
                found[result.case.id] = result.found
                run.store(result.case.id, judged[result.case.id], result.found)
    return [Result(case, found[case.id] or ()) for case in cases]


def _batches(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases of one triple together, a few at a time, the long batches first."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(str(sorted((case.old or case.specs).items())), []).append(case)
    batches = [group[i : i + _BATCH] for group in groups.values() for i in range(0, len(group), _BATCH)]
    return sorted(batches, key=len, reverse=True)


def _batch(cases: list[Case]) -> list[Result]:
    """The results of cases of one triple, which is read and judged once."""
    bench = Bench()
    results = []
    for case in cases:
        if case.old:
            bench.findings(case.old, bench.names(case))
        results.append(forked(bench, case) if case.edits else bench.result(case))
        say(f"{case.id}: {results[-1].state}")
    return results


def forked(bench: Bench, case: Case) -> Result:
    """The result of a case from a process that starts with all that was read."""
    return in_child(lambda: bench.result(case), case.id)


def in_child(work: Callable[[], T], name: str) -> T:
    """What ``work`` returns, from a process that begins with all that was read."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        raise SystemExit(f"the audit of case {name} failed; see above") from None
    finally:
        process.join()
