"""Audio and images that a server answers with: really audio, really an image."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import wave
from typing import Any

from npu_upgrade.gates.serving.quality import Answer

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
            seconds, frames = (
                sound.getnframes() / (sound.getframerate() or 1),
                sound.readframes(sound.getnframes()),
            )
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
