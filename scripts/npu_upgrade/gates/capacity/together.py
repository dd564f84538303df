"""Many requests at once, each really generated; and how many of them the engine had running together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from npu_upgrade.gates.serving.checks import INCONCLUSIVE, Check, failed, passed, unsure
from npu_upgrade.gates.serving.requests import Client, Exchange, counted

RUNNING = "vllm:num_requests_running"
_LONGER = (1, 3, 6)  # times the tokens, one try after the other
_POLL = 0.05  # seconds between two looks at the engine
_WORDS = ("river", "stone", "lantern", "orchard", "violin", "harbour", "meadow", "comet")


def concurrent(number: int, tokens: int, seconds: float) -> Callable[[Client, str], list[Check]]:
    """A check that ``number`` requests of ``tokens`` tokens are all answered within ``seconds``, together.

    An engine that is not seen to run all of them in one step takes them one after the other, or is done too
    soon to be seen: they are asked again for more tokens, and after that it is INCONCLUSIVE, not a pass.
    """

    def check(client: Client, name: str) -> list[Check]:
        for times in _LONGER:
            found = _ask(client, name, number, tokens * times, seconds)
            if found.state != INCONCLUSIVE:
                break
        return [found]

    return check


def _ask(client: Client, name: str, number: int, tokens: int, seconds: float) -> Check:
    most = _Most(client)
    with most, ThreadPoolExecutor(number) as pool:
        sent = [
            pool.submit(client.post, "/v1/completions", _body(name, at, tokens), seconds)
            for at in range(number)
        ]
        answers = [one.result() for one in sent]
    return _judge(number, answers, most.seen)


def _body(name: str, at: int, tokens: int) -> dict[str, Any]:
    """A prompt of its own for each, so that no cache of prefixes answers for another."""
    prompt = f"Story {at} about the {_WORDS[at % len(_WORDS)]}:"
    return {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def _judge(number: int, answers: list[Exchange], running: float) -> Check:
    wrong = [one for one in answers if one.why]
    if wrong:
        return failed(
            "concurrent", f"{len(wrong)} of {number} requests at once were not answered: {wrong[0].why}"
        )
    tokens = [_tokens(one) for one in answers]
    if not all(tokens):
        return failed("concurrent", f"{tokens.count(0)} of {number} answers count no token")
    said = f"{number} requests at once, {sum(tokens)} tokens, {running:.0f} running together"
    if running < number:
        return unsure("concurrent", f"{said}: the engine was not seen to run all of them in one step")
    return passed("concurrent", why=said)


def _tokens(exchange: Exchange) -> int:
    try:
        return int(exchange.answer["usage"]["completion_tokens"])
    except (KeyError, TypeError, ValueError):
        return 0


class _Most:
    """The most requests that the metrics showed as running while it is open."""

    def __init__(self, client: Client) -> None:
        self.seen = 0.0
        self._client = Client(client.url, client.seconds)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Most:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._end.set()
        self._thread.join(5)

    def _look(self) -> None:
        while not self._end.is_set():
            self.seen = max(self.seen, counted(self._client.metrics(), RUNNING) or 0.0)
            time.sleep(_POLL)
