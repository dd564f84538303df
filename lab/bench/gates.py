"""Break servers on purpose and see what the serve gate says: ``make bench-gates``.

Real vLLM on this CPU, tiny checkpoints, every fault done for real. Beside the gate's verdict stands what
three common ways to wait for a server say of the same start. Then what the gate costs over a bare start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

from bench.gates_bare import bare, free_port
from bench.gates_cases import CASES, Case
from bench.gates_cost import MOST, Cost, measure
from bench.gates_judge import faults
from bench.gates_observers import NAMES
from bench.gates_run import Outcome, play
from npu_upgrade.gates.vllm_cpu import DEFAULT
from npu_upgrade.ground.errors import UpgradeError, report
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

_COST = "overhead"


def main() -> int:
    """Exit code 1 when something is judged wrong or costs too much, 3 when something outside is missing."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        help=f"words in the name of a case, or {_COST}: what the gate costs; repeatable",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="outcomes go there, and what is there already is not run"
    )
    given = parser.parse_args()
    # a shell starts what runs in the background with interrupts ignored, and a gate would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [one for one in CASES if not given.case or any(word in one.name for word in given.case)]
    try:
        found = _all(chosen, given.keep)
        cost = _cost(given.keep) if not given.case or _COST in given.case else None
    except UpgradeError as error:
        return report(error, as_text=True)
    return _report(found, cost)


def _all(chosen: list[Case], keep: Path | None) -> list[tuple[Case, Outcome]]:
    found = {one.name: Outcome(**seen) for one in chosen if (seen := _kept(keep, one.name))}
    left = [one for one in chosen if one.name not in found]
    with _other(left) as stale_port:
        for case in left:
            say(case.name)
            found[case.name] = seen = play(case, stale_port)
            said = faults(case, seen) or ["right"]
            print(f"{case.name}: {', '.join(seen.verdicts)}: {'; '.join(said)}", file=sys.stderr, flush=True)
            _keep(keep, case.name, seen.as_json())
    return [(one, found[one.name]) for one in chosen]


@contextlib.contextmanager
def _other(cases: list[Case]) -> Generator[int | None]:
    """Another vLLM for the cases in which one is in the way."""
    if not any(one.stale for one in cases):
        yield None
        return
    say("another vLLM, for cases in which one is in the way")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-gates-") as folder, bare(port, Path(folder)):
        yield port


def _cost(keep: Path | None) -> Cost:
    kept = _kept(keep, _COST)
    cost = Cost(**kept) if kept else measure()
    _keep(keep, _COST, vars(cost))
    return cost


def _kept(keep: Path | None, name: str) -> Mapping | None:
    place = keep / f"{name.replace(' ', '-')}.json" if keep else None
    return json.loads(place.read_text("utf-8")) if place and place.exists() else None


def _keep(keep: Path | None, name: str, outcome: Mapping) -> None:
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        write_json(keep / f"{name.replace(' ', '-')}.json", outcome)


def _report(found: list[tuple[Case, Outcome]], cost: Cost | None) -> int:
    rows = []
    for case, seen in found:
        wrong = faults(case, seen)
        others = [seen.observers.get(name, "-") for name in NAMES]
        rows.append(
            (
                *(case.name, ", ".join(seen.verdicts), seen.root or "-", f"{seen.seconds:.0f}"),
                *(str(len(seen.left)), "; ".join(wrong) or "right", *others),
            )
        )
    head = ("fault", "the gate", "root cause", "s", "left", "judged", "vLLM's helper", "bench serve", "curl")
    print(table(head, rows), end="\n\n")
    right = sum(not faults(case, seen) for case, seen in found)
    summary = {
        "vllm": DEFAULT,
        "cases": len(found),
        "right": right,
        "left_running": sum(len(seen.left) for _, seen in found),
        "bad_evidence": sum(bool(seen.evidence) for _, seen in found),
    } | _others(found)
    if cost:
        print(cost.as_text(), end="\n\n")
        summary |= cost.summary()
    print("bench-gates: " + " ".join(f"{name}={value}" for name, value in summary.items()))
    return 0 if right == len(found) and (cost is None or cost.ratio < MOST) else 1


def _others(found: list[tuple[Case, Outcome]]) -> dict[str, str]:
    """How often each of the others was right, of the starts where their question has an answer."""
    asked = [(case, seen) for case, seen in found if case.fit is not None and seen.observers]
    names = sorted({name for _, seen in asked for name in seen.observers})
    return {
        name: f"{sum((seen.observers[name] == 'ready') is case.fit for case, seen in asked)}/{len(asked)}"
        for name in names
    }


if __name__ == "__main__":
    sys.exit(main())
