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
from typing import Any

import yaml

from npu_upgrade.gates.serving.answers import Answer, audio_fault, image_fault, in_order, read
from npu_upgrade.gates.serving.checks import Check, failed, passed, skipped, unsure
from npu_upgrade.gates.serving.requests import Client
from npu_upgrade.gates.serving.smoke import judge, picture, with_image
from npu_upgrade.ground.errors import BadInput

_EXPECT = {
    "sequence": list, "matches": str, "not_matches": str, "finish_reason": str, "least_tokens": int,
    "tokens": list, "twice": str, "same_as": str, "differs_from": str, "audio": (int, float), "image": bool,
}  # fmt: skip
_KEYS = {"name", "chat", "messages", "completion", "image", "body", "weights", "expect"}


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
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _wrong(path, " ".join(str(error).split())) from error
    entries = content.get("requests") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or set(content) - {"requests"}:
        raise _wrong(path, "it has to be a mapping with one key, requests, and a list below it")
    found: list[Request] = []
    for number, entry in enumerate(entries, start=1):
        found.append(_request(path, number, entry, [one.name for one in found]))
    return found


def _request(path: Path, number: int, entry: Any, before: list[str]) -> Request:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise _wrong(path, f"request {number} is no mapping with a name")
    where = f"request {entry['name']!r}"
    if unknown := set(entry) - _KEYS:
        raise _wrong(
            path, f"{where} has {', '.join(sorted(map(str, unknown)))}, which is no key of a request"
        )
    if entry["name"] in before:
        raise _wrong(path, f"{where} is there twice")
    asked = [key for key in ("chat", "messages", "completion") if key in entry]
    if len(asked) != 1:
        raise _wrong(path, f"{where} needs one of chat, messages and completion")
    body = entry.get("body") or {}
    if not isinstance(body, dict) or "model" in body:
        raise _wrong(path, f"the body of {where} is a mapping without model, which the gate adds")
    if entry.get("weights", "real") not in ("real", "any"):
        raise _wrong(path, f"weights of {where} is real or any")
    expect = _expect(path, where, entry.get("expect") or {}, before)
    route, asking = _asking(path, where, entry, asked[0])
    body = {"max_tokens": 16, "temperature": 0} | body | asking
    return Request(entry["name"], route, body, expect, entry.get("weights") == "any")


def _asking(path: Path, where: str, entry: dict[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    if kind == "completion":
        if "image" in entry:
            raise _wrong(path, f"{where} asks a completion with an image; ask a chat")
        return "/v1/completions", {"prompt": entry["completion"]}
    if kind == "messages":
        if not isinstance(entry["messages"], list):
            raise _wrong(path, f"messages of {where} is a list")
        return "/v1/chat/completions", {"messages": entry["messages"]}
    content: Any = str(entry["chat"])
    if "image" in entry:
        content = with_image(content, _image(path, where, str(entry["image"])))
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}


def _image(path: Path, where: str, name: str) -> str:
    if re.fullmatch(r"squares-\d{1,3}", name):
        return picture(int(name.partition("-")[2]) % 256)
    place = path.parent / name
    kind = mimetypes.guess_type(name)[0] or ""
    if not kind.startswith("image/") or not place.is_file():
        raise _wrong(path, f"the image of {where} is no picture: {place}")
    return f"data:{kind};base64,{base64.b64encode(place.read_bytes()).decode()}"


def _expect(path: Path, where: str, expect: Any, before: list[str]) -> dict[str, Any]:
    if not isinstance(expect, dict):
        raise _wrong(path, f"expect of {where} is a mapping")
    for key, value in expect.items():
        kind = _EXPECT.get(key)
        if kind is None:
            raise _wrong(path, f"{where} expects {key}; known are {', '.join(_EXPECT)}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _wrong(path, f"{key} of {where} has a value of the wrong kind: {value!r}")
        if key in ("matches", "not_matches"):
            _check_pattern(path, where, value)
        if key in ("same_as", "differs_from") and value not in before:
            raise _wrong(path, f"{where} compares with {value!r}, which is no earlier request")
        if key == "twice" and value != "same":
            raise _wrong(path, f"twice of {where} can only be: same")
    return expect


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


_SHOWN = 200


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
    if why := fault(answer, request.expect, answers):
        return failed(label, why, prompt, answer.text[:_SHOWN])
    if request.expect.get("twice") == "same":
        again = read(client.post(request.path, body))
        if again is None:
            return failed(label, "the second time there was no answer", prompt)
        if again.text != answer.text:
            return unsure(label, "the same request got two answers", prompt, again.text[:_SHOWN])
    return passed(label, prompt, answer.text[:_SHOWN])


def fault(answer: Answer, expect: dict, answers: dict[str, Answer]) -> str:
    """What of ``expect`` an answer does not hold; empty when it holds all."""
    for key, wanted in expect.items():
        if why := _fault(key, wanted, answer, answers):
            return why
    return ""


def _fault(key: str, wanted, answer: Answer, answers: dict[str, Answer]) -> str:
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
        return (
            ""
            if answer.finish == wanted
            else f"it ended for the reason {answer.finish!r}, expected {wanted!r}"
        )
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
