"""Adapt tiny models by `adapt.py next` alone, and see whether each ends in one commit: ``make bench-adapt``.

Checkpoints of every family, as vLLM knows them and under architectures that nobody serves. No model takes
part: every command is the one that `next` named, and a decision that is left open is taken from a table. A
walk is good when the model is served, equals Transformers, its features are judged, and there is one
signed-off commit with whose page vllm-ascend's own site builds. Broken checkpoints have
to be stopped with their cause, before anything is committed.

A default run has one of each kind, a whole one every model, and goes on where it was cut.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from bench.adapt_cases import BROKEN, CASES, Case
from bench.adapt_walk import Walk, stopped, walk
from bench.shared import begin, options, some
from npu_upgrade.ground.errors import UpgradeError, report
from npu_upgrade.ground.tables import table


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 when a walk does not end as it has to, 3 when something outside is missing."""
    parser = options(__doc__)
    parser.add_argument("--case", action="append", default=[], help="the name of a case; repeatable")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the workspaces there")
    args = parser.parse_args(argv)
    run = begin("bench-adapt", args, args.case)
    every = [*CASES, *BROKEN]
    chosen = [one for one in every if run.whole or one.default]
    if args.case:
        chosen = some([one for one in every if one.name in args.case], args.case)
    out = (args.out or Path(tempfile.mkdtemp(prefix="bench-adapt-"))).absolute()
    walks: list[Walk] = []
    try:
        for one in chosen:
            play = stopped if one.cause else walk
            walks.append(run.result(one.name, _content(one), Walk, play, one, out, good=lambda it: it.good))
    except UpgradeError as error:
        return report(error, as_text=True)
    if args.out is None and all(one.good for one in walks):
        shutil.rmtree(out, ignore_errors=True)
    return _close(run, walks)


def _content(case: Case) -> list[str]:
    return [case.name, case.checkpoint, case.cause, *case.left_out]


def _close(run, walks: list[Walk]) -> int:
    rows = [
        (one.name, "right" if one.good else "wrong", f"{one.seconds:.0f}", str(one.calls), str(one.printed),
         one.reference or "-", "; ".join(one.problems)[:120] or one.said[:120])
        for one in walks
    ]  # fmt: skip
    print(table(("model", "", "s", "calls", "characters", "Transformers", ""), rows))
    walked = [one for one in walks if one.commit or not one.broken]
    seconds = sorted(one.seconds for one in walked)
    figures = {
        "models": len(walked),
        "delivered": sum(one.good for one in walked),
        "equal": sum(one.reference == "equal" for one in walked),
        "unserved": sum(one.own for one in walked),
        "broken": len(walks) - len(walked),
        "stopped": sum(one.good for one in walks if one.broken),
        "median_s": f"{seconds[len(seconds) // 2]:.0f}" if seconds else 0,
        "characters": max((one.printed for one in walked), default=0),
    }
    missed = [f"{one.name}: {problem}" for one in walks for problem in one.problems]
    return run.close(figures, missed)


if __name__ == "__main__":
    sys.exit(main())
