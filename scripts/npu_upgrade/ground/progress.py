"""Progress of long work, on stderr, so that stdout stays machine-readable."""

from __future__ import annotations

import contextlib
import sys
import time

_START = time.monotonic()


def say(message: str) -> None:
    """Print one line of progress with the seconds since the command started."""
    with contextlib.suppress(BrokenPipeError):  # that nobody reads it is no reason to stop the work
        print(f"[{time.monotonic() - _START:6.1f}s] {message}", file=sys.stderr, flush=True)
