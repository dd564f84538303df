"""Seeded defects outside of the runners, which pipelines run: platform, layers, patches, models, diffusion.

The recipes are in lab/recipes/side.yaml, of one released pair. Each is an edited copy of vllm-omni with
environment, import tier and pipeline of its own. A defect is executed when a line of its edit was seen
running or its run fails, and caught when the run fails that the unedited pair passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.edits import Edit, edited
from bench.emulator_defects import reached
from bench.incidents import FOLDER, read_recipe
from bench.shared import Run
from npu_upgrade.audit.triples import open_project, open_triple
from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.changed import text_of
from npu_upgrade.gates.emulation.dry_run import run as play
from npu_upgrade.gates.emulation.outcome import ABSENT, FAIL, PASS, Outcome
from npu_upgrade.ground.progress import say

OMNI, ASCEND = "pypi:vllm-omni==0.30.0", "pypi:vllm-ascend==0.30.0rc2"
MOST_SILENT = 4  # of twenty
RECALL = 0.8


class Defect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One recipe: edits of vllm-omni, and the run ("TIER SCENARIO") that should show them."""

    id: str
    where: str
    edits: tuple[Edit, ...]
    run: str
    note: str


@dataclass(frozen=True)
class Row:
    """What a defect did, beside the unedited pair's outcome of the same run."""

    defect: Defect
    before: Outcome
    after: Outcome
    executed: bool

    @property
    def caught(self) -> bool:
        return self.before.state == PASS and self.after.state == FAIL


def load_defects() -> list[Defect]:
    """The recorded defects."""
    return read_recipe(FOLDER / "side.yaml", list[Defect])


def run_defects(defects: Sequence[Defect], out: Path, run: Run) -> list[Row]:
    """A row for each defect, one after the other; logs and results go to ``out``."""
    omni = open_project(OMNI, "vllm-omni")
    pair = open_triple(omni, ASCEND, None)
    rows = []
    for one in defects:
        content = msgspec.to_builtins(one)
        row = run.found(one.id, content, Row) or _row(one, pair, out / one.id)
        rows.append(row)
        if row.before.state == PASS and row.after.state in (PASS, FAIL):
            run.store(one.id, content, row)
    return rows


def _row(one: Defect, pair: Triple, out: Path) -> Row:
    say(f"== {one.id}")
    assert pair.omni
    tier, _, name = one.run.partition(" ")
    wanted = chosen([name], [tier], omni=True)
    before = play(pair, wanted, out / "before", reuse=(PASS, FAIL, ABSENT))
    other = replace(pair, omni=edited(pair.omni, one.edits))
    after = play(other, wanted, out / "after")
    failed = next((each for each in after.outcomes if each.state != PASS), after.outcomes[-1])
    executed = failed.state == FAIL or any(
        reached(
            text_of(pair, path),
            text_of(other, path),
            before.executed.get(path, ()),
            after.executed.get(path, ()),
        )
        for path in {edit["path"] for edit in one.edits}
    )
    return Row(one, replace(before.outcomes[-1], lines={}), replace(failed, lines={}), executed)


def cells(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The rows of the table."""
    words = {True: "yes", False: "no"}
    return [
        (
            row.defect.id,
            row.defect.where,
            row.defect.run,
            words[row.executed],
            words[row.caught],
            row.after.why[:90],
        )
        for row in rows
    ]


def figures_of(rows: Sequence[Row]) -> dict[str, str]:
    """The figures of the last line."""
    executed, caught = sum(row.executed for row in rows), sum(row.caught for row in rows)
    judged = sum(row.before.state == PASS for row in rows)
    return {
        "side": str(len(rows)),
        "side_not_judged": str(len(rows) - judged),
        "side_executed": str(executed),
        "side_caught": str(caught),
        "side_recall": f"{caught / max(1, executed):.3f}",
    }


def short_of_goals(rows: Sequence[Row]) -> list[str]:
    """What misses the goals: sixteen of twenty executed, four fifths of these caught."""
    executed, caught = sum(row.executed for row in rows), sum(row.caught for row in rows)
    missed = [f"{len(rows) - executed} of {len(rows)} executed by nothing"] * (
        len(rows) - executed > MOST_SILENT
    )
    return missed + [f"caught {caught} of {executed}, at least {RECALL}"] * (caught < RECALL * executed)
