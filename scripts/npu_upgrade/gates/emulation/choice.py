"""Which runs a change needs, the cheapest first, and which others it can touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation import kept
from npu_upgrade.gates.emulation.catalogue import SERVED, TIERS, chosen
from npu_upgrade.gates.emulation.changed import (
    called_names,
    changed_functions,
    named,
    side_files,
    text_of,
    watched,
)
from npu_upgrade.gates.emulation.dry_run import Wanted, changed_since

LONG = "pipelines"
_EAGER = "-eager"
_ALONE = TIERS[1 : TIERS.index(LONG) - 1]  # in one process, without a server
_MOST = 120.0  # seconds of all needed runs, two at a time, that are filled up
_QUICK = 8.0  # seconds of a run that is not worth leaving for later
_BESIDE = 40.0  # seconds of all runs, two at a time, that a failure does not keep from being told, too
_SECONDS = {"eager": 6.0, "graph": 10.0, "serve": 50.0, "pipelines": 100.0}  # of a run that was never seen


@dataclass(frozen=True)
class Choice:
    """``needed``: the core, what failed last and, for each changed function, in each tier that executes it
    and for each function that it is called from, directly or not, the cheapest run that executes both; of the
    first tier all that the change can touch and that take a few seconds, for a function has branches; and
    what is about an unchanged function that calls what changed in its base. As long as there is time, the
    cheapest of what is about names that the change is the first to bring, and a pipeline where nothing else
    executes a function: the others of these are pending. After an edit so are runs that passed before it, but
    for the cheapest that execute what was edited.

    ``pending``: what else the change can touch. ``unknown``: changed functions of which no run is known.
    ``quick``: the cheapest that are needed, which run to their end whatever fails: to correct a failure and
    meet the next one costs more.
    """

    needed: Wanted
    pending: Wanted
    changed: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    quick: Wanted = ()


def choose(
    new: Triple,
    old: Triple | None,
    paths: Iterable[str],
    tiers: Sequence[str],
    failed: Mapping[str, str],
    passed: Collection[str] = (),
) -> Choice:
    """The runs for what changed in the downstream's own files: its runners and ``paths``.

    ``passed`` are those that passed earlier in the job.

    ``failed`` are the runs ("TIER SCENARIO") that failed last, each with its place in the code, if it has
    one; they are needed, and start first.
    """
    omni = new.omni is not None
    everything = chosen(["all"], tiers, omni=omni)
    core = chosen(["core"], tiers, omni=omni)
    executed, seconds = kept.executed_by()
    changed, brought = _changed(new, old, paths) if old else (None, set[str]())
    upon = _upon_changed(new, old) - (changed or set()) if old else set[str]()
    called: dict[str, set[str]] = {}
    for path in watched(new):
        for name, names in called_names(text_of(new, path)):
            called.setdefault(name, set()).update(names)
    shown = [run for run in everything if run[0] != LONG and _name(run) in passed]
    since = changed_since(new, shown) if shown else {}
    since = {f"{tier} {name}": functions for (tier, name), functions in since.items()}
    return chosen_for(core, everything, changed, executed, called, seconds, failed, brought, upon, since)


def chosen_for(
    core: Wanted,
    everything: Wanted,
    changed: set[str] | None,
    executed: Mapping[str, set[str]],
    called: Mapping[str, set[str]],
    seconds: Mapping[str, float],
    failed: Mapping[str, str],
    brought: Collection[str] = (),
    upon: Collection[str] = (),
    since: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Choice:
    """The choice, from what is known: function -> runs that execute it, -> names it calls; run -> seconds.

    Of a pipeline that failed with graphs and without, the one with graphs is needed, as it is deployed; of
    servers that failed at one place the cheapest.
    ``changed`` is None where nothing tells what changed: anything may be touched. ``brought`` are names that
    the changed files did not have before, ``upon`` unchanged functions that call what changed in their base.
    ``since``: a run that passed before an edit -> the functions that were edited, of those that it executes,
    and new ones.
    """

    def cost(run: tuple[str, Any]) -> tuple[float, int]:
        return seconds.get(_name(run)) or _SECONDS[run[0]], TIERS.index(run[0])

    def add(runs: Wanted) -> None:
        if runs and not any(run in needed for run in runs):
            needed.append(min(runs, key=cost))

    def may_touch(run: tuple[str, Any]) -> bool:
        return changed is None or _name(run) in touched

    needed = list(core)
    twins = {run for run in failed if run.endswith(_EAGER) and run.removesuffix(_EAGER) in failed}
    served = [run for run in everything if run[0] in SERVED and _name(run) in failed.keys() - twins]
    first = {failed[_name(run)] or _name(run): _name(run) for run in sorted(served, key=cost, reverse=True)}
    alike = {*map(_name, served)} - {*first.values()}
    again = failed.keys() - twins - alike
    touched, unknown = twins | alike, set()
    for function in sorted(changed or ()):
        fitting = [run for run in everything if _name(run) in executed.get(function, ())]
        if function not in executed:
            unknown.add(function)
            fitting = [run for run in everything if any(word in function.lower() for word in run[1].words)]
        touched |= {_name(run) for run in fitting}
        add(fitting)
        for caller in sorted(_callers(function, called) & executed.keys()):
            for tier in TIERS[: TIERS.index(LONG)]:
                add([run for run in fitting if run[0] == tier and _name(run) in executed[caller]])
    needed += [run for run in everything if _name(run) in again and run not in needed]
    alone = [run for run in everything if run[0] in _ALONE]
    needed += {run[1].name: run for run in alone if _is_about(run[1], upon) and run not in needed}.values()
    eager = [run for run in everything if run[0] == _ALONE[0] and run not in needed]
    needed += [run for run in eager if cost(run)[0] <= _QUICK and may_touch(run)]
    plain = {_name(run) for run in needed if run[0] == _ALONE[0]}
    long = sorted((run for run in needed if run[0] == LONG and _name(run) not in again), key=cost)
    needed = [run for run in needed if run not in long]
    about = [run for run in alone if _is_about(run[1], brought)]
    touched |= {*map(_name, about)}
    with_graphs = list({run[1].name: run for run in about if run not in needed}.values())
    for run in (*sorted(with_graphs, key=cost), *long):
        if sum(cost(one)[0] for one in (*needed, run)) <= _MOST:
            needed.append(run)
    shown = [run for run in needed if _name(run) in since and _name(run) not in again]
    needed = [run for run in needed if run not in shown]
    edited = {name for run in shown for name in since[_name(run)]}
    for runs in (*_executing(edited, executed, called), plain):
        if not any(_name(run) in runs for run in needed):
            needed += sorted((run for run in shown if _name(run) in runs), key=cost)[:1]
    others = [run for run in everything if run not in needed]
    pending = [run for run in others if run in shown or may_touch(run)]
    quick, spent = [], 0.0
    for run in sorted((run for run in needed if run[0] == _ALONE[0]), key=cost):
        spent += cost(run)[0]
        quick += [run] if cost(run)[0] <= _QUICK and spent <= _BESIDE else []
    return Choice(
        _two_lanes(sorted(needed, key=lambda run: (_name(run) not in again, *cost(run))), cost),
        sorted(pending, key=cost),
        frozenset(changed or ()),
        frozenset(unknown),
        quick,
    )


def _is_about(scenario: Any, names: Collection[str]) -> bool:
    return any(word in name.lower() for word in scenario.words for name in names)


def _two_lanes(runs: list[tuple[str, Any]], cost: Callable[[tuple[str, Any]], tuple[float, int]]) -> Wanted:
    """The longest behind a server second: it plays beside all the others."""
    served = sorted((run for run in runs[1:] if run[0] in SERVED), key=cost)[-1:]
    return [*runs[:1], *served, *(run for run in runs[1:] if run not in served)]


def _executing(
    functions: Collection[str], executed: Mapping[str, set[str]], called: Mapping[str, set[str]]
) -> Iterator[set[str]]:
    """For each function the runs that execute it; where nobody saw it running, those that execute what it is
    called from, or what bears its name: upstream calls it there.
    """
    for function in sorted(functions):
        method = f".{function.rpartition('.')[2]}"
        alike = {name for name in executed if name.endswith(method)}
        names = [function] if function in executed else _callers(function, called) | alike
        yield {run for name in names for run in executed.get(name, ())}


def _callers(function: str, called: Mapping[str, set[str]]) -> set[str]:
    """The functions from which a function is called, directly or not, as far as names tell."""
    found: set[str] = set()
    todo = [function]
    while todo:
        name = todo.pop().rpartition(".")[2]
        new = {caller for caller, names in called.items() if name in names} - found
        found |= new
        todo += new
    return found


def _name(run: tuple[str, Any]) -> str:
    return f"{run[0]} {run[1].name}"


def _changed(new: Triple, old: Triple, paths: Iterable[str]) -> tuple[set[str], set[str]]:
    """The functions that changed, and the names that the changed files did not have before."""
    found: set[str] = set()
    had: set[str] = set()
    has: set[str] = set()
    for path in {*watched(new), *paths}:
        if path.startswith(f"{new.downstream}/") and path.endswith(".py"):
            before, after = text_of(old, path), text_of(new, path)
            if before != after:
                found |= changed_functions(before, after)
                had |= named(before)
                has |= named(after)
    return found, has - had


def _upon_changed(new: Triple, old: Triple) -> set[str]:
    """The workers' functions that call what changed in their base."""
    files = side_files(new)
    changed: set[str] = set()
    for path in files.upstream:
        if before := text_of(old, path):
            functions = changed_functions(before, text_of(new, path))
            changed |= {name.rpartition(".")[2] for name in functions if not name.endswith("__")}
    functions = (one for path in files.runners for one in called_names(text_of(new, path)))
    return {name for name, called in functions if called & changed}
