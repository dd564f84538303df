"""Faults that are done to a running server from outside, each at its moment."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_POLL = 0.05  # seconds
_ENGINE = "VLLM::EngineCor"
_ENDING = b"shutdown triggered"


@dataclass
class Scene:
    """One gate while it works: ``said`` are its progress lines so far, ``server`` the server's process.

    ``scratch``: where the gate keeps the log of the running server; ``disk``: a folder on a small disk.
    """

    gate: psutil.Popen
    port: int
    scratch: Path
    disk: Path | None = None
    stale_port: int | None = None
    server: int | None = None
    said: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    held: list[socket.socket] = field(default_factory=list)

    def engine(self) -> psutil.Process | None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                ours = self.server and os.getpgid(process.pid) == self.server
                if ours and _ENGINE in " ".join(process.cmdline()):
                    return process
        return None

    def log_has(self, text: bytes) -> bool:
        return any(text in path.read_bytes() for path in self.scratch.glob("*/server.log"))

    def close(self) -> None:
        self.over.set()
        for one in self.held:
            one.close()


_MOMENTS: dict[str, Callable[[Scene], bool]] = {
    "started": lambda scene: scene.server is not None,
    "engine": lambda scene: scene.engine() is not None,
    "up": lambda scene: any(" up after " in line for line in scene.said),
    "ending": lambda scene: scene.log_has(_ENDING),
}


def inject(scene: Scene, what: str) -> None:
    """Wait for the moment of ``action@moment`` and do it, unless the gate is over before."""
    action, _, moment = what.partition("@")
    while not scene.over.is_set() and not _MOMENTS[moment](scene):
        time.sleep(_POLL)
    if not scene.over.is_set():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            _ACTIONS[action](scene)


def _signal_engine(number: int) -> Callable[[Scene], None]:
    def send(scene: Scene) -> None:
        engine = scene.engine()
        if engine:
            engine.send_signal(number)

    return send


def _signal_server(number: int) -> Callable[[Scene], None]:
    return lambda scene: os.kill(scene.server or 0, number) if scene.server else None


def _take_port(scene: Scene) -> None:
    """Somebody else listens, and answers nothing."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", scene.port))
    listener.listen()
    scene.held.append(listener)


def _forward_port(scene: Scene) -> None:
    """Whoever asks on the server's port gets the answers of another vLLM."""
    _take_port(scene)
    threading.Thread(target=_forward, args=(scene, scene.held[-1]), daemon=True).start()


def _forward(scene: Scene, listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
            other = socket.create_connection(("127.0.0.1", scene.stale_port or 0))
        except OSError:
            return
        for source, sink in ((client, other), (other, client)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _fill_disk(scene: Scene) -> None:
    """Write until the disk of the evidence takes no more. It is mounted in the gate's namespace only."""
    assert scene.disk is not None
    inside = Path(f"/proc/{scene.gate.pid}/root{scene.disk}/ballast")
    with contextlib.suppress(OSError), open(inside, "wb", buffering=0) as stream:
        while stream.write(bytes(1 << 20)):
            pass
    with contextlib.suppress(OSError), open(inside, "ab", buffering=0) as stream:
        while stream.write(b"x"):
            pass


_ACTIONS: dict[str, Callable[[Scene], None]] = {
    "kill-engine": _signal_engine(signal.SIGKILL),
    "stop-engine": _signal_engine(signal.SIGSTOP),
    "kill-server": _signal_server(signal.SIGKILL),
    "end-server": _signal_server(signal.SIGTERM),
    "take-port": _take_port,
    "forward-port": _forward_port,
    "fill-disk": _fill_disk,
    "interrupt": lambda scene: os.killpg(scene.gate.pid, signal.SIGINT),
}
