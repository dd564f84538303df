"""Whether a server is still all there: any end, of any of its processes, is a failure.

vLLM ends with exit code 0 when its engine was killed, so no exit code is asked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field

import psutil

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
