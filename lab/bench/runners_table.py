"""All rows of the table: several engines at once, and what ran before with the same sources is kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bench.runners_cells import Cell
from bench.runners_run import ROOT, Result, play
from npu_upgrade.gates.emulation.catalogue import digest
from npu_upgrade.ground.files import sha256, write_json
from npu_upgrade.ground.progress import say

JUDGING = ("runners", "lab", "emulator")


def play_all(cells: Sequence[Cell], folder: Path, keep: Path | None, at_once: int) -> list[Result]:
    """The results in the order of the cells. ``folder`` holds the checkpoints, ``keep`` rows that passed."""
    sources = "".join(digest(ROOT / name) for name in JUDGING)

    def one(cell: Cell) -> Result:
        judged = sha256(json.dumps([sources, cell.plan(""), cell.served()]))[:16]
        place = keep / f"{cell.label.replace(' ', '-')}-{judged}.json" if keep else None
        if place and place.exists():
            return Result(**json.loads(place.read_text("utf-8")))
        say(cell.label)
        result = play(cell, folder)
        print(f"{cell.label}: {result.state}", file=sys.stderr, flush=True)
        if place and result.state.startswith("pass"):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, asdict(result))
        return result

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, cells))
