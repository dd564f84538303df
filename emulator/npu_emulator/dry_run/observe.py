"""What a process tells about itself: its classes, its executed lines, the failures it logs. It only looks.

A worker or a server process writes into the record; the scenario's own process reads it there.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

from npu_emulator import record
from npu_emulator.dry_run import executed
from npu_emulator.dry_run.failure import describe

_LOGGERS = ("vllm", "vllm_ascend", "vllm_omni", "")


def worker(wrapper) -> dict:
    """Classes and graphs of the worker inside ``wrapper`` (vLLM's WorkerWrapperBase); its lines are recorded.

    Sent to every worker of an engine, in whatever process it lives.
    """
    from npu_emulator import kernels

    found = wrapper.worker
    lines()
    return named(found) | {"graphs": dict(kernels.native.graphs())}


def named(found) -> dict[str, str]:
    """The full class names of a worker and of its runner."""
    return {"worker": _name(found), "runner": _name(getattr(found, "model_runner", None))}


def _name(one) -> str:
    return f"{type(one).__module__}.{type(one).__name__}"


def lines() -> None:
    """Record the executed lines and the imported files of this process, when somebody wants them."""
    found = executed.lines()
    if found:
        record.note("lines", files=found, loaded=executed.loaded_files())


class _Failures(logging.Handler):
    """Records each exception that vLLM logs as an error: the parent process only learns its text."""

    def emit(self, entry: logging.LogRecord) -> None:
        error = entry.exc_info[1] if entry.exc_info else None
        if entry.levelno >= logging.ERROR and error is not None:
            record.note("failure", time=time.time(), logged=entry.getMessage()[:200], error=describe(error))


def failures() -> None:
    """Record, from now on, the exceptions that are logged in this process and in its forks."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _Failures) for handler in logger.handlers):
            logger.addHandler(_Failures())


def events(kind: str, folder: Path | None = None) -> list[dict]:
    """The events of a kind that other processes of this run recorded, each with its ``process``."""
    place = folder or Path(os.environ[record.FOLDER])  # a folder that does not exist has no events
    found = []
    for path in sorted(place.glob("*.jsonl")):
        if path.stem == str(os.getpid()):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == kind:
                found.append(event | {"process": int(path.stem)})
    return found


def first_failure() -> dict | None:
    """The error that another process of this run logged first."""
    found = sorted(events("failure"), key=lambda event: event["time"])
    return found[0]["error"] if found else None


def all_lines(own: dict[str, list[int]]) -> dict[str, list[int]]:
    """``own`` executed lines together with those that other processes of this run recorded."""
    together = {path: set(numbers) for path, numbers in own.items()}
    for event in events("lines"):
        for path, numbers in event["files"].items():
            together.setdefault(path, set()).update(numbers)
    return {path: sorted(numbers) for path, numbers in together.items()}


def all_loaded(own: list[str]) -> list[str]:
    """``own`` imported files together with those that other processes of this run recorded."""
    return sorted({*own, *(path for event in events("lines") for path in event["loaded"])})
