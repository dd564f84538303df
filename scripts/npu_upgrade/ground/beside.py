"""Work in a second process, for as long as this one has something else to do."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

One = TypeVar("One")


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


@contextmanager
def from_both_ends(items: Sequence[One]) -> Generator[tuple[Iterator[One], Iterator[One]]]:
    """Two iterators over ``items`` for two processes: one from the front, one from the back, until they meet.

    A pipe holds as many bytes as there are items, and each item costs one: no lock can be left behind.
    """
    reading, writing = os.pipe()
    os.write(writing, bytes(len(items)))
    os.close(writing)

    def taken(order: Iterable[One]) -> Iterator[One]:
        for item in order:
            if not os.read(reading, 1):
                return
            yield item

    try:
        yield taken(items), taken(items[::-1])
    finally:
        os.close(reading)
