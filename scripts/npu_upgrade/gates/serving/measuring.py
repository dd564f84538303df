"""A program of others that measures a server while it is watched: ``vllm bench serve``, lm_eval."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|NotFound)\b: ")
_POLL = 1.0  # seconds between two looks at the server


def measure(
    command: Sequence[str],
    log: Path,
    *,
    variables: Mapping[str, str],
    cwd: Path,
    seconds: float,
    broken: Callable[[], str],
) -> str:
    """Run the program, its words in ``log``; why nothing was measured, empty when it ended well.

    It is ended when the server is ``broken`` or ``seconds`` are over.
    """
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            why = _wait(process, seconds, broken)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if why or process.returncode == 0:
        return why
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    # what follows the first exception is its consequence
    first = next(
        (line for line in lines if _EXCEPTION.match(line)), lines[-1] if lines else "it says nothing"
    )
    return f"exit code {process.returncode}: {first[:300]}"


def _wait(process: subprocess.Popen[bytes], seconds: float, broken: Callable[[], str]) -> str:
    for _ in range(max(int(seconds / _POLL), 1)):
        try:
            process.wait(_POLL)
            return ""
        except subprocess.TimeoutExpired:
            if why := broken():
                return f"the server broke while it was measured: {why}"
    return f"no end after {seconds:.0f} s"
