"""Get a request's tensors: out of an HTTP response, a stream of one, or a RequestOutput of vLLM.

The engine and the client share a file system. Reading a payload removes its file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omni_runners.errors import PayloadError
from omni_runners.options import PAYLOAD

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Payload:
    """The tensors of one request by name, (rows, …); ``hidden`` has a row per token that was computed.

    ``transfer`` is everything else in the response's ``kv_transfer_params``.
    """

    tensors: dict[str, torch.Tensor]
    transfer: dict[str, Any]


def take(response: Any, choice: int = 0) -> Payload:
    """The payload of a completion or chat response (its JSON), or of a RequestOutput.

    With several choices ``choice`` says whose; they have payloads when the request said
    ``"omni_payload": true``. Raises :class:`PayloadError` with the engine's reason.
    """
    transfer = dict(_field(response, "kv_transfer_params") or {})
    reference = transfer.pop(PAYLOAD, None)
    choices = _field(response, "choices") or _field(response, "outputs") or []
    if len(choices) > 1:
        reference = _in_stop_reason(choices[choice])
    return Payload(_read(reference), transfer)


def take_from_stream(chunks: Iterable[Mapping[str, Any]], choice: int = 0) -> Payload:
    """The payload of a streamed response from its chunks (JSON); the request asked for it."""
    reference = None
    for chunk in chunks:
        for one in chunk.get("choices", ()):
            if one.get("index", 0) == choice:
                reference = _in_stop_reason(one) or reference
    return Payload(_read(reference), {})


class Parts:
    """The tensors of a running request that asked for ``"omni_payload": "parts"``, as they come."""

    def __init__(self) -> None:
        self._have: dict[str, int] = {}

    def take(self, output: Any) -> dict[str, torch.Tensor]:
        """The rows that are new with this RequestOutput, by name, (rows, …).

        vLLM merges outputs that are not fetched in time and keeps the last one's part: what is lost so comes
        at the end. Raises :class:`PayloadError` with the engine's reason.
        """
        reference = (_field(output, "kv_transfer_params") or {}).get(PAYLOAD)
        if reference is None and not output.finished:  # the output of a step without rows
            return {}
        tensors, new = _read(reference), {}
        for name, rows in tensors.items():
            first, have = reference.get("first", {}).get(name, 0), self._have.get(name, 0)
            if first <= have:
                new[name] = rows[have - first :]
                self._have[name] = max(have, first + len(rows))
        return new


def _in_stop_reason(choice: Any) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return json.loads(_field(choice, "stop_reason")).get(PAYLOAD)
    return None


def _read(reference: Any) -> dict[str, torch.Tensor]:
    from safetensors.torch import load

    if not isinstance(reference, Mapping):
        raise PayloadError(
            "the response has no payload",
            expected="an engine with a scheduler of omni_runners, and a request that did not opt out",
            try_='for a stream or n > 1, ask with vllm_xargs {"omni_payload": true}; a stop string ends a '
            "request before its payload is made: use stop_token_ids",
        )
    if "error" in reference:
        raise PayloadError(str(reference["error"]))
    if "data" in reference:
        return load(reference["data"])
    path = Path(reference["path"])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PayloadError(
            f"the payload {path} cannot be read: {error.strerror or error}",
            expected="the engine's file, which exists until it is read, the engine ends or room is needed",
            try_="on the engine's machine, once, soon after the response",
        ) from error
    path.unlink(missing_ok=True)
    return load(data)


def _field(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)
