"""One request that fills the context: short ones show that a length starts, not that it can be used."""

from __future__ import annotations

from collections.abc import Callable

from npu_upgrade.gates.serving.checks import Check, failed, passed
from npu_upgrade.gates.serving.requests import Client

ANSWER = 8  # tokens
_FIRST, _DIFFERENT = 10, 50  # token ids that every vocabulary has


def filled(length: int, seconds: float) -> Callable[[Client, str], list[Check]]:
    """A check that one request of ``length`` tokens, its answer included, is served within ``seconds``."""

    def check(client: Client, name: str) -> list[Check]:
        prompt = [_FIRST + at % _DIFFERENT for at in range(length - ANSWER)]
        body = {"model": name, "prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}
        exchange = client.post("/v1/completions", body, seconds)
        if exchange.why:
            return [failed("filled", f"a request of {length} tokens was not answered: {exchange.why}")]
        usage = (exchange.answer or {}).get("usage") or {}
        tokens = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if tokens != (length - ANSWER, ANSWER):
            return [
                failed("filled", f"a request of {length} tokens was counted as {tokens[0]} and {tokens[1]}")
            ]
        return [passed("filled", why=f"a request of {length} tokens took {exchange.seconds:.0f} s")]

    return check
