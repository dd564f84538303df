"""Which lines of the watched files ran: coverage.py, from before their import."""

from __future__ import annotations

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
