"""Progress of long work, on stderr, so that stdout stays machine-readable."""

from __future__ import annotations

import contextlib
import os
import sys
import time

_START = time.monotonic()
_SELDOM = 15.0
OF = "NPU_UPGRADE_OF"  # what the work is about, where others are told of beside it
_shown = [_START]


def say(message: str) -> None:
    """Print one line of progress with the seconds since the command started.

    Where nobody watches, on no terminal, a line is shown every 15 seconds at most, and notes (``note: ...``):
    what the result lacks, what was started, what is waited for.
    """
    now = time.monotonic()
    is_note = message.startswith("note: ")
    if not is_note and not sys.stderr.isatty():
        if now - _shown[0] < _SELDOM:
            return
        _shown[0] = now
    with contextlib.suppress(BrokenPipeError):  # that nobody reads it is no reason to stop the work
        of = f"{os.environ[OF]}: " if os.environ.get(OF) else ""
        print(f"[{now - _START:6.1f}s] {of}{message}", file=sys.stderr, flush=True)
