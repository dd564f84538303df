"""What an answer is worth: counted, ended for a reason, and not one token over and over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.gates.serving.requests import Exchange

_ONE_UNIT = re.compile(r"(.{1,16}?)\1{5,}", re.DOTALL)
_FEW = 6  # tokens that may be alike by accident
FINISHED = ("stop", "length", "tool_calls")


@dataclass(frozen=True)
class Answer:
    """A generation's answer. ``tokens``: how many the server counted; ``ids``: which, where it tells."""

    text: str
    tokens: int
    finish: str | None
    ids: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    parts: tuple[dict[str, Any], ...] = field(default=(), repr=False)


def read(exchange: Exchange) -> Answer | None:
    """The answer of a completion or a chat; None when it is not one."""
    try:
        usage, choices = exchange.answer.get("usage") or {}, exchange.answer["choices"]
        first = next((one for one in choices if _text(one)), choices[0])
        return Answer(
            _text(first),
            int(usage.get("completion_tokens") or 0),
            first.get("finish_reason"),
            tuple(first.get("token_ids") or ()),
            _probabilities(first.get("logprobs")),
            tuple(one.get("message") or {} for one in choices),
        )
    except (TypeError, LookupError, AttributeError, ValueError, OverflowError):
        return None


def is_one_token(answer: Answer) -> bool:
    """Whether an answer is the same token again and again; short ones never are."""
    if answer.ids:
        return len(answer.ids) >= _FEW and len(set(answer.ids)) == 1
    text = answer.text.strip()
    return answer.tokens >= _FEW and bool(text) and bool(_ONE_UNIT.fullmatch(text))


def in_order(text: str, wanted: Sequence[str]) -> str:
    """The first of ``wanted`` that does not follow the ones before it in ``text``; empty when all do."""
    place = 0
    for one in wanted:
        place = text.find(one, place)
        if place < 0:
            return one
        place += len(one)
    return ""


def _text(choice: dict[str, Any]) -> str:
    message = choice.get("message") or {}
    found = choice.get("text") if "text" in choice else message.get("content")
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    if isinstance(found, list):
        found = "".join(part.get("text", "") for part in found if isinstance(part, dict))
    return f"{reasoning}{found or ''}"


def _probabilities(logprobs: Any) -> tuple[float, ...]:
    """Log-probabilities of the chosen tokens, of a completion or a chat."""
    if not isinstance(logprobs, dict):
        return ()
    if isinstance(logprobs.get("content"), list):
        return tuple(float(one["logprob"]) for one in logprobs["content"])
    return tuple(float(one) for one in logprobs.get("token_logprobs") or () if one is not None)
