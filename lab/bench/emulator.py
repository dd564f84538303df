"""The emulated dry run over releases: versions x tiers x scenarios, seeded defects, natural upgrades.

Each pair runs on unmodified released packages; what fails is held against the known defects of
released pairs that come with the product. Ends with 1 below any goal. The outcomes are written
beside the product, which takes them in place of running a user's old pair; those that the emulator or a
scenario has outgrown are named as stale.

A default run has the main scenarios, in all tiers, of three pairs (an older and the newest vllm-omni, the
newest vllm-ascend alone), upgrades with each kind of fix and in each tier, one defect of each kind, and where
the seconds of a command go. A whole run has all of each, and defects that only pipelines execute.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from bench import emulator_defects, emulator_seconds, emulator_side, emulator_upgrades
from bench.emulator_defects import Defect
from bench.emulator_pairs import (
    ALONE,
    MATCHED,
    Row,
    explains,
    play_pair,
    reason,
    stale,
    state,
    write_down,
)
from bench.emulator_upgrades import Reproduced, Upgrade
from bench.shared import Run, begin, each_kind, options, some
from npu_upgrade.gates.emulation.environment import check_machine
from npu_upgrade.gates.emulation.known_defects import KnownDefect, known_defects
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

T = TypeVar("T", Defect, Upgrade)
IMPORT_S, TIER_S, MEMORY_MIB = 20.0, 90.0, 8 * 1024
WHOLE = ("0.24.0", "0.30.0")  # these have to pass in all tiers of the stages below
STAGES = ("ar", "generation", "serve-omni")


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument(
        "--pair", nargs="+", metavar="VERSION", help="these vllm-omni or vllm-ascend versions only"
    )
    parser.add_argument("--scenarios", nargs="+", metavar="NAME", help="core, all, or names")
    parser.add_argument(
        "--part",
        choices=("matrix", "defects", "upgrades", "seconds", "side"),
        help="this part only, all of it",
    )
    parser.add_argument(
        "--case", nargs="+", metavar="ID", help="with --part defects, upgrades or side: these only"
    )
    args = parser.parse_args(argv)
    check_machine()
    run = begin("bench-emulator", args, args.part or args.pair or args.scenarios or args.case)
    figures: dict[str, str] = {}
    missed: list[str] = []
    parts = {"seconds": _seconds, "matrix": _matrix, "upgrades": _upgrades, "defects": _defects}
    if run.whole or args.part:
        parts["side"] = _side
    with tempfile.TemporaryDirectory(prefix="bench-emulator-") as scratch:
        for name, part in parts.items():
            if args.part in (None, name):
                part(args, run, Path(scratch) / name, figures, missed)
    return run.close(figures, missed)


def _seconds(
    args: argparse.Namespace, run: Run, out: Path, figures: dict[str, str], missed: list[str]
) -> None:
    found = emulator_seconds.measure(out)
    print(table(["change", "what", "at s", "took s", "of that start s"], emulator_seconds.cells(found)))
    figures |= {f"emulate_{name}_s": f"{one.total:.0f}" for name, one in found.items()}
    missed += emulator_seconds.short_of_goals(found)


def _matrix(
    args: argparse.Namespace, run: Run, out: Path, figures: dict[str, str], missed: list[str]
) -> None:
    known = known_defects()
    rows: list[Row] = []
    default = [*(pair for pair in MATCHED if pair.omni in WHOLE), ALONE[-1]]
    names = args.scenarios or (["core"] if run.kind == "default" else ["all"])
    pairs = default if run.kind == "default" else [*MATCHED, *ALONE]
    for pair in (pairs := [one for one in pairs if not args.pair or one.name in args.pair]):
        say(f"== {pair}")
        rows += play_pair(pair, names, out / pair.name, run)
    write_down(pairs)
    figures["released_stale"] = str(len(stale()))
    print(
        table(["vllm-omni", "vllm-ascend", "tier", "scenario", "state", "s", "why"], map(_cells(known), rows))
    )
    states = [state(row, known) for row in rows]
    figures["runs"] = str(len(rows))
    for name in ("PASS", "INCONCLUSIVE", "EXPECTED FAIL", "FAIL", "ABSENT"):
        figures[name.lower().replace(" ", "_")] = str(states.count(name))
    figures["import_s"] = f"{_longest(rows, 'import'):.0f}"
    for tier in ("eager", "graph", "serve"):
        figures[f"{tier}_s"] = f"{_longest(rows, tier, STAGES):.0f}"
    figures["memory_mib"] = str(max((row.outcome.peak_mib for row in rows), default=0))
    missed += _short(rows, known, figures)
    missed += [f"{one} comes with the product and is stale: run it again" for one in stale()]


def _upgrades(
    args: argparse.Namespace, run: Run, out: Path, figures: dict[str, str], missed: list[str]
) -> None:
    known = emulator_upgrades.load_upgrades()
    chosen = each_kind(known, lambda one: one.kinds) if run.kind == "default" else known
    rows = emulator_upgrades.run_upgrades(_asked(chosen, args), out, run)
    head = ("upgrade", "run", "before", "after its fix", "what broke")
    print("\n" + table(head, [_upgrade_cells(row) for row in rows]))
    figures["upgrades"] = f"{sum(row.as_recorded for row in rows)}/{len(rows)}"
    missed += [f"upgrade {row.upgrade.id} is not as recorded" for row in rows if not row.as_recorded]


def _side(args: argparse.Namespace, run: Run, out: Path, figures: dict[str, str], missed: list[str]) -> None:
    rows = emulator_side.run_defects(_asked(emulator_side.load_defects(), args), out, run)
    print("\n" + emulator_defects.as_text(rows))
    found = emulator_defects.figures_of(rows)
    figures |= {f"side_{name}": value for name, value in found.items()}
    goals = emulator_side.FEWEST, emulator_side.RECALL
    missed += [] if args.case else emulator_defects.short_of_goals(found, *goals)


def _defects(
    args: argparse.Namespace, run: Run, out: Path, figures: dict[str, str], missed: list[str]
) -> None:
    known = emulator_defects.load_defects()
    chosen = each_kind(known, lambda one: [one.kind]) if run.kind == "default" else known
    rows = emulator_defects.run_defects(_asked(chosen, args), out, run)
    print("\n" + emulator_defects.as_text(rows))
    found = emulator_defects.figures_of(rows)
    figures |= found
    missed += [] if args.case else emulator_defects.short_of_goals(found)


def _asked(cases: Sequence[T], args: argparse.Namespace) -> list[T]:
    return some([one for one in cases if not args.case or one.id in args.case], args.case)


def _upgrade_cells(row: Reproduced) -> tuple[str, ...]:
    one = row.upgrade
    return one.id, one.run, row.before.state, row.after.state, (row.before.why or row.after.why)[:90]


def _short(rows: Sequence[Row], known: Sequence[KnownDefect], figures: dict[str, str]) -> list[str]:
    missed = [f"{row.label}: {row.outcome.why}" for row in rows if state(row, known) == "FAIL"]
    missed += [
        f"{row.label} is {state(row, known)}, goal PASS, or FAIL with a recorded fix"
        for row in rows
        if row.pair.omni in WHOLE and row.outcome.scenario in (*STAGES, "import")
        if row.outcome.state != "PASS" and not _fixed(row, known)
    ]
    limits = dict.fromkeys(("eager_s", "graph_s", "serve_s"), TIER_S)
    limits |= {"import_s": IMPORT_S, "memory_mib": MEMORY_MIB}
    return missed + [
        f"{name} {figures[name]}, goal < {most:g}"
        for name, most in limits.items()
        if float(figures[name]) >= most
    ]


def _fixed(row: Row, known: Sequence[KnownDefect]) -> bool:
    """Whether a recorded fix makes the run pass; the upgrades of this bench show that it does."""
    return any(one.fixed_by and explains(one, row.pair, row.outcome) for one in known)


def _cells(known: Sequence[KnownDefect]):
    def cells(row: Row) -> list[str]:
        pair, outcome = row.pair, row.outcome
        shown = "" if outcome.tier == "import" else outcome.scenario
        said = state(row, known)
        why = reason(row, known)[:90]
        return [pair.omni or "-", pair.ascend, outcome.tier, shown, said, f"{outcome.seconds:.0f}", why]

    return cells


def _longest(rows: Sequence[Row], tier: str, scenarios: Sequence[str] = ()) -> float:
    fitting = [
        r for r in rows if r.outcome.tier == tier and (not scenarios or r.outcome.scenario in scenarios)
    ]
    return max((row.outcome.seconds for row in fitting), default=0.0)


if __name__ == "__main__":
    sys.exit(main())
