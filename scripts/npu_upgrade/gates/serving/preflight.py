"""Before a server is started: is its port free, and is anything left of our own earlier runs?"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from npu_upgrade.ground.errors import Blocked

TOKEN = "NPU_UPGRADE_SERVE"  # in the environment of every server we start: name:pid of the gate:time
_ROOM = 512 << 20  # bytes for logs and evidence


@dataclass(frozen=True)
class Leftover:
    """A process of an earlier run of ours whose gate is gone."""

    pid: int
    run: str
    command: str


def token(name: str) -> str:
    """What marks the processes of a server: its name, this process, and the present time."""
    return f"{name}:{os.getpid()}:{time.time() - 1:.2f}"


def choose_port(host: str, wanted: int | None) -> int:
    """``wanted``, or a free one when None; raises :class:`Blocked` when the wanted one is taken."""
    if wanted is not None:
        check_port(host, wanted)
        return wanted
    with socket.socket() as listener:
        listener.bind((host, 0))
        return listener.getsockname()[1]


def check_port(host: str, port: int) -> None:
    """Raise :class:`Blocked` when somebody listens there already: it would answer in our server's place."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise Blocked(
                f"port {port} of {host} is not free: {why}{_holder(port)}",
                expected="a port that nobody listens on",
                try_=f"stop it if it is yours (ss -ltnp 'sport = :{port}'), or choose another port",
            ) from error


def check_room(folder: Path) -> None:
    """Raise :class:`Blocked` when the disk of the evidence has no room for a log."""
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        raise Blocked(
            f"{free >> 20} MiB are free where the evidence goes ({folder})",
            expected=f"{_ROOM >> 20} MiB for logs",
            try_="free some space, or choose another --workspace",
        )


def leftovers() -> list[Leftover]:
    """Living processes of servers that earlier runs of ours started and no gate watches any more."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            run = process.environ().get(TOKEN)
            if run and process.status() != psutil.STATUS_ZOMBIE and not _watched(run):
                found.append(Leftover(process.pid, run.partition(":")[0], " ".join(process.cmdline())[:200]))
    return found


def check_leftovers() -> None:
    """Raise :class:`Blocked` when there are any: they hold ports, memory and devices."""
    if found := leftovers():
        shown = "; ".join(f"{one.pid} ({one.command[:80]})" for one in found[:4])
        raise Blocked(
            f"{len(found)} processes of an earlier run of this gate still live: {shown}",
            expected="none, because they hold ports and memory",
            try_="add --end-leftovers: it ends these processes, which this gate started, and no others",
        )


def end_leftovers(patience: float = 10.0) -> list[Leftover]:
    """End what :func:`leftovers` finds, the gentle way first; returns what was there."""
    found = leftovers()
    processes = []
    for one in found:
        with contextlib.suppress(psutil.Error):
            processes.append(psutil.Process(one.pid))
            processes[-1].terminate()
    _, alive = psutil.wait_procs(processes, patience)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, patience)
    return found


def _watched(run: str) -> bool:
    """Whether the gate that started it still lives; a younger process of its number is another one."""
    _, pid, at = [*run.split(":"), "", ""][:3]
    try:
        return psutil.Process(int(pid)).create_time() <= float(at) + 1.5
    except (psutil.Error, ValueError):
        return False


def _holder(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
                return f" (process {one.pid}: {' '.join(psutil.Process(one.pid).cmdline())[:120]})"
    return ""
