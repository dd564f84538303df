"""Whether a server comes up and stays: each phase has its own budget, and a standstill or any end is noticed.

vLLM ends with exit code 0 when its engine was killed, so no exit code is asked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure
from npu_upgrade.gates.serving.requests import Client, settled
from npu_upgrade.gates.serving.server import Server, engines, members, named

LONGEST_LOG = 256 << 20  # bytes: more says nothing new, and all of it is searched and redacted
_LOOK = 0.15  # seconds for which a look holds
_STOPPED = 2.0  # seconds in the state "stopped" that are no accident of looking


@dataclass
class Lifeline:
    """``stays`` are the processes that may not end, with their names; empty until the server is up."""

    server: Server
    longest_log: int = LONGEST_LOG
    stays: dict[int, str] = field(default_factory=dict)
    _stopped: dict[int, float] = field(default_factory=dict)
    _found: str = ""
    _looked: float = 0.0
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def hold(self) -> None:
        """From now on all engine processes that are there have to stay."""
        self.stays = {pid: named(pid) for pid in engines(self.server)}

    def broken(self) -> str:
        """What ended or stands still, in one sentence; empty while all is well.

        Looking at all processes takes work: of many requests that wait at once, one looks for all of them.
        """
        if time.monotonic() - self._looked < _LOOK or not self._looking.acquire(blocking=False):
            return self._found
        try:
            self._found = self._look()
            self._looked = time.monotonic()
        finally:
            self._looking.release()
        return self._found

    def _look(self) -> str:
        code = self.server.process.poll()
        if code is not None:
            return f"the server ended (exit code {code})"
        if os.path.getsize(self.server.log) > self.longest_log:
            return f"the server floods its log: more than {self.longest_log >> 20} MiB"
        there = {process.pid: process for process in members(self.server)}
        gone = [name for pid, name in self.stays.items() if pid not in there]
        if gone:
            time.sleep(0.5)  # an API server that notices ends too, and says more in its log
            return f"{', '.join(gone)} ended while the server ran"
        return self._standing(there)

    def _standing(self, there: dict[int, psutil.Process]) -> str:
        now = time.monotonic()
        halted = set()
        for pid, process in there.items():
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    halted.add(pid)
        self._stopped = {pid: self._stopped.get(pid, now) for pid in halted}
        long = [pid for pid, since in self._stopped.items() if now - since >= _STOPPED]
        return f"{', '.join(map(named, long))} is stopped (SIGSTOP) and does nothing" if long else ""


BUDGETS = {"start": 300.0, "load": 1800.0, "compile": 1800.0, "capture": 1800.0}  # seconds
STILL = 180.0  # seconds without log and work; HCCL says what it waits for after 120
_MARKS = {
    "load": (b"Starting to load model", b"Loading safetensors", b"Loading weights"),
    "compile": (b"torch.compile t", b"Compiling a graph", b"Dynamo bytecode", b"for the compilation"),
    "capture": (b"Capturing", b"Starting to capture"),
}
_DYING = (b"EngineCore failed to start", b"EngineCore encountered a fatal error")
_DIES = 10.0  # seconds in which a server ends whose engine said so
_BUSY = 0.05  # cores in use that count as work; what waits for another process polls with less
_READS = 1 << 20  # bytes a second that count as work: weights come slowly from a far disk, with an idle CPU
_SAMPLE = 5.0  # seconds between two looks at the work


@dataclass
class Watch:
    """Look at it often; ``look`` says what is wrong, or nothing. ``phases`` are those that ended."""

    server: Server
    budgets: Mapping[str, float] = field(default_factory=lambda: BUDGETS)
    still: float = STILL
    phase: str = "start"
    phases: list[tuple[str, float]] = field(default_factory=list)
    _since: float = field(default_factory=time.monotonic)
    _moved: float = field(default_factory=time.monotonic)
    _sampled: float = field(default_factory=time.monotonic)
    _read: int = 0
    _worked: float = 0.0
    _dying: float | None = None

    def look(self) -> Check | None:
        """A hang is a failure; one that works on past its budget is not judged."""
        now = time.monotonic()
        if self._grew() | self._works(now):
            self._moved = now
        if self._dying and now - self._dying > _DIES:
            # its threads may go on, which looks like work
            return failed("start", f"its engine failed, and {_DIES:.0f} s later the server has not ended")
        if now - self._moved > self.still:
            why = f"it stands still in phase {self.phase}: no log and no work for {self.still:.0f} s"
            return failed("start", why)
        budget = self.budgets[self.phase]
        if now - self._since > budget:
            return unsure(
                "start",
                f"phase {self.phase} takes longer than its budget of {budget:.0f} s while it works on;"
                f" raise it (--budget {self.phase}=SECONDS) or find what is slow",
            )
        return None

    @property
    def engine_failed(self) -> bool:
        """Whether the server's log says that its engine failed."""
        return self._dying is not None

    def end(self) -> None:
        """The server is up: the last phase ends here."""
        self._grew()  # a quick start passes through phases between two looks
        self._enter("ready")

    def _grew(self) -> bool:
        with open(self.server.log, "rb") as stream:
            stream.seek(self._read)
            fresh = stream.read(16 << 20)
        self._read += len(fresh)
        if self._dying is None and any(mark in fresh for mark in _DYING):
            self._dying = time.monotonic()
        order = list(BUDGETS)
        for phase, marks in _MARKS.items():
            if order.index(phase) > order.index(self.phase) and any(mark in fresh for mark in marks):
                self._enter(phase)
        return bool(fresh)

    def _enter(self, phase: str) -> None:
        now = time.monotonic()
        self.phases.append((self.phase, round(now - self._since, 1)))
        self.phase, self._since = phase, now

    def _works(self, now: float) -> bool:
        if now - self._sampled < _SAMPLE:
            return False
        worked = 0.0
        for process in members(self.server):
            with contextlib.suppress(psutil.Error, OSError):
                times = process.cpu_times()
                worked += (times.user + times.system) / _BUSY
                read = process.io_counters()
                worked += (read.read_bytes + read.read_chars) / _READS
        rate = abs(worked - self._worked) / (now - self._sampled)
        self._worked, self._sampled = worked, now
        return rate >= 1


_POLL = 0.2  # seconds


def wait_until_up(client: Client, lifeline: Lifeline, watch: Watch) -> Check:
    """Wait until the server is up; says why it is not. Up is not ready: nothing was generated yet."""
    while True:
        if why := lifeline.broken():
            return failed("start", f"{why} before it served, in phase {watch.phase}")
        if trouble := watch.look():
            return trouble
        if client.healthy() and (names := client.models(keep=False)):
            if lifeline.server.name in names:
                watch.end()
                lifeline.hold()
                return passed("start")
            return failed("start", f"another server answers on its port: it serves {', '.join(names)}")
        time.sleep(_POLL)


def stays(client: Client, lifeline: Lifeline, seconds: float) -> Check:
    """A quiet window after everything was asked: nothing may end, and it has to stay healthy."""
    deadline = time.monotonic() + seconds
    while True:
        if why := lifeline.broken():
            return failed("quiet", f"{why}, after it had served")
        if not client.healthy():
            why = settled(lifeline.broken) or "the server is not healthy any more"
            return failed("quiet", f"{why}, after it had served")
        if time.monotonic() > deadline:
            return passed("quiet")
        time.sleep(_POLL)
