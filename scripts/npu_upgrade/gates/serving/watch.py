"""Whether a starting server still gets on: each phase has its own budget, and standing still is noticed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from npu_upgrade.gates.serving.checks import Check, failed, unsure
from npu_upgrade.gates.serving.server import Server, members

BUDGETS = {"start": 300.0, "load": 1800.0, "compile": 1800.0, "capture": 1800.0}  # seconds
STILL = 120.0  # seconds without a byte of log and without work of the CPU
LONGEST_LOG = 2 << 30  # bytes
_MARKS = {
    "load": (b"Starting to load model", b"Loading safetensors", b"Loading weights"),
    "compile": (b"torch.compile t", b"Compiling a graph", b"Dynamo bytecode", b"for the compilation"),
    "capture": (b"Capturing", b"Starting to capture"),
}
_BUSY = 0.05  # cores in use that count as work; what waits for another process polls with less
_SAMPLE = 5.0  # seconds between two looks at the CPU


@dataclass
class Watch:
    """Look at it often; ``look`` says what is wrong, or nothing. ``phases`` are those that ended."""

    server: Server
    budgets: Mapping[str, float] = field(default_factory=lambda: BUDGETS)
    still: float = STILL
    phase: str = "start"
    phases: list[tuple[str, float]] = field(default_factory=list)
    longest_log: int = LONGEST_LOG
    _since: float = field(default_factory=time.monotonic)
    _moved: float = field(default_factory=time.monotonic)
    _sampled: float = field(default_factory=time.monotonic)
    _read: int = 0
    _worked: float = 0.0

    def look(self) -> Check | None:
        """A hang and a flood are failures; one that works on past its budget is not judged."""
        now = time.monotonic()
        if self._grew() | self._works(now):
            self._moved = now
        if now - self._moved > self.still:
            return failed(
                "start", f"it stands still in phase {self.phase}: no log and no work for {self.still:.0f} s"
            )
        if self.server.log.stat().st_size > self.longest_log:
            return failed("start", f"it floods its log: more than {self.longest_log >> 20} MiB")
        budget = self.budgets[self.phase]
        if now - self._since > budget:
            return unsure(
                "start",
                f"phase {self.phase} takes longer than its budget of {budget:.0f} s while it works on;"
                f" raise it (--budget {self.phase}=SECONDS) or find what is slow",
            )
        return None

    def end(self) -> None:
        """The server is up: the last phase ends here."""
        self._grew()  # a quick start passes through phases between two looks
        self._enter("ready")

    def _grew(self) -> bool:
        with open(self.server.log, "rb") as stream:
            stream.seek(self._read)
            fresh = stream.read(16 << 20)
        self._read += len(fresh)
        for phase, marks in _MARKS.items():
            if _later(phase, self.phase) and any(mark in fresh for mark in marks):
                self._enter(phase)
        return bool(fresh)

    def _enter(self, phase: str) -> None:
        now = time.monotonic()
        self.phases.append((self.phase, round(now - self._since, 1)))
        self.phase, self._since = phase, now

    def _works(self, now: float) -> bool:
        if now - self._sampled < _SAMPLE:
            return False
        total = 0.0
        for process in members(self.server):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        rate = abs(total - self._worked) / (now - self._sampled)
        self._worked, self._sampled = total, now
        return rate >= _BUSY


def _later(phase: str, than: str) -> bool:
    order = list(BUDGETS)
    return order.index(phase) > order.index(than)
