"""Wait for a scenario's process, and tell a hang from a machine with too much to do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

LOOKED_AT = 10  # seconds of looking whether anything still moves


def wait(pid: int, deadline: float) -> tuple[int, bool, bool]:
    """The exit status of a session leader, whether it had to be ended, and whether nothing moved then."""
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False, False
        time.sleep(0.05)
    before = cpu_seconds(pid)
    time.sleep(LOOKED_AT)
    idle = cpu_seconds(pid) - before < LOOKED_AT / 20
    os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), True, idle


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
