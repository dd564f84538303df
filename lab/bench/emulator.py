"""The emulated dry run over releases: versions x tiers x scenarios, seeded defects, natural upgrades.

Each pair runs on unmodified released packages; what fails is held against the known defects of
released pairs in lab/recipes/known_defects.yaml. Ends with 1 below any goal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import emulator_defects
from bench.defects import load_defects
from bench.emulator_known import Known, load_known
from bench.emulator_matrix import ALONE, MATCHED, Row, play_pair
from bench.emulator_upgrades import Reproduced, load_upgrades, run_upgrades
from npu_upgrade.gates.emulation.environment import check_machine
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

IMPORT_S, TIER_S, MEMORY_MIB = 20.0, 90.0, 8 * 1024
WHOLE = ("0.24.0", "0.30.0")  # these have to pass in all tiers of the stages below
STAGES = ("ar", "generation", "serve-omni")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair", nargs="+", metavar="VERSION", help="these vllm-omni or vllm-ascend versions only"
    )
    parser.add_argument("--scenarios", nargs="+", default=["all"], metavar="NAME", help="core, all, or names")
    parser.add_argument(
        "--kept", action="store_true", help="of pairs that ran before, take the outcomes of that run"
    )
    parser.add_argument("--part", choices=("matrix", "defects", "upgrades"), help="this part only")
    parser.add_argument("--case", nargs="+", metavar="ID", help="with --part defects or upgrades: these only")
    args = parser.parse_args(argv)
    check_machine()
    figures: dict[str, str] = {}
    missed: list[str] = []
    if args.part in (None, "matrix"):
        _matrix(args, figures, missed)
    with tempfile.TemporaryDirectory(prefix="bench-emulator-") as scratch:
        if args.part in (None, "upgrades"):
            _upgrades(args.case if args.part else None, Path(scratch), figures, missed)
        if args.part in (None, "defects"):
            _defects(args.case if args.part else None, Path(scratch), figures, missed)
    print("\nbench-emulator: " + " ".join(f"{key}={value}" for key, value in figures.items()))
    print("\n".join(f"not reached: {text}" for text in missed), file=sys.stderr)
    return 1 if missed else 0


def _matrix(args: argparse.Namespace, figures: dict[str, str], missed: list[str]) -> None:
    known = load_known()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-emulator-") as scratch:
        for pair in [*MATCHED, *ALONE]:
            if args.pair and pair.name not in args.pair:
                continue
            say(f"== {pair}")
            rows += play_pair(pair, args.scenarios, Path(scratch) / pair.name, kept=args.kept)
    print(
        table(["vllm-omni", "vllm-ascend", "tier", "scenario", "state", "s", "why"], map(_cells(known), rows))
    )
    states = [_state(row, known) for row in rows]
    figures["runs"] = str(len(rows))
    for state in ("PASS", "INCONCLUSIVE", "EXPECTED FAIL", "FAIL", "ABSENT"):
        figures[state.lower().replace(" ", "_")] = str(states.count(state))
    figures["import_s"] = f"{_longest(rows, 'import'):.0f}"
    for tier in ("eager", "graph", "serve"):
        figures[f"{tier}_s"] = f"{_longest(rows, tier, STAGES):.0f}"
    figures["memory_mib"] = str(max((row.outcome.peak_mib for row in rows), default=0))
    missed += _short(rows, known, figures)


def _upgrades(only: list[str] | None, out: Path, figures: dict[str, str], missed: list[str]) -> None:
    chosen = [one for one in load_upgrades() if not only or one.id in only]
    rows = run_upgrades(chosen, out)
    head = ("upgrade", "run", "before", "after its fix", "what broke")
    print("\n" + table(head, [_upgrade_cells(row) for row in rows]))
    figures["upgrades"] = f"{sum(row.as_recorded for row in rows)}/{len(rows)}"
    missed += [f"upgrade {row.upgrade.id} is not as recorded" for row in rows if not row.as_recorded]


def _upgrade_cells(row: Reproduced) -> tuple[str, ...]:
    one = row.upgrade
    return one.id, one.run, row.before.state, row.after.state, (row.before.why or row.after.why)[:90]


def _defects(only: list[str] | None, out: Path, figures: dict[str, str], missed: list[str]) -> None:
    defects = [one for one in load_defects() if not only or one.id in only]
    rows, found = emulator_defects.run(defects, out)
    print("\n" + emulator_defects.as_text(rows))
    figures |= found
    missed += [] if only else emulator_defects.short_of_goals(found)


def _short(rows: Sequence[Row], known: Sequence[Known], figures: dict[str, str]) -> list[str]:
    missed = [f"{row.label}: {row.outcome.why}" for row in rows if _state(row, known) == "FAIL"]
    missed += [
        f"{row.label} is {_state(row, known)}, goal PASS, or FAIL with a recorded fix"
        for row in rows
        if row.pair.omni in WHOLE and row.outcome.scenario in (*STAGES, "import")
        if row.outcome.state != "PASS" and not _fixed(row, known)
    ]
    limits = {
        "import_s": IMPORT_S,
        "eager_s": TIER_S,
        "graph_s": TIER_S,
        "serve_s": TIER_S,
        "memory_mib": MEMORY_MIB,
    }
    return missed + [
        f"{name} {figures[name]}, goal < {most:g}"
        for name, most in limits.items()
        if float(figures[name]) >= most
    ]


def _state(row: Row, known: Sequence[Known]) -> str:
    expected = row.outcome.state == "FAIL" and any(one.explains(row.pair, row.outcome) for one in known)
    return "EXPECTED FAIL" if expected else row.outcome.state


def _fixed(row: Row, known: Sequence[Known]) -> bool:
    """Whether a recorded fix makes the run pass; the upgrades of this bench show that it does."""
    return any(one.fixed_by and one.explains(row.pair, row.outcome) for one in known)


def _cells(known: Sequence[Known]):
    def cells(row: Row) -> list[str]:
        why = next((one.incident for one in known if one.explains(row.pair, row.outcome)), row.outcome.why)
        pair, outcome = row.pair, row.outcome
        shown = "" if outcome.tier == "import" else outcome.scenario
        state = _state(row, known)
        return [pair.omni or "-", pair.ascend, outcome.tier, shown, state, f"{outcome.seconds:.0f}", why[:90]]

    return cells


def _longest(rows: Sequence[Row], tier: str, scenarios: Sequence[str] = ()) -> float:
    fitting = [
        r for r in rows if r.outcome.tier == tier and (not scenarios or r.outcome.scenario in scenarios)
    ]
    return max((row.outcome.seconds for row in fitting), default=0.0)


if __name__ == "__main__":
    sys.exit(main())
