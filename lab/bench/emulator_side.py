"""Seeded defects that pipelines run: outside of the runners (side.yaml), and one in each stage (stages.yaml).

Both are in lab/recipes. A server's own process imports everything anew, so each defect is an
edited copy of vllm-omni with an import tier and a pipeline of its own. It is executed when a line of its edit
was seen running or its run fails, for not every edited file is watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from bench.emulator_defects import Defect, Played, Row, reached, texts
from bench.incidents import FOLDER, Trees, read_recipe
from bench.shared import Run
from npu_upgrade.gates.emulation.dry_run import run as play
from npu_upgrade.gates.emulation.dry_run import settled
from npu_upgrade.gates.emulation.outcome import FAIL, PASS
from npu_upgrade.ground.progress import say

FEWEST, RECALL = 16, 0.8  # of twenty


def load_defects(name: str = "side") -> list[Defect]:
    """The recorded defects of ``name``: side, or stages."""
    return read_recipe(FOLDER / f"{name}.yaml", list[Defect])


def run_defects(defects: Sequence[Defect], out: Path, run: Run) -> list[Row]:
    """A row for each defect, one after the other; logs and results go to ``out``."""
    trees, rows = Trees(), []
    for one in defects:
        seen = run.found(one.id, msgspec.to_builtins(one), Played)
        row = Row(one, *seen) if seen else _row(one, trees, out / one.id)
        rows.append(row)
        if row.judged and all(each.state in (PASS, FAIL) for each in row.edited):
            run.store(one.id, msgspec.to_builtins(one), (row.unedited, row.edited, row.executed))
    return rows


def _row(one: Defect, trees: Trees, out: Path) -> Row:
    say(f"== {one.id}")
    before = play(trees.triple(one.specs), one.runs, out / "before", reuse=settled)
    after = play(trees.triple(one.specs, one.edits), one.runs, out / "after")
    edited = [replace(each, lines={}) for each in after.outcomes]
    executed = any(each.state == FAIL for each in edited) or any(
        reached(*both, before.executed.get(path, ()), after.executed.get(path, ()))
        for path, both in texts(trees, one).items()
    )
    return Row(one, tuple(replace(each, lines={}) for each in before.outcomes), tuple(edited), executed)
