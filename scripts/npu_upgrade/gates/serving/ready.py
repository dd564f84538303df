"""Whether a server really serves: its own name, real generations, counted tokens, and still there afterwards.

Any end of the server before it is stopped is a failure, whatever its exit code: vLLM ends with 0 when its
engine was killed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from npu_upgrade.gates.serving.requests import Client
from npu_upgrade.gates.serving.server import Server, engines
from npu_upgrade.gates.serving.watch import Watch

_POLL = 0.2  # seconds
_PROMPTS = ("The capital of France is", "One, two, three,", "Water boils at")


@dataclass(frozen=True)
class Wanted:
    """``generations`` of ``tokens`` tokens each, then ``quiet`` seconds in which nothing may end."""

    generations: int = 3
    tokens: int = 8
    quiet: float = 5.0


def failure(server: Server, client: Client, watch: Watch, wanted: Wanted) -> str:
    """Why the server does not serve, in one sentence; empty when it does."""
    if why := _not_up(server, client, watch):
        return why
    there = engines(server)
    return _not_generating(server, client, wanted) or _not_staying(server, client, there, wanted.quiet)


def _ended(server: Server, when: str) -> str:
    code = server.process.poll()
    return "" if code is None else f"the server ended {when} (exit code {code})"


def _not_up(server: Server, client: Client, watch: Watch) -> str:
    while True:
        if why := _ended(server, "before it served") or watch.look():
            return why
        if client.healthy() and (names := client.models()):
            return (
                ""
                if server.name in names
                else f"another server answers on its port: it serves {', '.join(names)}"
            )
        time.sleep(_POLL)


def _not_generating(server: Server, client: Client, wanted: Wanted) -> str:
    before, counted = client.generated(), 0
    for number in range(wanted.generations):
        exchange = client.complete(server.name, _PROMPTS[number % len(_PROMPTS)], wanted.tokens)
        which = f"generation {number + 1} of {wanted.generations}"
        if exchange.status != 200:
            time.sleep(_POLL)  # an engine that dies of a request takes a moment to end
            return (
                _ended(server, f"in {which}")
                or f"{which} was answered with {exchange.status or exchange.error}"
            )
        try:
            counted += exchange.answer["usage"]["completion_tokens"]
            text = exchange.answer["choices"][0]["text"]
        except (TypeError, KeyError, IndexError):
            return f"{which} is no completion"
        if not text:
            return f"{which} is empty"
    after = client.generated()
    if before is None or after is None:
        return _ended(server, "after it had served") or "the metrics do not count generated tokens"
    return (
        ""
        if after - before >= counted > 0
        else f"{counted} tokens were answered, {after - before:.0f} counted"
    )


def _not_staying(server: Server, client: Client, there: set[int], quiet: float) -> str:
    deadline = time.monotonic() + quiet
    while True:
        healthy, gone = client.healthy(), there - engines(server)
        if why := _ended(server, "after it had served"):
            return why
        if gone:
            return f"processes of the server ended after it had served: {', '.join(map(str, sorted(gone)))}"
        if not healthy:
            return "the server is not healthy any more after it had served"
        if time.monotonic() > deadline:
            return ""
        time.sleep(_POLL)
