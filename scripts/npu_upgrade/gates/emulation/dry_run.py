"""One triple through the dry run: what is kept, else its environment, its plan, its outcomes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from npu_upgrade.audit.world import Triple
from npu_upgrade.code.definitions import module_of
from npu_upgrade.gates.emulation import kept
from npu_upgrade.gates.emulation.catalogue import devices
from npu_upgrade.gates.emulation.changed import executed_lines, imported, side_files, watched
from npu_upgrade.gates.emulation.environment import Environment, packages_of, prepare
from npu_upgrade.gates.emulation.kept import Ran, ReleasedPair
from npu_upgrade.gates.emulation.outcome import (
    ABSENT,
    FAIL,
    INCONCLUSIVE,
    NOT_REACHED,
    PASS,
    Outcome,
    dependencies,
    read_outcome,
)
from npu_upgrade.gates.emulation.process import play, runner_module
from npu_upgrade.gates.vllm_cpu import models_folder, references
from npu_upgrade.ground.errors import ChangedError, UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import cut

Wanted = Sequence[tuple[str, Any]]  # (tier, scenario of the catalogue)

_WHY = 200  # characters of a reason in a line


@dataclass(frozen=True)
class Played:
    """What a triple did, by (tier, scenario) in the order asked for; runs that did not start are left out.

    ``executed`` has the executed lines by path in the tree, ``reused`` the runs that were not run again.
    """

    ran: Mapping[tuple[str, str], Ran] = field(default_factory=dict)
    unreached: tuple[Outcome, ...] = ()
    executed: Mapping[str, set[int]] = field(default_factory=dict)
    reused: Collection[tuple[str, str]] = ()

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(one.outcome for one in self.ran.values()) + self.unreached

    def with_more(self, later: Played) -> Played:
        """This and what ran after it, in one; the import that came first counts."""
        executed = {path: set(lines) for path, lines in self.executed.items()}
        for path, lines in later.executed.items():
            executed.setdefault(path, set()).update(lines)
        reused = {*self.reused, *(key for key in later.reused if key not in self.ran)}
        ran = {**self.ran, **later.ran, **self.ran}
        return Played(ran, self.unreached + later.unreached, executed, reused)


Reused = Callable[[Outcome], bool]


def passed(outcome: Outcome) -> bool:
    """Whether an outcome that is kept needs no other run: what fails is looked at again."""
    return outcome.state in (PASS, ABSENT)


def settled(outcome: Outcome) -> bool:
    """Whether an outcome that is kept tells what the same run would say."""
    return outcome.state in (PASS, FAIL, ABSENT)


def run(
    triple: Triple,
    wanted: Wanted,
    out: Path,
    *,
    reuse: Reused = lambda outcome: False,
    go_on: Callable[[Outcome], bool] = lambda outcome: True,
    failed: Callable[[Played], object] = lambda played: None,
    check: Callable[[], object] = lambda: None,
    pair: str = "",
) -> Played:
    """Import everything, then run each (tier, scenario); results and logs are in ``out``.

    Kept outcomes that ``reuse`` takes and that still hold are taken in place of a run. ``go_on`` is told
    each outcome of a run and says whether others are to follow; where they follow a failure, ``failed`` is
    told what ran so far. All ends when ``check`` raises. ``pair`` says with each failure which one failed;
    without it, that nothing was compared yet.
    """
    all_wanted = [("import", None), *wanted]
    reused = _reused(triple, all_wanted, reuse)
    todo = [(tier, one) for tier, one in all_wanted if _key(tier, one) not in reused]
    stopped: list[Outcome] = []
    where = f" on the {pair} pair" if pair else ", not compared with the old pair yet: it may fail alike"

    def judged(outcome: Outcome, ran: Mapping[tuple[str, str], Ran]) -> bool:
        if outcome.state not in (PASS, ABSENT):
            said = cut(outcome.why, _WHY) + (f"; at {outcome.where}" if outcome.where else "")
            _log(outcome)
            say(f"note: {outcome.name} {outcome.state}{where}: {said}; log: {outcome.log}")
        if not go_on(outcome):
            stopped.append(outcome)
        elif outcome.state == FAIL:
            so_far = reused | dict(ran)
            failed(Played(so_far, (), _executed(triple, so_far.values()), reused.keys() - ran.keys()))
        return not stopped

    order = [_key(tier, one) for tier, one in all_wanted]
    dead = order[0] in reused and reused[order[0]].outcome.state != PASS
    fresh = _play(triple, todo, out, judged, check) if todo and not dead else {}
    ran = reused | fresh
    missing = [key for key in order if key not in ran]
    if ran[order[0]].outcome.state != PASS:
        state, why = NOT_REACHED, "the import tier did not pass"
    else:
        state, why = INCONCLUSIVE, f"the dry run ended before it ({out / 'driver.log'})"
        missing = [] if stopped else missing
    return Played(
        {key: ran[key] for key in order if key in ran},
        tuple(Outcome(*key, state, why) for key in missing),
        _executed(triple, ran.values()),
        reused.keys() - fresh.keys(),
    )


def _log(outcome: Outcome) -> None:
    """Put the traceback at the end of the log, where one looks for it first."""
    if outcome.traceback and outcome.log:
        with contextlib.suppress(OSError), open(outcome.log, "a", encoding="utf-8") as log:
            log.write("\n" + "\n".join(outcome.traceback) + "\n")


def _key(tier: str, scenario: Any) -> tuple[str, str]:
    return tier, scenario.name if scenario else tier


def held(triple: Triple, wanted: Wanted, reuse: Reused = passed) -> dict[tuple[str, str], Ran]:
    """The kept outcomes of runs that hold for a triple and that ``reuse`` takes."""
    return _held(_packages(triple), wanted, reuse)


def changed_since(triple: Triple, runs: Wanted) -> dict[tuple[str, str], set[str]]:
    """Of runs that passed for other files of the downstream: what they executed and what changed since."""
    environment, top = _packages(triple), triple.downstream
    found = {_key(tier, one): kept.changed_since(tier, one, environment, top) for tier, one in runs}
    return {key: functions for key, functions in found.items() if functions is not None}


def _reused(triple: Triple, wanted: Wanted, reuse: Reused) -> dict[tuple[str, str], Ran]:
    if held := _held(_packages(triple), wanted, reuse):
        names = ", ".join(" ".join(dict.fromkeys(key)) for key in held)
        say(f"ran before, and all that they execute is as it was: {names}")
    return held


def _packages(triple: Triple) -> Environment:
    return packages_of(triple.omni, triple.ascend, triple.vllm)[1]


def _held(environment: Environment, wanted: Wanted, reuse: Reused) -> dict[tuple[str, str], Ran]:
    found = {_key(tier, one): kept.found(tier, one, environment) for tier, one in wanted}
    return {key: ran for key, ran in found.items() if ran and reuse(ran.outcome)}


def _play(
    triple: Triple,
    todo: Wanted,
    out: Path,
    go_on: Callable[[Outcome, Mapping[tuple[str, str], Ran]], bool],
    check: Callable[[], object],
) -> dict[tuple[str, str], Ran]:
    """Run what is to do; the import tier always runs first."""
    environment = prepare(triple.omni, triple.ascend, triple.vllm)
    by_name = {_key(tier, one): one for tier, one in todo if one}
    files = watched(triple)
    silent: dict[str, list[int]] = {str(environment.path(path)): [] for path in files}
    ran: dict[tuple[str, str], Ran] = {}

    def take(tier: str, name: str) -> Outcome:
        outcome = read_outcome(out, tier, name)
        outcome = replace(outcome, lines=silent | dict(outcome.lines))
        scenario = by_name.get((tier, name))
        found = kept.record(outcome, scenario, environment, *dependencies(out, tier, name))
        # what shows nothing is not kept: the machine may be at fault
        ran[tier, name] = found if outcome.state == INCONCLUSIVE else kept.keep(found)
        return outcome

    runs = [
        {"tier": tier, "scenario": one.name, "seconds": one.seconds} for (tier, _), one in by_name.items()
    ]
    plan = {
        "out": str(out),
        "models": str(models_folder()),
        "references": references([(tier, one) for (tier, _), one in by_name.items()]),
        "modules": _modules(triple),
        "watched": list(silent),
        "devices": devices(by_name.values()),
    }
    python, variables = environment.python, environment.variables

    def ended(one: Mapping[str, Any]) -> bool:
        return go_on(take(one["tier"], one["scenario"]), ran)

    play(python, variables, plan, out, runs, ended, check)
    imported = take("import", "import")
    if imported.state != PASS:
        go_on(imported, ran)
    return ran


def _modules(triple: Triple) -> list[str]:
    """What the import tier imports: vllm-ascend's runner and every module of omni's NPU workers."""
    runner = side_files(triple).runner
    own = module_of(runner) if triple.omni and triple.ascend.exists(runner) else None
    return [own or runner_module(triple.ascend, triple.vllm), *map(module_of, imported(triple))]


def _executed(triple: Triple, ran: Collection[Ran]) -> dict[str, set[int]]:
    """The executed lines by path, in the present texts of these trees."""
    trees, paths = triple.trees(), dict.fromkeys(path for one in ran for path in one.executed)
    texts = {path: trees[path.partition("/")[0]].read(path) for path in paths}
    return {
        path: {line for one in ran for line in executed_lines(text, one.executed.get(path, {}))}
        for path, text in texts.items()
    }


class Before:
    """The matched old pair, of which only what the new one fails has to run, until ``check`` raises."""

    def __init__(self, triple: Triple, out: Path, check: Callable[[], object] = lambda: None) -> None:
        self.triple, self._out, self._check = triple, out, check

    @cached_property
    def _released(self) -> ReleasedPair | None:
        return kept.of_release(self.triple)

    def known(self, tier: str, scenario: Any, *, late: bool = False) -> Outcome | None:
        """The outcome of a run that is known without running; ``late``: also that none came in time."""
        with contextlib.suppress(UpgradeError):
            if found := kept.released_outcome(self._released, tier, scenario):
                return found
            wanted = [(tier, scenario)] if scenario else []
            found = held(self.triple, wanted, lambda one: settled(one) or (late and one.is_late))
            return next((ran.outcome for ran in found.values()), None)
        return None

    def outcome(self, tier: str, scenario: Any, *, here: bool = False) -> Outcome:
        """The outcome of a run, which runs now where nothing knows it; INCONCLUSIVE where it cannot.

        ``here`` asks for one of this machine, now or before, which has what its steps cost.
        """
        name = _key(tier, scenario)[1]
        try:
            if not here and (found := kept.released_outcome(self._released, tier, scenario)):
                return found
            say(f"the matched old pair, for {' '.join(dict.fromkeys((tier, name)))}")
            out, wanted = self._out / f"{tier}-{name}", [(tier, scenario)] if scenario else []
            played = run(self.triple, wanted, out, reuse=settled, check=self._check, pair="old")
            return played.outcomes[-1]
        except ChangedError:
            raise
        except UpgradeError as error:
            return Outcome(tier, name, INCONCLUSIVE, f"the old pair cannot run here: {error.what}")
