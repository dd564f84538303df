"""Whether a starting server still gets on: each phase has its own budget, and standing still is noticed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from npu_upgrade.gates.serving.server import members

BUDGETS = {"start": 300.0, "load": 1800.0, "compile": 1800.0, "capture": 1800.0}  # seconds
STILL = 120.0  # seconds without a byte of log and without work of the CPU
_MARKS = {
    "load": (b"Starting to load model", b"Loading safetensors", b"Loading weights"),
    "compile": (b"torch.compile", b"Compiling a graph", b"Dynamo bytecode"),
    "capture": (b"Capturing", b"Starting to capture"),
}
_BUSY = 0.2  # CPU seconds between two looks that count as work


@dataclass
class Watch:
    """Look at it often; ``look`` says what is wrong, or nothing."""

    log: Path
    group: int
    budgets: Mapping[str, float] = field(default_factory=lambda: BUDGETS)
    still: float = STILL
    phase: str = "start"
    _since: float = field(default_factory=time.monotonic)
    _moved: float = field(default_factory=time.monotonic)
    _read: int = 0
    _worked: float = 0.0

    def look(self) -> str:
        now = time.monotonic()
        if self._grew() | self._works():
            self._moved = now
        if now - self._moved > self.still:
            return f"it stands still in phase {self.phase}: no log and no work for {self.still:.0f} s"
        if now - self._since > self.budgets[self.phase]:
            return f"phase {self.phase} takes longer than its budget of {self.budgets[self.phase]:.0f} s"
        return ""

    def _grew(self) -> bool:
        with open(self.log, "rb") as stream:
            stream.seek(self._read)
            fresh = stream.read(1 << 20)
        self._read += len(fresh)
        for phase, marks in _MARKS.items():
            if phase != self.phase and any(mark in fresh for mark in marks) and _later(phase, self.phase):
                self.phase, self._since = phase, time.monotonic()
        return bool(fresh)

    def _works(self) -> bool:
        total = 0.0
        for process in members(self.group):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        worked = abs(total - self._worked) >= _BUSY
        if worked:
            self._worked = total
        return worked


def _later(phase: str, than: str) -> bool:
    order = list(BUDGETS)
    return order.index(phase) > order.index(than)
