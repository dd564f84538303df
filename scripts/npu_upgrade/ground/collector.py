"""Garbage collection, where it would cost more than it frees."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def no_collector(*, last: bool = False) -> Generator[None]:
    """Garbage collection waits: it would walk all the trees of all files again and again.

    ``last`` tells that what is made stays until the process ends, so no collection looks at it, but for
    :func:`collected`.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if last:
                gc.freeze()
            gc.enable()


def collected() -> None:
    """Free what no longer is in use while garbage collection waits."""
    gc.unfreeze()  # what has been in use until now may be there
    gc.collect()
