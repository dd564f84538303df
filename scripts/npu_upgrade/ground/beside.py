"""Work in a second process, for as long as this one has something else to do."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable


def beside(work: Callable[[], bytes]) -> Callable[[], bytes]:
    """Begin ``work``; calling what is returned waits for its result.

    Where there is no second core or nothing to fork with, and where that process died (of memory maybe),
    it is done when it is asked for.
    """
    if (os.cpu_count() or 1) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return work
    context = multiprocessing.get_context("fork")  # trees hold functions, which cannot be sent
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sending.send_bytes(work()), daemon=True)
    process.start()
    sending.close()

    def result() -> bytes:
        try:
            return receiving.recv_bytes()
        except EOFError:
            return work()
        finally:
            process.join()

    return result
