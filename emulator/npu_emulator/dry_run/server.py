"""One real server process in a group of its own: start it, wait until it serves, ask it, see it gone.

Nothing is ever ended but the server's own process group.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_emulator import record

READY_SECONDS = 400  # of a busy machine; an idle one needs less than 90
STOP_SECONDS = 30
_ANSWER_SECONDS = 90


class NotServing(RuntimeError):
    """The server ended, or did not become ready in time."""


@dataclass
class Server:
    """A running server: its process, where it listens, and the model name that only it can know."""

    process: subprocess.Popen
    url: str
    name: str


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def flags(options: dict) -> list[str]:
    """Engine arguments as options of the command line."""
    found = []
    for key, value in options.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{name}" if value else f"--no-{name}")
        else:
            found += [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def start(command: list[str], environment: dict[str, str], port: int, name: str) -> Server:
    """Start ``command`` and wait until it is healthy and serves ``name``; raises :class:`NotServing`."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
    record.note("group", group=process.pid)  # whoever ends this scenario ends the server too
    server = Server(process, f"http://127.0.0.1:{port}", name)
    try:
        _wait(server)
    except BaseException:
        stop(server)  # nobody else holds it yet
        raise
    return server


def _wait(server: Server) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _serves(server):
        if server.process.poll() is not None:
            raise NotServing(f"the server ended with status {server.process.returncode} before it served")
        if time.monotonic() > deadline:
            raise NotServing(f"the server was not ready after {READY_SECONDS} s")
        time.sleep(0.3)


def _serves(server: Server) -> bool:
    try:
        with urllib.request.urlopen(server.url + "/health", timeout=5) as answer:
            healthy = answer.status == 200
        with urllib.request.urlopen(server.url + "/v1/models", timeout=5) as answer:
            models = [model["id"] for model in json.load(answer)["data"]]
    except OSError:  # not listening yet, or not healthy yet
        return False
    if healthy and server.name not in models:
        raise NotServing(f"another server answers at {server.url}: it serves {models}")
    return healthy


def post(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON answer to a JSON request; raises :class:`NotServing` with what a refusal says."""
    with _open(server, path, body) as answer:
        return json.load(answer)


def content(
    server: Server, path: str, body: dict[str, Any], written: Callable[[dict], str] = json.dumps
) -> bytes:
    """The whole answer as it came, a file or a stream; raises :class:`NotServing`.

    ``written`` makes the request's text of its fields: JSON, or a form by ``urllib.parse.urlencode``.
    """
    with _open(server, path, body, written) as answer:
        return answer.read()


def stream(server: Server, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer; raises :class:`NotServing` when its end is missing."""
    with _open(server, path, body | {"stream": True}) as answer:
        for line in answer:
            text = line.decode().removeprefix("data: ").strip()
            if text == "[DONE]":
                return
            if text:
                yield json.loads(text)
    raise NotServing(f"the stream of {path} ended without [DONE]")


def _open(server: Server, path: str, body: dict[str, Any], written: Callable[[dict], str] = json.dumps):
    kind = "json" if written is json.dumps else "x-www-form-urlencoded"
    request = urllib.request.Request(
        server.url + path,
        data=written({"model": server.name} | body).encode(),
        headers={"Content-Type": f"application/{kind}"},
    )
    try:
        return urllib.request.urlopen(request, timeout=_ANSWER_SECONDS)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:500]
        raise NotServing(f"{path} was answered with {error.code}: {text}") from None
    except OSError as error:
        raise NotServing(f"{path} was not answered: {error}") from None  # the cause says less


def stop(server: Server) -> str:
    """End the server as an operator does, and empty its group; the reason it did not end well, or nothing."""
    group = server.process.pid
    if server.process.poll() is not None:
        why = f"the server had ended with status {server.process.returncode}"
    else:
        server.process.send_signal(signal.SIGTERM)
        why = _outlived(server)
    if members(group):
        os.killpg(group, signal.SIGKILL)
        server.process.wait()
    return why


def _outlived(server: Server) -> str:
    deadline = time.monotonic() + STOP_SECONDS
    while members(server.process.pid):
        server.process.poll()  # takes the exit status, so that a zombie is no member
        if time.monotonic() > deadline:
            left = ", ".join(members(server.process.pid))
            return f"{STOP_SECONDS} s after SIGTERM there still are: {left}"
        time.sleep(0.1)
    return ""


def members(group: int) -> list[str]:
    """The living processes of a process group, each as ``name (pid)``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        state, _, member_of = rest.split()[:3]
        if int(member_of) == group and state not in "ZX":
            found.append(f"{name} ({path.parent.name})")
    return found
