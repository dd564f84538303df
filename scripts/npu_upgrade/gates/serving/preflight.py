"""Before a server is started: is its port free, and is anything left of our own earlier runs?"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

import psutil

from npu_upgrade.errors import Blocked

TOKEN = "NPU_UPGRADE_SERVE"  # in the environment of every server we start, with the run's id


@dataclass(frozen=True)
class Leftover:
    """A process of an earlier run of ours; it is reported, never ended."""

    pid: int
    run: str
    command: str


def check_port(host: str, port: int) -> None:
    """Raise :class:`Blocked` when somebody listens there already: it would answer in our server's place."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise Blocked(
                f"port {port} of {host} is not free: {error.strerror}{_holder(port)}",
                expected="a port that nobody listens on",
                try_=f"stop it if it is yours (ss -ltnp 'sport = :{port}'), or choose another port",
            ) from error


def leftovers() -> list[Leftover]:
    """Living processes of servers that earlier runs of ours started."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            run = process.environ().get(TOKEN)
            if run and process.status() != psutil.STATUS_ZOMBIE:
                found.append(Leftover(process.pid, run, " ".join(process.cmdline())[:200]))
    return found


def _holder(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
                return f" (process {one.pid}: {' '.join(psutil.Process(one.pid).cmdline())[:120]})"
    return ""
