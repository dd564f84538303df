"""Seeded defects on the emulated NPU: recorded edits of released runners, and which the dry run fails.

The recipes are in lab/recipes/emulated. A defect is caught when a run fails that the unedited triple
passes, or when its decode steps cost more; what cannot be judged is not caught. Recall is over the defects
whose lines were executed. The unedited triple runs first, then each defect in a fork of the same warm
process. All is emulated dry-run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bench.edits import Edit
from bench.incidents import FOLDER, Trees, read_recipe
from bench.shared import Run
from npu_upgrade.gates.emulation.catalogue import TIERS, devices, scenarios
from npu_upgrade.gates.emulation.changed import changed_statements
from npu_upgrade.gates.emulation.compare import by_costs
from npu_upgrade.gates.emulation.environment import Environment, prepare
from npu_upgrade.gates.emulation.outcome import FAIL, PASS, Outcome, read_outcome
from npu_upgrade.gates.emulation.process import play, runner_module
from npu_upgrade.gates.vllm_cpu import models_folder
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

DEFECTS = FOLDER / "emulated"
FEWEST, RECALL = 30, 0.9
AT_ONCE = 12  # defects of one warm process: what a cut loses
Played = tuple[tuple[Outcome, ...], tuple[Outcome, ...], bool]
_PACKAGES = {"omni": "vllm_omni", "ascend": "vllm_ascend", "vllm": "vllm"}
_UNEDITED, _SHADOW = "unedited", "shadow"
_WIDEST = 110
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Defect(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"kind": "class", "specs": "triple", "named": "runs"},
):
    """One recipe: an edited triple, the runs that should show it ("TIER SCENARIO"), and their ``probes``.

    Without probes all of a run's are played. ``executed`` says whether the edited lines are expected to run.
    """

    id: str
    incident: str
    kind: str
    specs: dict[str, str]
    edits: tuple[Edit, ...]
    named: tuple[str, ...]
    note: str
    probes: tuple[str, ...] = ()
    executed: bool = True

    def __post_init__(self) -> None:
        known = {probe.name for _, one in self.runs for probe in one.probes}
        if unknown := set(self.probes) - known:
            raise BadInput(
                f"no probe {', '.join(sorted(unknown))}",
                expected="one of the scenario's",
                try_="see upgrade.py emulate --list",
            )

    @property
    def runs(self) -> list[tuple[str, Any]]:
        """The runs, as tier and scenario of the catalogue."""
        return [_run(text) for text in self.named]

    @property
    def paths(self) -> list[str]:
        """The edited files, by their path in the tree."""
        return list(dict.fromkeys(edit["path"] for edit in self.edits))

    @property
    def late(self) -> bool:
        """Whether all edited modules are imported only when an engine starts, vllm-ascend's runner before."""
        return all(path.startswith("vllm_omni/platforms/npu/worker") for path in self.paths)


def _run(text: str) -> tuple[str, Any]:
    tier, _, name = text.partition(" ")
    found = [one for one in scenarios() if one.name == name and tier in one.tiers and tier in TIERS]
    if not found:
        raise BadInput(f"no run {text}", expected="TIER SCENARIO of the catalogue", try_="eager plain")
    return tier, found[0]


def load_defects(folder: Path = DEFECTS) -> list[Defect]:
    """All recipes, in the order of their files."""
    return [read_recipe(path, Defect) for path in sorted(folder.glob("*.yaml"))]


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


def run_defects(defects: Sequence[Defect], out: Path, run: Run) -> list[Row]:
    """A row for each defect; logs and results go to ``out``.

    A warm process plays defects of one triple, those apart that need a colder one.
    """
    rows: dict[str, Row] = {}
    groups: dict[str, list[Defect]] = {}
    for one in defects:
        if seen := run.found(one.id, msgspec.to_builtins(one), Played):
            rows[one.id] = Row(one, *seen)
        else:
            groups.setdefault(f"{sorted(one.specs.items())} {one.late}", []).append(one)
    size = AT_ONCE if run.keep else len(defects)
    parts = [group[i : i + size] for group in groups.values() for i in range(0, len(group), size)]
    for number, part in enumerate(parts):
        say(f"{len(part)} defects of {', '.join(part[0].specs.values())}")
        for row in _group(part, out / f"group-{number}"):
            rows[row.defect.id] = row
            if row.judged:
                before, after = (
                    [replace(one, lines={}) for one in side] for side in (row.unedited, row.edited)
                )
                run.store(row.defect.id, msgspec.to_builtins(row.defect), (before, after, row.executed))
    return [rows[one.id] for one in defects]


def _group(defects: Sequence[Defect], out: Path) -> list[Row]:
    trees = Trees()
    edited = {defect.id: texts(trees, defect) for defect in defects}
    shadows = {name: write_shadow(files, out / name / _SHADOW) for name, files in edited.items()}
    triple = trees.triple(defects[0].specs)
    environment = prepare(triple.omni, triple.ascend, triple.vllm)
    module = runner_module(triple.ascend, triple.vllm)
    asked = plan(defects, shadows, environment, module, out)
    play(environment.python, environment.variables, asked, out, asked["runs"])
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
        "devices": devices(one for defect in defects for _, one in defect.runs),
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
            *both,
            _executed(before, environment.path(path)),
            _executed(after, out / defect.id / _SHADOW / path),
        )
        for path, both in edited.items()
    )
    packages = ["vllm_omni" if one.omni else "vllm_ascend" for _, one in defect.runs]
    after = [by_costs(*each) for each in zip(before, after, packages, strict=True)]
    return Row(defect, tuple(before), tuple(after), executed)


def _executed(outcomes: Sequence[Outcome], path: Path) -> list[int]:
    return [line for outcome in outcomes for line in outcome.lines.get(str(path), ())]


def texts(trees: Trees, defect: Defect) -> dict[str, tuple[str, str]]:
    """Path -> text before and after the edits; :class:`BadInput` names an edit that does not fit."""
    found = {}
    for part in dict.fromkeys(edit["in"] for edit in defect.edits):
        before = trees.tree(defect.specs, part)
        after = trees.tree(defect.specs, part, defect.edits)
        own = [path for path in defect.paths if path.startswith(_PACKAGES[part] + "/")]
        found |= {path: (before.read(path), after.read(path)) for path in own}
    return found


def write_shadow(edited: dict[str, tuple[str, str]], folder: Path) -> dict[str, str]:
    """Write the edited files below ``folder``; package -> the folder of its edited files."""
    for path, (_, after) in edited.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(after, encoding="utf-8")
    return {name: str(folder / name) for name in _PACKAGES.values() if (folder / name).is_dir()}


def reached(before: str, after: str, ran_before: Iterable[int], ran_after: Iterable[int]) -> bool:
    """Whether a statement that differs between the texts ran; line numbers are those of each text."""
    return _any_ran(before, after, set(ran_after)) or _any_ran(after, before, set(ran_before))


def _any_ran(other: str, text: str, ran: set[int]) -> bool:
    """Whether a statement of ``text`` that ``other`` does not have is among the lines ``ran``."""
    heads = {node.lineno: node for node in ast.walk(ast.parse(text)) if isinstance(node, _Definition)}
    for start, end in changed_statements(other, text):
        lines = _body(heads[start]) if start in heads else set(range(start, end + 1))
        if lines & ran:
            return True
    return False


def _body(definition: ast.AST) -> set[int]:
    """The lines of the functions' statements in a definition, heads left out."""
    found: set[int] = set()
    for node in ast.walk(definition):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in node.body:
                found.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    inner = {n.lineno for n in ast.walk(definition) if isinstance(n, _Definition) and n is not definition}
    return found - inner


def figures_of(rows: Sequence[Row]) -> dict[str, str]:
    """How many defects there are, were executed and caught, and the part of the executed ones caught."""
    executed = [row for row in rows if row.executed and row.judged]
    caught = [row for row in executed if row.caught]
    return {
        "defects": str(len(rows)),
        "not_judged": str(sum(not row.judged for row in rows)),
        "executed": str(len(executed)),
        "caught": str(len(caught)),
        "recall": f"{len(caught) / len(executed):.3f}" if executed else "0.000",
    }


def short_of_goals(figures: dict[str, str], fewest: int = FEWEST, recall: float = RECALL) -> list[str]:
    """The goals that are not reached, in words."""
    missed = [f"executed={figures['executed']}, goal {fewest}"] if int(figures["executed"]) < fewest else []
    if float(figures["recall"]) < recall:
        missed.append(f"recall={figures['recall']}, goal {recall}")
    return missed


def as_text(rows: Sequence[Row]) -> str:
    """One line for each defect, those not caught again below, with the reason they are there."""
    head = ("defect", "incident", "run", "executed", "caught", "what the dry run said")
    text = table(head, [_cells(row) for row in rows])
    others = [f"  {row.defect.id}: {row.defect.note.strip()}" for row in rows if not row.caught]
    return text + ("\n\nnot caught:\n" + "\n".join(others) if others else "")


def _cells(row: Row) -> tuple[str, ...]:
    shown = row.caught or next((one for one in row.edited if one.state != PASS), row.edited[0])
    executed = "yes" if row.executed else "no"
    if row.executed != row.defect.executed:
        executed += " (not as expected)"
    return (
        row.defect.id,
        row.defect.incident,
        f"{shown.tier} {shown.scenario}",
        executed,
        "yes" if row.caught else "NO",
        _said(row, shown)[:_WIDEST],
    )


def _said(row: Row, shown: Outcome) -> str:
    if not row.judged:
        first = next(one for one in row.unedited if one.state != PASS)
        return f"not judged, unedited it is {first.state}: {_line(first.why)}"
    return _line(shown.why) if shown.state == FAIL else f"{shown.state} {_line(shown.why)}"


def _line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
