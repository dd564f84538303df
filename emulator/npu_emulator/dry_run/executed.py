"""Which lines of the watched files ran: coverage.py, from before their import."""

from __future__ import annotations

import os
import sys

PACKAGES = "NPU_EMULATOR_PACKAGES"  # the folders of vLLM, vllm-ascend and vllm-omni
_current: Executed | None = None


class Executed:
    """Records executed lines of ``files`` in this process and, after a fork, in the child for itself."""

    def __init__(self, files: list[str]) -> None:
        self.files = files
        self._coverage = None
        if files:
            import coverage

            self._coverage = coverage.Coverage(include=files, data_file=None, config_file=False)
            self._coverage.start()

    def lines(self) -> dict[str, list[int]]:
        """Path -> executed line numbers, so far."""
        if self._coverage is None:
            return {}
        self._coverage.stop()
        data = self._coverage.get_data()
        found = {path: sorted(data.lines(path) or []) for path in data.measured_files()}
        self._coverage.start()
        return found


def watch(files: list[str]) -> Executed:
    """Record the executed lines of ``files`` from now on; the first call of a process decides."""
    global _current
    if _current is None:
        _current = Executed(files)
    return _current


def watched() -> list[str]:
    """The files whose lines are recorded in this process."""
    return _current.files if _current else []


def lines() -> dict[str, list[int]]:
    """The executed lines of this process so far; none when nothing is watched."""
    return _current.lines() if _current else {}


def loaded_files() -> list[str]:
    """The files of the projects' packages that this process has imported modules from."""
    folders = tuple(f"{folder}/" for folder in os.environ.get(PACKAGES, "").split(os.pathsep))
    found = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return sorted(path for path in found if path.startswith(folders))
