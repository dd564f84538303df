"""Which lines of the watched files ran: coverage.py, from before their import."""

from __future__ import annotations


class Executed:
    """Records executed lines of ``files`` in this process and, after a fork, in the child for itself."""

    def __init__(self, files: list[str]) -> None:
        self._files = files
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
