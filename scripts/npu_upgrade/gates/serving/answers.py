"""What an answer is worth: counted, ended for a reason, not one token over and over; real audio or images."""

from __future__ import annotations

import base64
import binascii
import io
import re
import struct
import wave
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
        return is_repeated(answer.ids)
    text = answer.text.strip()
    return answer.tokens >= _FEW and bool(text) and bool(_ONE_UNIT.fullmatch(text))


def is_repeated(ids: Sequence[int]) -> bool:
    return len(ids) >= _FEW and len(set(ids)) == 1


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


_IMAGES = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"RIFF": "WebP"}


def audio_fault(answer: Answer, least: float = 0.05) -> str:
    """Why an answer holds no audio of at least ``least`` seconds that is not silent; empty when it does."""
    data = next((found for part in answer.parts if (found := _audio(part))), None)
    if data is None:
        return "the answer holds no audio"
    if not data.startswith(b"RIFF"):
        return "" if len(data) > 1000 else f"its audio is {len(data)} bytes of no known form"
    try:
        with wave.open(io.BytesIO(data)) as sound:
            seconds = sound.getnframes() / (sound.getframerate() or 1)
            frames = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError, struct.error) as error:
        return f"its audio is no WAV: {error}"
    if seconds < least:
        return f"its audio lasts {seconds:.3f} s, expected {least} s"
    return "" if any(frames) else f"its {seconds:.1f} s of audio are silent"


def image_fault(answer: Answer) -> str:
    """Why an answer holds no image; empty when it does."""
    data = next((found for part in answer.parts if (found := _image(part))), None)
    if data is None:
        return "the answer holds no image"
    kind = next((name for start, name in _IMAGES.items() if data.startswith(start)), "")
    return "" if kind and len(data) > 60 else f"its image is {len(data)} bytes of no known form"


def _audio(message: dict[str, Any]) -> bytes | None:
    audio = message.get("audio")
    return _decoded(audio.get("data")) if isinstance(audio, dict) else None


def _image(message: dict[str, Any]) -> bytes | None:
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        url = part.get("image_url", {}).get("url", "") if isinstance(part, dict) else ""
        if url.startswith("data:image"):
            return _decoded(url.partition(",")[2])
    return None


def _decoded(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) and text else None
    except binascii.Error:
        return None
