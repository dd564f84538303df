"""Real pipelines of vllm-omni on the emulated NPU: releases x pipelines, each served, asked and judged.

Each has the release's own model code and deploy file on a tiny checkpoint; what is smaller than in the
release stands below the table. Ends with 1 when a cell fails for no known defect of a release, or cannot be
judged. A default run has the newest release, a whole one every release.

A whole run, and one with --stages, breaks one computation of each stage that is compared
(lab/recipes/stages.yaml): its pipeline has to fail.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench import emulator_defects, emulator_side
from bench.emulator_pairs import MATCHED, Pair, play_pair, reason, state
from bench.shared import begin, options
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.environment import check_machine
from npu_upgrade.gates.emulation.known_defects import known_defects
from npu_upgrade.gates.emulation.outcome import ABSENT, PASS
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

_GOOD = (PASS, ABSENT, "EXPECTED FAIL")
PAIRS = [*MATCHED, Pair("0.32.0rc1", "0.30.0rc2")]  # no vllm-ascend follows the last one yet


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--pair", nargs="+", metavar="VERSION", help="these vllm-omni versions only")
    parser.add_argument(
        "--scenarios", nargs="+", default=["all"], metavar="NAME", help="these pipelines only"
    )
    parser.add_argument("--stages", action="store_true", help="the broken stages only")
    args = parser.parse_args(argv)
    check_machine()
    run = begin("bench-pipelines", args, args.pair or args.scenarios != ["all"] or args.stages)
    pairs = [] if args.stages else PAIRS if run.whole or args.pair else MATCHED[-1:]
    known, rows = known_defects(), []
    with tempfile.TemporaryDirectory(prefix="bench-pipelines-") as scratch:
        for pair in (one for one in pairs if not args.pair or one.omni in args.pair):
            say(f"== {pair}")
            rows += play_pair(pair, args.scenarios, Path(scratch) / pair.name, run, ["pipelines"])
        broken = emulator_side.load_defects("stages") if run.whole or args.stages else []
        stages = emulator_side.run_defects(broken, Path(scratch) / "stages", run)
    cells = [
        (
            one.pair.omni,
            one.pair.ascend,
            one.outcome.scenario,
            state(one, known),
            f"{one.outcome.seconds:.0f}",
            str(one.outcome.peak_mib),
            reason(one, known)[:110],
        )
        for one in rows
    ]
    if rows:
        print(table(["vllm-omni", "vllm-ascend", "pipeline", "state", "s", "MiB", "why"], cells))
        for _, one in chosen(args.scenarios, ["pipelines"], omni=True):
            print(f"{one.name}: {one.shows}")
    if stages:
        print(emulator_defects.as_text(stages))
    states = [state(row, known) for row in rows]
    figures = {name.lower().replace(" ", "_"): states.count(name) for name in dict.fromkeys(states)}
    missed = [f"{row.label}: {row.outcome.why}" for row in rows if state(row, known) not in _GOOD]
    if stages:
        figures |= {"stages": len(stages), "stages_caught": sum(bool(one.caught) for one in stages)}
        missed += [f"{one.defect.id}: not seen" for one in stages if not one.caught]
    return run.close({"cells": len(rows)} | figures, missed)


if __name__ == "__main__":
    sys.exit(main())
