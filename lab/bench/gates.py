"""Break servers on purpose and see what the serve gate says: ``make bench-gates``.

Real vLLM on this CPU, tiny checkpoints, every fault done for real. Beside the gate's verdict stands what
three common ways to wait for a server say of the same start. Then what the gate costs over a bare start.

A default run has each kind of fault once: sound servers, engines and servers that die, stop or hang, ports
in use, crashes on requests, bad answers, damaged checkpoints, what a machine lacks, full disks, Ctrl-C, two
gates at once. It leaves out the cases that ``gates_cases`` marks ``again``: another moment, release or shape.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.gates_bare import bare
from bench.gates_cases import CASES, Case
from bench.gates_observers import NAMES
from bench.gates_run import Outcome, faults, play
from bench.shared import Run, begin, options, some
from npu_upgrade.gates.serving.server import HOST, choose_port
from npu_upgrade.gates.vllm_cpu import DEFAULT
from npu_upgrade.ground.errors import Blocked, UpgradeError, report
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

MOST, QUIET, _REPEAT = 1.10, 5.0, 3
_COST = "overhead"


def main() -> int:
    """Exit code 1 when something is judged wrong or costs too much, 3 when something outside is missing."""
    parser = options(__doc__)
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        help=f"words in the name of a case, or {_COST}: what the gate costs; repeatable",
    )
    given = parser.parse_args()
    # a shell starts what runs in the background with interrupts ignored, and a gate would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = begin("bench-gates", given, given.case)
    try:
        found = _all(chosen(run, given.case), run)
        costs = not given.case or _COST in given.case
        cost = run.result(_COST, {}, Cost, measure) if costs else None
    except UpgradeError as error:
        return report(error, as_text=True)
    return _report(found, cost, run)


def chosen(run: Run, words: list[str]) -> list[Case]:
    """The cases of a run."""
    if words:
        found = [one for one in CASES if any(word in one.name for word in words)]
        return found if words == [_COST] else some(found, words)
    return [one for one in CASES if run.whole or not one.again]


def _all(cases: list[Case], run: Run) -> list[tuple[Case, Outcome]]:
    found = {one.name: seen for one in cases if (seen := run.found(one.name, asdict(one), Outcome))}
    left = [one for one in cases if one.name not in found]
    with _other(left) as stale_port:
        for case in left:
            say(case.name)
            found[case.name] = seen = play(case, stale_port)
            wrong = faults(case, seen)
            print(
                f"{case.name}: {', '.join(seen.verdicts)}: {'; '.join(wrong) or 'right'}",
                file=sys.stderr,
                flush=True,
            )
            if not wrong:
                run.store(case.name, asdict(case), seen)
    return [(one, found[one.name]) for one in cases]


@contextlib.contextmanager
def _other(cases: list[Case]) -> Generator[int | None]:
    """Another vLLM for the cases in which one is in the way."""
    if not any(one.stale for one in cases):
        yield None
        return
    say("another vLLM, for cases in which one is in the way")
    port = choose_port(HOST, None)
    with tempfile.TemporaryDirectory(prefix="bench-gates-") as folder, bare(port, Path(folder)):
        yield port


def _report(found: list[tuple[Case, Outcome]], cost: Cost | None, run: Run) -> int:
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
    missed = [f"{case.name}: {one}" for case, seen in found for one in faults(case, seen)]
    missed += [f"overhead {cost.ratio:.3f}, goal < {MOST}"] if cost and cost.ratio >= MOST else []
    return run.close(summary, missed)


def _others(found: list[tuple[Case, Outcome]]) -> dict[str, str]:
    """How often each of the others was right, of the starts where their question has an answer."""
    asked = [(case, seen) for case, seen in found if case.fit is not None and seen.observers]
    names = sorted({name for _, seen in asked for name in seen.observers})
    return {
        name: f"{sum((seen.observers[name] == 'ready') is case.fit for case, seen in asked)}/{len(asked)}"
        for name in names
    }


@dataclass(frozen=True)
class Cost:
    """Seconds of each start; the gate's are with its quiet window."""

    bare: list[float]
    gate: list[float]

    @property
    def ratio(self) -> float:
        """The gate without its quiet window, over a bare start; medians."""
        return (statistics.median(self.gate) - QUIET) / statistics.median(self.bare)

    def as_text(self) -> str:
        rows = [
            (name, f"{statistics.median(seconds):.1f}", ", ".join(f"{one:.1f}" for one in seconds))
            for name, seconds in (("bare vllm serve", self.bare), ("the gate's command", self.gate))
        ]
        return table(("start, answer, end", "median s", "each"), rows)

    def summary(self) -> dict[str, str]:
        return {
            "bare_s": f"{statistics.median(self.bare):.1f}",
            "gate_s": f"{statistics.median(self.gate):.1f}",
            "overhead": f"{100 * (self.ratio - 1):.1f}%",
        }


def measure() -> Cost:
    """Alternately, so that what else the machine does falls on both."""
    case = Case("overhead", ("PASS",), fit=None)
    one, other = [], []
    for number in range(_REPEAT):
        say(f"what the gate costs: {number + 1} of {_REPEAT}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, bare(choose_port(HOST, None), Path(folder)):
            pass
        one.append(round(time.monotonic() - began, 1))
        seen = play(case, None)
        if seen.verdicts != ["PASS"]:
            raise Blocked(f"a sound server got {seen.verdicts}", expected="PASS", try_="make bench-gates")
        other.append(seen.seconds)
    return Cost(one, other)


if __name__ == "__main__":
    sys.exit(main())
