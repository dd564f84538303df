"""One server in a session of its own: started, told from any other, and ended until nothing of it is left.

No signal is ever sent to anything but the process group that was started here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from npu_upgrade.gates.serving.preflight import TOKEN, check_port

HOST = "127.0.0.1"
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class Server:
    """``name`` is the served model name that only this server can know; ``group`` its process group."""

    process: subprocess.Popen[bytes]
    url: str
    name: str
    log: Path

    @property
    def group(self) -> int:
        return self.process.pid


def start(argv: Sequence[str], environment: Mapping[str, str], *, port: int, log: Path, cwd: Path) -> Server:
    """Start ``argv`` with ``--port`` and a random ``--served-model-name``; stdout and stderr go to ``log``.

    Raises :class:`Blocked` when the port is taken.
    """
    check_port(HOST, port)
    name = f"gate-{secrets.token_hex(8)}"
    command = [*argv, "--host", HOST, "--port", str(port), "--served-model-name", name]
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command,
            env={**environment, TOKEN: name},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    return Server(process, f"http://{HOST}:{port}", name, log)


def members(group: int) -> list[psutil.Process]:
    """The living processes of a group, without zombies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def engines(server: Server) -> set[int]:
    """The processes that must stay while the server serves: what it started itself, and vLLM's own by title.

    Helpers of theirs, such as compilers, come and go.
    """
    found = set()
    for process in members(server.group):
        with contextlib.suppress(psutil.Error):
            if process.ppid() == server.process.pid or "VLLM::" in " ".join(process.cmdline()):
                found.add(process.pid)
    return found


def stop(server: Server, patience: float = 30.0) -> list[str]:
    """SIGTERM, then SIGKILL for what outlives ``patience`` seconds, until the group is empty.

    Returns what did not go by itself, as ``name (pid)``.
    """
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
    stubborn = _outlived(server, patience)
    if stubborn:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.group, signal.SIGKILL)
        _outlived(server, patience)
    server.process.wait()
    return stubborn


def _outlived(server: Server, patience: float) -> list[str]:
    deadline = time.monotonic() + patience
    while True:
        server.process.poll()  # takes the exit status, so that a zombie is no member
        left = members(server.group)
        if not left or time.monotonic() > deadline:
            return [_named(process) for process in left]
        time.sleep(_POLL)


def _named(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return f"({process.pid})"
