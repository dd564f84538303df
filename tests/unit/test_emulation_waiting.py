"""A scenario that is late: one that waits for ever is told from one that still computes."""

import os
import sys
import time

import pytest

from npu_emulator.dry_run import server, waiting

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.fixture(autouse=True)
def short_look(monkeypatch):
    monkeypatch.setattr(waiting, "LOOKED_AT", 1)


def started(code: str) -> int:
    """A session of two processes, of which the second runs ``code``."""
    command = [sys.executable, "-c", CHILD, code]
    return os.posix_spawn(sys.executable, command, os.environ, setsid=True)  # nothing else waits for it


def gone(group: int) -> bool:
    """Whether nothing of the group is left; the kernel may take a moment to end what was killed."""
    deadline = time.monotonic() + 10
    while server.members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("code", "idle"), [("import time; time.sleep(60)", True), ("while True: pass", False)]
)
def test_late(code: str, idle: bool):
    pid = started(code)
    one = waiting.Waited(pid, time.monotonic() + 1.5)
    assert waited_for(one) == -9
    assert (one.late, one.idle) == (True, idle)
    assert gone(pid)


def test_in_time():
    one = waiting.Waited(started("raise SystemExit(3)"), time.monotonic() + 60)
    assert (waited_for(one), one.late, one.idle) == (0, False, False)


def waited_for(one: waiting.Waited) -> int:
    """Its exit status, once it has ended."""
    while (status := one.ended()) is None:
        time.sleep(0.05)
    return status


def test_used_time_is_that_of_the_whole_session():
    assert waiting.cpu_seconds(os.getsid(0)) > 0
    assert waiting.cpu_seconds(2**30) == 0
