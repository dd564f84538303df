"""A bare ``vllm serve``, as started by hand: another server on the port, and the gate's yardstick."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import psutil

from bench.gates_cases import SMALL
from npu_upgrade.gates.vllm_cpu import cpu_python, tiny
from npu_upgrade.ground.errors import Blocked

_PATIENCE = 300.0  # seconds


@contextlib.contextmanager
def bare(port: int, folder: Path, model: str = "successor") -> Generator[float]:
    """Serves until the end of the block; yields the seconds until its first successful completion.

    Raises :class:`Blocked` when there is none.
    """
    command = [str(cpu_python().with_name("vllm")), "serve", str(tiny(model)), *SMALL]
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1"} | os.environ
    variables.pop("PYTHONPATH", None)
    began = time.monotonic()
    with open(folder / f"bare-{port}.log", "wb") as log:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "bare"],
            env=variables,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _answered(server, port, began)
        yield time.monotonic() - began
    finally:
        _end(server)


def _answered(server: subprocess.Popen, port: int, began: float) -> None:
    body = {"model": "bare", "prompt": "Hello", "max_tokens": 8}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, trust_env=False) as client:
        while server.poll() is None and time.monotonic() - began < _PATIENCE:
            with contextlib.suppress(httpx.HTTPError):
                if client.post("/v1/completions", json=body).status_code == 200:
                    return
            time.sleep(0.2)
    raise Blocked(
        "a bare vllm serve gives no answer", expected="a vLLM that serves", try_="see upgrade.py serve"
    )


def _end(server: subprocess.Popen) -> None:
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    while _group(server.pid) and server.poll() is None:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    while _group(server.pid):
        time.sleep(0.05)


def _group(leader: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
