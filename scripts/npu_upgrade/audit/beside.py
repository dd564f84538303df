"""Looks at the old pair in a process of its own while the new one is looked at in this one.

Two cores halve the time, and neither process holds the trees of both.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from npu_upgrade.audit.cache import KeptFindings
from npu_upgrade.audit.finding import from_json
from npu_upgrade.audit.outcome import Outcome, look
from npu_upgrade.audit.world import World


def look_beside(world: World, names: Sequence[str]) -> Callable[[], Outcome]:
    """Begin to look; calling what is returned waits for the outcome."""
    kept = KeptFindings(world)
    known = all(kept.get(name) is not None for name in names)
    if known or (os.cpu_count() or 1) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return lambda: look(world, names)
    context = multiprocessing.get_context("fork")  # the trees hold functions, which cannot be sent
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sending, world, names), daemon=True)
    process.start()
    sending.close()

    def outcome() -> Outcome:
        try:
            findings, faults = receiving.recv()
        except EOFError:  # it died, of memory maybe: what it had to do is still to be done
            return look(world, names)
        finally:
            process.join()
        return Outcome([from_json(entry) for entry in findings], faults)

    return outcome


def _send(sending: Connection, world: World, names: Sequence[str]) -> None:
    found = look(world, names)
    sending.send(([finding.as_json() for finding in found.findings], found.faults))
