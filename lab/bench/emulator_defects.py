"""Seeded defects on the emulated NPU: recorded edits of released runners, and which the dry run fails.

The recipes are in lab/recipes/emulated. A defect is caught when a run fails that the unedited triple
passes; what cannot be judged is not caught. Recall is over the defects whose lines were executed. Ends with 1
below a goal. Everything here is emulated dry-run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.defect_runs import Row, run_defects
from bench.defects import Defect, chosen, load_defects
from npu_upgrade.gates.emulation.outcome import FAIL, PASS, Outcome
from npu_upgrade.ground.tables import table

FEWEST, RECALL = 30, 0.9
_WIDEST = 110


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", default=[], metavar="ID", help="only these defects")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep logs and results in DIR")
    args = parser.parse_args(argv)
    defects = chosen(load_defects(), args.case)
    out = args.out or Path(tempfile.mkdtemp(prefix="emulator-defects-"))
    rows, figures = run(defects, out.absolute())
    print(as_text(rows))
    print("\nbench-emulator-defects: " + " ".join(f"{name}={value}" for name, value in figures.items()))
    missed = [] if args.case else short_of_goals(figures)
    print("\n".join(f"not reached: {text}" for text in missed), file=sys.stderr)
    return 1 if missed else 0


def run(defects: Sequence[Defect], out: Path) -> tuple[list[Row], dict[str, str]]:
    """Play the defects; logs and results go to ``out``. The rows, and the figures of the last line."""
    rows = run_defects(defects, out)
    return rows, figures_of(rows)


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


def short_of_goals(figures: dict[str, str]) -> list[str]:
    """The goals that are not reached, in words."""
    missed = [f"executed={figures['executed']}, goal {FEWEST}"] if int(figures["executed"]) < FEWEST else []
    if float(figures["recall"]) < RECALL:
        missed.append(f"recall={figures['recall']}, goal {RECALL}")
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


if __name__ == "__main__":
    sys.exit(main())
