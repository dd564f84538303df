"""Looks at something in a process of its own while something else is looked at in this one.

That is the old pair beside the new one, and without an old pair the checks that have least in
common with the others. Two cores halve the time, and no process holds the trees of both pairs.
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

_APART = ("cuda-names", "duplicates", "markers", "stale-copies", "workarounds")


def look_at_both(world: World, names: Sequence[str]) -> tuple[Outcome, Outcome]:
    """The outcome of a triple and of the old one beside it, which is empty when there is none."""
    if world.old:
        waiting = look_beside(World(world.old.triple), names)
        return look(world, names), waiting()
    waiting = look_beside(world, [name for name in names if name in _APART])
    found = look(world, [name for name in names if name not in _APART])
    found.add(waiting())
    return found, Outcome()


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
