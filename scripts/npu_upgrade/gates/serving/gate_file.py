"""The gate file: requests of a model's own, and what their answers have to be.

.. code-block:: yaml

    requests:
      - name: stage-transition
        chat: Describe the picture.        # or messages:, or completion:
        image: pictures/cat.png            # a file beside the gate file, or squares-N
        body: {max_tokens: 64, temperature: 0}
        weights: real                      # judged with real weights only (the default); any: with dummy too
        expect:
          sequence: ["</think>", "<recaption>"]
          matches: "cat|kitten"
          not_matches: "dog"
          finish_reason: stop
          least_tokens: 4
          tokens: [17, 18]                 # the answer's first token ids
          twice: same                      # the same request again answers the same
          same_as: another-request
          differs_from: another-request
          audio: 0.5                       # seconds, not silent
          image: true
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from npu_upgrade.gates.serving.answers import Answer, audio_fault, image_fault, in_order, read
from npu_upgrade.gates.serving.checks import Check, failed, passed, skipped
from npu_upgrade.gates.serving.requests import Client
from npu_upgrade.gates.serving.smoke import CHAT, COMPLETIONS, judge, picture, same, with_image
from npu_upgrade.gates.yaml_file import read_yaml
from npu_upgrade.ground.errors import BadInput

_SHOWN = 200


class _Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    sequence: list[Any] | None = None
    matches: str | None = None
    not_matches: str | None = None
    finish_reason: str | None = None
    least_tokens: int | None = None
    tokens: list[int] | None = None
    twice: Literal["same"] | None = None
    same_as: str | None = None
    differs_from: str | None = None
    audio: float | None = None
    image: bool | None = None


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    chat: str | None = None
    messages: list[dict[str, Any]] | None = None
    completion: Any = None
    image: str | None = None
    body: dict[str, Any] = {}
    weights: Literal["real", "any"] = "real"
    expect: _Expect = _Expect()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    requests: Annotated[list[_Entry], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Request:
    """One request: ``path`` and ``body`` as they are sent, without the model; ``expect`` as in the file."""

    name: str
    path: str
    body: dict[str, Any]
    expect: dict[str, Any] = field(default_factory=dict)
    dummy_too: bool = False


def load(path: Path) -> list[Request]:
    """The requests of a gate file; raises :class:`BadInput` that names the place of what is wrong."""
    found: list[Request] = []
    for entry in read_yaml(path, _File, _wrong).requests:
        found.append(_request(path, entry, [one.name for one in found]))
    return found


def _request(path: Path, entry: _Entry, before: list[str]) -> Request:
    where = f"request {entry.name!r}"
    if entry.name in before:
        raise _wrong(path, f"{where} is there twice")
    if sum(one is not None for one in (entry.chat, entry.messages, entry.completion)) != 1:
        raise _wrong(path, f"{where} needs one of chat, messages and completion")
    if "model" in entry.body:
        raise _wrong(path, f"the body of {where} names the model, which the gate adds")
    for pattern in filter(None, (entry.expect.matches, entry.expect.not_matches)):
        _check_pattern(path, where, pattern)
    for other in filter(None, (entry.expect.same_as, entry.expect.differs_from)):
        if other not in before:
            raise _wrong(path, f"{where} compares with {other!r}, which is no earlier request")
    route, asking = _asking(path, where, entry)
    body = {"max_tokens": 16, "temperature": 0} | entry.body | asking
    expect = msgspec.to_builtins(entry.expect)
    return Request(entry.name, route, body, expect, entry.weights == "any")


def _asking(path: Path, where: str, entry: _Entry) -> tuple[str, dict[str, Any]]:
    if entry.completion is not None:
        if entry.image is not None:
            raise _wrong(path, f"{where} asks a completion with an image; ask a chat")
        return COMPLETIONS, {"prompt": entry.completion}
    if entry.messages is not None:
        return CHAT, {"messages": entry.messages}
    content: Any = entry.chat
    if entry.image is not None:
        content = with_image(content, _image(path, where, entry.image))
    return CHAT, {"messages": [{"role": "user", "content": content}]}


def _image(path: Path, where: str, name: str) -> str:
    if re.fullmatch(r"squares-\d{1,3}", name):
        return picture(int(name.partition("-")[2]) % 256)
    place = path.parent / name
    kind = mimetypes.guess_type(name)[0] or ""
    if not kind.startswith("image/") or not place.is_file():
        raise _wrong(path, f"the image of {where} is no picture: {place}")
    return f"data:{kind};base64,{base64.b64encode(place.read_bytes()).decode()}"


def _check_pattern(path: Path, where: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise _wrong(path, f"{pattern!r} of {where} is no regular expression: {error}") from error


def _wrong(path: Path, what: str) -> BadInput:
    return BadInput(
        f"{path} is no gate file: {what}",
        expected="requests, each with a name, one of chat, messages or completion, and what it expects",
        try_="references/serving.md shows one",
    )


def ask(client: Client, name: str, requests: Sequence[Request], real: bool) -> list[Check]:
    """One check for each request. What expects something of real weights is not asked of dummy ones."""
    answers: dict[str, Answer] = {}
    found = []
    for request in requests:
        label = f"semantic:{request.name}"
        if not real and not request.dummy_too:
            found.append(skipped(label, "it expects real weights"))
            continue
        found.append(_one(client, name, request, label, real, answers))
        if client.broken():
            break
    return found


def _one(
    client: Client, name: str, request: Request, label: str, real: bool, answers: dict[str, Answer]
) -> Check:
    body = {"return_token_ids": True} | request.body | {"model": name}
    exchange = client.post(request.path, body)
    prompt = _prompt(request)
    # what the gate file expects decides; that an answer came and was counted is needed in any case
    check = judge(label, exchange, False, prompt)
    if check.state != "PASS":
        return check
    answer = read(exchange)
    assert answer is not None
    answers[request.name] = answer
    faults = (fault(key, wanted, answer, answers) for key, wanted in request.expect.items())
    if why := next(filter(None, faults), ""):
        return failed(label, why, prompt, answer.text[:_SHOWN])
    if request.expect.get("twice") == "same":
        again = same(label, exchange, client.post(request.path, body))
        if again.state != "PASS":
            return again
    return passed(label, prompt, answer.text[:_SHOWN])


def fault(key: str, wanted: Any, answer: Answer, answers: dict[str, Answer]) -> str:
    """What an answer does not hold of one expectation; empty when it holds it."""
    text = answer.text
    if key in ("same_as", "differs_from") and wanted not in answers:
        return f"the answer to {wanted!r}, which it is compared with, is missing"
    if key == "sequence":
        missing = in_order(text, [str(one) for one in wanted])
        return missing and f"{missing!r} is not there, or not in its order"
    if key == "matches":
        return "" if re.search(wanted, text) else f"it does not match {wanted!r}"
    if key == "not_matches":
        return f"it matches {wanted!r}" if re.search(wanted, text) else ""
    if key == "finish_reason":
        why = f"it ended for the reason {answer.finish!r}, expected {wanted!r}"
        return "" if answer.finish == wanted else why
    if key == "least_tokens":
        return "" if answer.tokens >= wanted else f"{answer.tokens} tokens, expected at least {wanted}"
    if key == "tokens":
        got = list(answer.ids[: len(wanted)])
        return "" if got == list(wanted) else f"its tokens begin {got}, expected {list(wanted)}"
    if key == "same_as":
        return "" if text == answers[wanted].text else f"it differs from the answer to {wanted!r}"
    if key == "differs_from":
        return f"it is the same as the answer to {wanted!r}" if text == answers[wanted].text else ""
    if key == "audio":
        return audio_fault(answer, float(wanted))
    if key == "image":
        return image_fault(answer) if wanted else ""
    return ""


def _prompt(request: Request) -> str:
    if "prompt" in request.body:
        return str(request.body["prompt"])[:_SHOWN]
    content = request.body["messages"][-1].get("content", "")
    if isinstance(content, list):
        content = " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content)[:_SHOWN]
