"""What the gate costs: its whole command against a bare start, one answer and the end, in turns."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.gates_bare import bare, free_port
from bench.gates_cases import Case
from bench.gates_run import play
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.progress import say
from npu_upgrade.ground.tables import table

MOST, QUIET, _REPEAT = 1.10, 5.0, 3


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
        with tempfile.TemporaryDirectory() as folder, bare(free_port(), Path(folder)):
            pass
        one.append(round(time.monotonic() - began, 1))
        seen = play(case, None)
        if seen.verdicts != ["PASS"]:
            raise Blocked(f"a sound server got {seen.verdicts}", expected="PASS", try_="make bench-gates")
        other.append(seen.seconds)
    return Cost(one, other)
