"""The requests of a gate file: asked in their order, and held against what they expect."""

from __future__ import annotations

import re
from collections.abc import Sequence

from npu_upgrade.gates.serving import media
from npu_upgrade.gates.serving.checks import Check, failed, passed, skipped, unsure
from npu_upgrade.gates.serving.gate_file import Request
from npu_upgrade.gates.serving.quality import Answer, in_order, read
from npu_upgrade.gates.serving.requests import Client
from npu_upgrade.gates.serving.smoke import judge

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
        return media.audio_fault(answer, float(wanted))
    if key == "image":
        return media.image_fault(answer) if wanted else ""
    return ""


def _prompt(request: Request) -> str:
    if "prompt" in request.body:
        return str(request.body["prompt"])[:_SHOWN]
    content = request.body["messages"][-1].get("content", "")
    if isinstance(content, list):
        content = " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content)[:_SHOWN]
