"""Measure our runners on real vLLM on this CPU, and show where one source runs: ``make bench-runners``.

Decode throughput with the mixin in front, payload off and on, against stock vLLM; hidden states against a
reference; then one table of releases, runners and modes, on the CPU and in emulation; and one of real models
inside vllm-omni, on the emulated NPU.

A default run measures the speed, and of the table one cell for each runner and kind of check, and one for
each mode, on the newest release that has it, and one real model in one mode. A whole run has every release
and model.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from bench import runners_cells as cells
from bench import runners_models as models
from bench.runners_run import (
    CHECKPOINT_LARGE,
    Decoding,
    Result,
    Throughput,
    make_checkpoints,
    measure,
    play_all,
)
from bench.shared import Run, begin, options, some
from npu_upgrade.ground.errors import UpgradeError, report
from npu_upgrade.ground.tables import table

OFF, ON, COSINE, STEP_MS = 0.99, 0.97, 0.9999, 10.0
BATCHES, TOKENS = (1, 16), 96
OURS = ("off", "on")
KINDS, OTHERS = ("ar", "sampler", "generation"), "others"
HEAD = ("base", "runner", "mode", *KINDS, OTHERS, "how")


def main() -> int:
    """Exit code 1 when a goal is missed or a cell fails, 3 when something outside is missing."""
    parser = options(__doc__)
    parser.add_argument("--repetitions", type=int, default=8, help="batches that are decoded to the end")
    parser.add_argument("--only", choices=("speed", "table", "models"), help="a part of it")
    parser.add_argument("--cell", action="append", help="words that a row of the table must have; repeatable")
    parser.add_argument(
        "--at-once", type=int, default=2, metavar="N", help="engines that run at a time, each on one core"
    )
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-runners-") as folder:
            return _run(given, Path(folder), begin("bench-runners", given, given.cell or given.only))
    except UpgradeError as error:
        return report(error, as_text=True)


def _run(given: argparse.Namespace, folder: Path, run: Run) -> int:
    make_checkpoints(folder)
    missed, summary = [], {}
    if given.only in (None, "speed"):
        missed, summary = _speed(measure(folder / CHECKPOINT_LARGE, BATCHES, TOKENS, given.repetitions))
    if given.only in (None, "table"):
        chosen = cells.CELLS if run.kind != "default" else cells.each_kind()
        words = given.cell or ()
        chosen = some([one for one in chosen if all(word in one.label.split() for word in words)], words)
        failed, counts = _table(chosen, play_all(chosen, folder, run, given.at_once))
        missed, summary = missed + failed, summary | counts
    if given.only in (None, "models"):
        rows, failed = models.rows(run, given.cell or () if given.only else ())
        print(table(models.HEAD, rows), end="\n\n")
        missed += failed
        summary["models_equal"] = str(sum(one.startswith("equal") for row in rows for one in row))
    return run.close(summary, missed)


def _speed(found: Throughput) -> tuple[list[str], dict[str, str]]:
    """Goals that were missed, and the figures.

    The goals are judged by the CPU time of the engine's process, which other work on the machine changes
    least; the time on the wall is shown beside it.
    """
    missed, summary, rows = [], {}, []
    for batch, decoding in sorted(found.batches.items()):
        step = 1000 * statistics.median(decoding.steps["cpu"]["stock"])
        off, on, *by_wall = (
            _ratio(decoding, batch, clock, which) for clock in ("cpu", "wall") for which in OURS
        )
        rows.append((str(batch), f"{step:.1f} ms", *(f"{one:.3f}" for one in (off, on, *by_wall))))
        summary |= {
            f"off_b{batch}": f"{off:.3f}",
            f"on_b{batch}": f"{on:.3f}",
            f"step_ms_b{batch}": f"{step:.1f}",
        }
        checks = ((off >= OFF, f"off {off:.3f} < {OFF}"), (on >= ON, f"on {on:.3f} < {ON}"))
        checks += ((step >= STEP_MS, f"a step takes {step:.1f} ms, too short to judge by"),)
        missed += [f"batch {batch}: {why}" for holds, why in checks if not holds]
    head = ("batch", "step (stock)", "payload off / stock", "payload on / stock", "off, wall", "on, wall")
    print(table(head, rows), end="\n\n")
    if found.cosine < COSINE:
        missed.append(f"cosine {found.cosine:.6f} < {COSINE}")
    return missed, {"vllm": found.vllm, "cosine": f"{found.cosine:.6f}", **summary}


def _ratio(decoding: Decoding, batch: int, clock: str, variant: str) -> float:
    """Throughput against stock: the median over steps, each with the stock one beside it.

    Handing a payload over is part of a request's cost; its share falls on each of the request's steps.
    """
    steps, share = decoding.steps[clock], 0.0
    if variant == "on":
        share = statistics.median(decoding.delivery) * batch / TOKENS
    return statistics.median(
        stock / (ours + share) for ours, stock in zip(steps[variant], steps["stock"], strict=True)
    )


def _table(chosen: list[cells.Cell], results: list[Result]) -> tuple[list[str], dict[str, str]]:
    pairs = list(zip(chosen, results, strict=True))
    print(table(HEAD, grid(pairs)), end="\n\n")
    failed = [f"{cell.label}: {one.why}" for cell, one in pairs if one.why]
    passed = sum(one.state.startswith("pass") for one in results)
    return failed, {"cells": str(len(results)), "passed": str(passed)}


def grid(pairs: list[tuple[cells.Cell, Result]]) -> list[tuple[str, ...]]:
    """One row for each engine's base, runner and mode; the kinds of checks side by side."""
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for cell, one in pairs:
        row = rows.setdefault((*cell.base, cell.how), {})
        said = one.state.replace(" checks", "")
        if cell.kind in KINDS:
            row.setdefault(cell.kind, []).append(said)
        else:
            row.setdefault(OTHERS, []).append(f"{cell.kind} {said}")
    columns = (*KINDS, OTHERS)
    return [
        (*key[:-1], *("; ".join(row.get(kind, ())) for kind in columns), key[-1]) for key, row in rows.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
