"""Many requests at once, each really generated; and how many of them the engine had running together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from npu_upgrade.gates.serving.checks import INCONCLUSIVE, Check, failed, passed, unsure
from npu_upgrade.gates.serving.requests import Arrival, Client, Exchange, counted

PREEMPTED = "vllm:num_preemptions_total"
_LONGER = (1, 3, 6)  # times the tokens, one try after the other
_TO_COME = 0.25  # of a request's tokens, so that chunks on their way do not make it look as if it still ran
_WORDS = ("river", "stone", "lantern", "orchard", "violin", "harbour", "meadow", "comet")


def concurrent(number: int, tokens: int, seconds: float) -> Callable[[Client, str], list[Check]]:
    """A check that ``number`` requests of ``tokens`` tokens are all answered within ``seconds``, together.

    They run together when all have begun to answer, none is near its end, and the engine preempted none.
    An engine that takes them one after the other, or is done before all have begun, is asked again for more
    tokens, and after that it is INCONCLUSIVE, not a pass.
    """

    def check(client: Client, name: str) -> list[Check]:
        for times in _LONGER:
            found = _ask(client, name, number, tokens * times, seconds)
            if found.state != INCONCLUSIVE:
                break
        return [found]

    return check


def _ask(client: Client, name: str, number: int, tokens: int, seconds: float) -> Check:
    before = counted(client.metrics(), PREEMPTED)
    with ThreadPoolExecutor(number) as pool:
        sent = [
            pool.submit(client.stream, "/v1/completions", _body(name, at, tokens), seconds)
            for at in range(number)
        ]
        answers = [one.result() for one in sent]
    after = counted(client.metrics(), PREEMPTED)
    return _judge(number, answers, (after or 0.0) - (before or 0.0))


def _body(name: str, at: int, tokens: int) -> dict[str, Any]:
    """A prompt of its own for each, so that no cache of prefixes answers for another."""
    prompt = f"Story {at} about the {_WORDS[at % len(_WORDS)]}:"
    return {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def _judge(number: int, answers: Sequence[tuple[Exchange, list[Arrival]]], preempted: float) -> Check:
    wrong = [one for one, _ in answers if one.why]
    if wrong:
        return failed(
            "concurrent", f"{len(wrong)} of {number} requests at once were not answered: {wrong[0].why}"
        )
    streams = [[one for one in arrived if one.tokens] for _, arrived in answers]
    if not all(streams):
        return failed("concurrent", f"{streams.count([])} of {number} answers count no token")
    running = most_together(streams)
    tokens = sum(stream[-1].tokens for stream in streams)
    said = f"{number} requests at once, {tokens} tokens, {running} seen running together"
    if running < number:
        return unsure("concurrent", f"{said}: the engine was not seen to run all of them at one time")
    if preempted:
        return unsure(
            "concurrent", f"{said}, but {preempted:.0f} were preempted: their key-value cache was short"
        )
    return passed("concurrent", why=said)


def most_together(streams: Sequence[Sequence[Arrival]]) -> int:
    """The most requests that had begun to answer at one time with a good part still to come."""
    spans = [(stream[0].at, _nearly_done(stream)) for stream in streams]
    return max(sum(began <= moment < ends for began, ends in spans) for moment, _ in spans)


def _nearly_done(stream: Sequence[Arrival]) -> float:
    """When no more than the last part of a request's tokens was to come."""
    kept = (1 - _TO_COME) * stream[-1].tokens
    return next(one.at for one in stream if one.tokens > kept)
