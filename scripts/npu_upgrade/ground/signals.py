"""What signals do while something has to be kept whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

_HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # which Windows does not have
ENDING = (signal.SIGINT, signal.SIGTERM, *_HANGUP)


@contextmanager
def handled(handler: Callable[[int, object], None], signals: Sequence[int] = ENDING) -> Generator[None]:
    """``handler`` takes the signals until the block is left; outside of the main thread nothing changes."""
    main = threading.current_thread() is threading.main_thread()
    before = {one: signal.signal(one, handler) for one in signals} if main else {}
    try:
        yield
    finally:
        for one, former in before.items():
            signal.signal(one, former)


@contextmanager
def terminated_as_interrupted() -> Generator[None]:
    """SIGTERM and SIGHUP interrupt as Ctrl-C does, and once: timeout(1) sends its signal twice, and the
    command that waits for this one passes on what this one may have got already.
    """
    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        if len(came) == 1 or number == signal.SIGINT:
            raise KeyboardInterrupt

    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handled(interrupt, ENDING if heeded else ENDING[1:]):
        yield
