"""Plays seeded defects: the unedited triple first, then each defect in a fork of the same warm process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.defect_lines import reached
from bench.defects import Defect, texts, write_shadow
from bench.incidents import Trees
from npu_upgrade.gates.emulation.environment import Environment, prepare
from npu_upgrade.gates.emulation.first_import import runner_module
from npu_upgrade.gates.emulation.outcome import FAIL, PASS, Outcome, read_outcome
from npu_upgrade.gates.emulation.process import play
from npu_upgrade.gates.emulation.reference import models_folder
from npu_upgrade.ground.progress import say

_UNEDITED, _SHADOW = "unedited", "shadow"


@dataclass(frozen=True)
class Row:
    """A defect with what the dry run said: the outcome of each run, unedited and edited."""

    defect: Defect
    unedited: tuple[Outcome, ...]
    edited: tuple[Outcome, ...]
    executed: bool

    @property
    def judged(self) -> bool:
        """Whether the unedited triple passes the same runs, so that a failure is the edit's."""
        return all(outcome.state == PASS for outcome in self.unedited)

    @property
    def caught(self) -> Outcome | None:
        """The first run that fails."""
        failed = [outcome for outcome in self.edited if outcome.state == FAIL]
        return failed[0] if failed and self.judged else None


def run_defects(defects: Sequence[Defect], out: Path) -> list[Row]:
    """One warm process for each triple, two where some defects need a colder one; a row for each defect."""
    groups: dict[str, list[Defect]] = {}
    for defect in defects:
        groups.setdefault(f"{sorted(defect.specs.items())} {defect.late}", []).append(defect)
    rows: dict[str, Row] = {}
    for number, group in enumerate(groups.values()):
        say(f"{len(group)} defects of {', '.join(group[0].specs.values())}")
        rows |= {row.defect.id: row for row in _group(group, out / f"group-{number}")}
    return [rows[defect.id] for defect in defects]


def _group(defects: Sequence[Defect], out: Path) -> list[Row]:
    trees = Trees()
    edited = {defect.id: texts(trees, defect) for defect in defects}
    shadows = {name: write_shadow(files, out / name / _SHADOW) for name, files in edited.items()}
    triple = trees.triple(defects[0].specs)
    environment = prepare(triple.omni, triple.ascend, triple.vllm)
    module = runner_module(triple.ascend, triple.vllm)
    play(environment.python, environment.variables, plan(defects, shadows, environment, module, out), out)
    return [_row(defect, edited[defect.id], environment, out) for defect in defects]


def plan(
    defects: Sequence[Defect],
    shadows: dict[str, dict[str, str]],
    environment: Environment,
    runner: str,
    out: Path,
) -> dict[str, Any]:
    """What the dry run plays. The modules that a defect edits must not be imported before it."""
    runs = [_entry(run, names, out / _UNEDITED, {}) for run, names in _unedited(defects)]
    runs += [_entry(run, one.probes, out / one.id, shadows[one.id]) for one in defects for run in one.runs]
    originals = dict.fromkeys(path for defect in defects for path in defect.paths)
    return {
        "out": str(out),
        "models": str(models_folder()),
        "modules": [runner] if defects[0].late else [],
        "watched": [str(environment.path(path)) for path in originals]
        + [str(out / defect.id / _SHADOW / path) for defect in defects for path in defect.paths],
        "runs": runs,
    }


def _unedited(defects: Sequence[Defect]) -> list[tuple[tuple[str, Any], list[str]]]:
    """Each run of any of the defects, with the probes that one of them needs."""
    runs: dict[tuple[str, str], tuple[tuple[str, Any], list[str]]] = {}
    for defect in defects:
        for tier, one in defect.runs:
            names = runs.setdefault((tier, one.name), ((tier, one), []))[1]
            names += defect.probes or [probe.name for probe in one.probes]
    return list(runs.values())


def _entry(run: tuple[str, Any], probes: Sequence[str], out: Path, shadow: dict[str, str]) -> dict[str, Any]:
    tier, one = run
    entry = {"tier": tier, "scenario": one.name, "seconds": one.seconds, "out": str(out), "shadow": shadow}
    return entry | ({"probes": sorted(set(probes))} if probes else {})


def _row(defect: Defect, edited: dict[str, tuple[str, str]], environment: Environment, out: Path) -> Row:
    before = [read_outcome(out / _UNEDITED, tier, one.name) for tier, one in defect.runs]
    after = [read_outcome(out / defect.id, tier, one.name) for tier, one in defect.runs]
    executed = any(
        reached(
            *both, _lines(before, environment.path(path)), _lines(after, out / defect.id / _SHADOW / path)
        )
        for path, both in edited.items()
    )
    return Row(defect, tuple(before), tuple(after), executed)


def _lines(outcomes: Sequence[Outcome], path: Path) -> list[int]:
    return [line for outcome in outcomes for line in outcome.lines.get(str(path), ())]
