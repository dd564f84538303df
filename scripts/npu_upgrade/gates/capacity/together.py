"""Many requests at once, each really generated; and how many of them the engine had running together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from npu_upgrade.gates.serving.checks import INCONCLUSIVE, Check, failed, passed, unsure
from npu_upgrade.gates.serving.requests import Client, Exchange, counted

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
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
    most, spans = _Most(client), []

    def post(path: str, body: dict[str, Any], seconds: float) -> Exchange:
        began = time.monotonic()
        exchange = client.post(path, body, seconds)
        spans.append((began, time.monotonic()))
        return exchange

    with most, ThreadPoolExecutor(number) as pool:
        sent = [
            pool.submit(post, "/v1/completions", _body(name, at, tokens), seconds) for at in range(number)
        ]
        answers = [one.result() for one in sent]
    # requests that are all under way and of which none was seen to wait run together, even when the engine's
    # own count, which it publishes now and then, was not met at its highest
    under_way = max(began for began, _ in spans) < min(ended for _, ended in spans)
    return _judge(number, answers, most.seen, under_way and not most.waiting)


def _body(name: str, at: int, tokens: int) -> dict[str, Any]:
    """A prompt of its own for each, so that no cache of prefixes answers for another."""
    prompt = f"Story {at} about the {_WORDS[at % len(_WORDS)]}:"
    return {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def _judge(number: int, answers: list[Exchange], running: float, under_way: bool) -> Check:
    wrong = [one for one in answers if one.why]
    if wrong:
        return failed(
            "concurrent", f"{len(wrong)} of {number} requests at once were not answered: {wrong[0].why}"
        )
    tokens = [_tokens(one) for one in answers]
    if not all(tokens):
        return failed("concurrent", f"{tokens.count(0)} of {number} answers count no token")
    said = f"{number} requests at once, {sum(tokens)} tokens, {running:.0f} seen running together"
    if running < number and not under_way:
        return unsure("concurrent", f"{said}: the engine was not seen to run all of them in one step")
    return passed("concurrent", why=said)


def _tokens(exchange: Exchange) -> int:
    try:
        return int(exchange.answer["usage"]["completion_tokens"])
    except (KeyError, TypeError, ValueError):
        return 0


class _Most:
    """The most requests that the metrics showed as running, and as waiting, while it is open."""

    def __init__(self, client: Client) -> None:
        self.seen = self.waiting = 0.0
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
            text = self._client.metrics()
            self.seen = max(self.seen, counted(text, RUNNING) or 0.0)
            self.waiting = max(self.waiting, counted(text, WAITING) or 0.0)
            time.sleep(_POLL)
