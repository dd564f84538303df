"""Whether a server is up: healthy, and itself - its random name among the models it serves."""

from __future__ import annotations

import time

from npu_upgrade.gates.serving.checks import Check, failed, passed
from npu_upgrade.gates.serving.lifeline import Lifeline
from npu_upgrade.gates.serving.requests import Client, settled
from npu_upgrade.gates.serving.watch import Watch

_POLL = 0.2  # seconds


def wait(client: Client, lifeline: Lifeline, watch: Watch) -> Check:
    """Wait until the server is up; says why it is not. Up is not ready: nothing was generated yet."""
    while True:
        if why := lifeline.broken():
            return failed("start", f"{why} before it served, in phase {watch.phase}")
        if trouble := watch.look():
            return trouble
        if client.healthy() and (names := client.models(keep=False)):
            if lifeline.server.name in names:
                watch.end()
                lifeline.hold()
                return passed("start")
            return failed("start", f"another server answers on its port: it serves {', '.join(names)}")
        time.sleep(_POLL)


def stay(client: Client, lifeline: Lifeline, seconds: float) -> Check:
    """A quiet window after everything was asked: nothing may end, and it has to stay healthy."""
    deadline = time.monotonic() + seconds
    while True:
        if why := lifeline.broken():
            return failed("quiet", f"{why}, after it had served")
        if not client.healthy():
            why = settled(lifeline.broken) or "the server is not healthy any more"
            return failed("quiet", f"{why}, after it had served")
        if time.monotonic() > deadline:
            return passed("quiet")
        time.sleep(_POLL)
