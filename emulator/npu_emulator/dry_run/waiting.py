"""Wait for a scenario's process, and tell a hang from a machine with too much to do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

LOOKED_AT = 10  # seconds of looking whether anything still moves


class Waited:
    """A forked session leader and its time limit; :meth:`ended` is asked again and again."""

    def __init__(self, pid: int, deadline: float) -> None:
        self.pid = pid
        self.late = self.idle = False
        self._deadline = deadline
        self._before: float | None = None

    def ended(self) -> int | None:
        """The exit status, or None while it runs; one that is late is looked at for a while, then ended.

        ``late`` then tells that it had to be ended, ``idle`` that nothing of its session moved.
        """
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() < self._deadline:
            return None
        if self._before is None:
            self._before, self._deadline = cpu_seconds(self.pid), time.monotonic() + LOOKED_AT
            return None
        self.late, self.idle = True, cpu_seconds(self.pid) - self._before < LOOKED_AT / 20
        os.killpg(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def cpu_seconds(session: int) -> float:
    """The processor time that the living processes of a session have used so far."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])  # in user mode, and in the kernel for it
    return ticks / os.sysconf("SC_CLK_TCK")
