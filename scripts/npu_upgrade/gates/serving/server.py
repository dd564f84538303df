"""One server in a session of its own: on a free port, told from any other, and ended with all it started.

No signal is ever sent to a process that was not started here: what is ended is the process group of the
server, and what else carries its token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
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
    """Living processes of servers that earlier runs of ours started and no gate watches any more.

    Those of another container are its own: their gate has a number there that means nothing here.
    """
    found = []
    here = _namespace(os.getpid())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            run = process.environ().get(TOKEN)
            alive = process.status() != psutil.STATUS_ZOMBIE
            if run and alive and _namespace(process.pid) == here and not _watched(run):
                found.append(Leftover(process.pid, run.partition(":")[0], " ".join(process.cmdline())[:200]))
    return found


def end_leftovers(patience: float = 10.0) -> list[Leftover]:
    """End what :func:`leftovers` finds, the gentle way first; returns what was there.

    They hold ports, memory and devices, and nobody waits for them: a killed gate started them. Raises
    :class:`Blocked` for what cannot be ended.
    """
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
    if still := leftovers():
        shown = "; ".join(f"{one.pid} ({one.command[:80]})" for one in still[:4])
        raise Blocked(
            f"{len(still)} processes of a run that was killed cannot be ended: {shown}",
            expected="none, because they hold ports and memory",
            try_="look why they do not end (ps -o pid,user,stat,wchan,args), or start the machine anew",
        )
    return found


def _namespace(pid: int) -> str:
    """In which process numbers have their meaning; empty where a system has no such thing."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


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


HOST = "127.0.0.1"
_POLL = 0.1  # seconds
SOCKETS = "VLLM_RPC_BASE_PATH"
_LONGEST_SOCKET = 107  # bytes that the kernel takes as the path of one
_SOCKET_NAME = 40  # bytes of the random names that vLLM gives them
_ORPHANS = 3.0  # seconds that processes get to end by themselves after their server


@dataclass(frozen=True)
class Server:
    """``name`` is the served model name that only this server can know; ``group`` its process group."""

    process: subprocess.Popen[bytes]
    url: str
    name: str
    log: Path
    token: str

    @property
    def group(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def sockets(environment: Mapping[str, str]) -> Generator[dict[str, str]]:
    """The environment with a folder for vLLM's sockets, which is gone afterwards.

    Killed engines leave theirs, by default in the folder for temporary files. Nothing is changed where the
    variable is set already, or where that folder's own path is too long for a socket.
    """
    folder = tempfile.gettempdir()
    if SOCKETS in environment or len(folder) > _LONGEST_SOCKET - 2 * _SOCKET_NAME:
        yield dict(environment)
        return
    with tempfile.TemporaryDirectory(prefix="npu-serve-", ignore_cleanup_errors=True) as place:
        yield {**environment, SOCKETS: place}


def start(argv: Sequence[str], environment: Mapping[str, str], *, port: int, log: Path, cwd: Path) -> Server:
    """Start ``argv`` with ``--port`` and a random ``--served-model-name``; stdout and stderr go to ``log``.

    Raises :class:`Blocked` when the port is taken or the program cannot be started.
    """
    check_port(HOST, port)
    name = f"gate-{secrets.token_hex(8)}"
    mark = token(name)
    command = [*argv, "--host", HOST, "--port", str(port), "--served-model-name", name]
    try:
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                command,
                env={**environment, TOKEN: mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    except OSError as error:
        raise Blocked(
            f"cannot start {argv[0]}: {error.strerror or error}",
            expected="a program that runs, and room for its log",
            try_="run it by hand with --help; free some space",
        ) from error
    return Server(process, f"http://{HOST}:{port}", name, log, mark)


def members(server: Server) -> list[psutil.Process]:
    """The living processes of a server, without zombies: its group, and what left it with its token."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _is_ours(process, server) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _is_ours(process: psutil.Process, server: Server) -> bool:
    if os.getpgid(process.pid) == server.group:
        return True
    if process.create_time() < float(server.token.rpartition(":")[2]) or process.uids().real != os.getuid():
        return False
    return process.environ().get(TOKEN) == server.token


def engines(server: Server) -> set[int]:
    """The processes that must stay while the server serves: what it started itself, and vLLM's own by title.

    Helpers of theirs, such as compilers, come and go; one that was forked has its parent's title.
    """
    known = {}
    for process in members(server):
        with contextlib.suppress(psutil.Error):
            known[process.pid] = (process.ppid(), " ".join(process.cmdline()))
    return {
        pid
        for pid, (parent, title) in known.items()
        if parent == server.process.pid or ("VLLM::" in title and known.get(parent, (0, ""))[1] != title)
    }


def stop(server: Server, patience: float = 30.0, hurry: Callable[[], bool] = lambda: False) -> list[str]:
    """SIGTERM, then SIGKILL for what outlives ``patience`` seconds, until nothing of the server is left.

    Returns what did not go by itself, as ``name (pid)``. When the server is dead already, its orphans get a
    moment only. ``hurry`` may cut the waiting short.
    """
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        server_patience = patience
    else:
        server_patience = min(patience, _ORPHANS)
    stubborn = _outlived(server, server_patience, hurry)
    if stubborn:
        _kill(server)
        _outlived(server, patience, lambda: False)
    server.process.wait()
    return stubborn


def _kill(server: Server) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.group, signal.SIGKILL)
    for process in members(server):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _outlived(server: Server, patience: float, hurry: Callable[[], bool]) -> list[str]:
    deadline = time.monotonic() + patience
    while True:
        server.process.poll()  # takes the exit status, so that a zombie is no member
        left = members(server)
        if not left or time.monotonic() > deadline or hurry():
            return [named(process.pid) for process in left]
        time.sleep(_POLL)


def named(pid: int) -> str:
    """``name (pid)``; a title that vLLM sets is longer than the name the kernel keeps."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        title = " ".join(" ".join(process.cmdline()).split())  # a title is padded to the old command line
        return f"{title if title.startswith('VLLM::') else process.name()} ({pid})"
    return f"({pid})"
