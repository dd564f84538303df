"""What every model is asked: generations, a chat, completions, pictures where it takes them; and judging it.

With dummy weights an answer has to come, be counted and leave the engine alive. With real weights it also
has to be worth something.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from npu_upgrade.gates.serving.answers import FINISHED, Answer, is_one_token, read
from npu_upgrade.gates.serving.checks import FAIL, Check, failed, passed, skipped, unsure
from npu_upgrade.gates.serving.requests import Client, Exchange

SIDE = 112  # pixels


def picture(seed: int, side: int = SIDE) -> str:
    """A data URL of coloured squares, other ones for every seed."""
    rows = []
    for y in range(side):
        line = bytearray(b"\0")
        for x in range(side):
            line += _colour(seed, x * 4 // side, y * 4 // side)
        rows.append(bytes(line))
    data = _chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    data += _chunk(b"IDAT", zlib.compress(b"".join(rows))) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


def with_image(text: str, url: str) -> list[dict[str, Any]]:
    """The content of a message that asks about an image."""
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]


def _colour(seed: int, column: int, row: int) -> bytes:
    return zlib.crc32(bytes((seed, column, row))).to_bytes(4, "big")[:3]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
EMBEDDINGS, POOLING, DETOKENIZE = "/v1/embeddings", "/pooling", "/detokenize"
_PROMPTS = ("The capital of France is", "One, two, three,", "Water boils at")
_QUESTION = "What is the capital of France? Answer in one sentence."
_LOOK = "Describe this picture."
_NO_TEMPLATE = ("chat template",)
_NO_IMAGES = ("At most 0 image", "is not a multimodal model")
_SHOWN = 200  # characters of an answer
_ONE_TOKEN = "the answer is one token over and over"
_EMPTY = "the answer is empty"
_AS_THERE = "as the reference has it, which this server equals"


@dataclass(frozen=True)
class Asking:
    """How a server is asked: which weights it has, how often and how long it generates.

    ``omni``: stages answer chats only; a completion gets what the last stage has for one, which is nothing.
    ``unsteady``: why the same request may get two answers of this device, and what tells. ``as_there``:
    whether the server equals a reference, and with True one that says one token over and over, too.
    """

    client: Client
    name: str
    real: bool
    paths: frozenset[str]
    generations: int = 3
    tokens: int = 16
    omni: bool = False
    unsteady: str = ""
    as_there: Callable[[bool], bool] = lambda repeated: False

    @property
    def completing(self) -> bool:
        """Whether generations are completions, not chats."""
        if self.omni and CHAT in self.paths:
            return False
        return COMPLETIONS in self.paths or not self.paths

    def chat(self, content: Any, **more: Any) -> Exchange:
        body = {"model": self.name, "messages": [{"role": "user", "content": content}]}
        asked = {"max_tokens": self.tokens, "temperature": 0, "return_token_ids": True}
        return self.client.post(CHAT, body | asked | more)

    def complete(self, prompt: str, **more: Any) -> Exchange:
        body = {"model": self.name, "prompt": prompt, "max_tokens": self.tokens, "temperature": 0}
        return self.client.post(COMPLETIONS, body | {"return_token_ids": True} | more)

    def judge(self, name: str, exchange: Exchange, prompt: str) -> Check:
        """One answer by itself; one token over and over is none of the server's faults where it has to be."""
        check = judge(name, exchange, self.real, prompt, self.detokenize)
        odd = check.state == FAIL and check.why.startswith((_ONE_TOKEN, _EMPTY))
        if odd and self.as_there(check.why == _ONE_TOKEN):
            return passed(name, prompt, check.answer, f"{check.why}, {_AS_THERE}")
        return check

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of tokens as the server's tokenizer has it; empty where it does not tell."""
        if not ids or DETOKENIZE not in self.paths:
            return ""
        exchange = self.client.post(DETOKENIZE, {"model": self.name, "tokens": list(ids)})
        said = exchange.answer.get("prompt") if isinstance(exchange.answer, dict) else ""
        return said if isinstance(said, str) else ""


def generations(asking: Asking) -> list[Check]:
    """Several generations, one after the other; the engine may die of the first or of a later one."""
    if asking.paths and not {COMPLETIONS, CHAT} & asking.paths:
        return [_pooling(asking)]
    found, answers = [], []
    for number in range(asking.generations):
        prompt = _PROMPTS[number % len(_PROMPTS)]
        exchange = asking.complete(prompt) if asking.completing else asking.chat(prompt)
        check = asking.judge("generation", exchange, prompt)
        which = f"generation {number + 1} of {asking.generations}"
        found.append(replace(check, why=check.why and f"{which}: {check.why}"))
        if exchange.status != 200:
            break
        answers.append(read(exchange))
    return found + ([_variety(answers, asking.as_there(True))] if asking.real and len(answers) > 1 else [])


def _variety(answers: Sequence[Answer | None], repeats: bool) -> Check:
    """Different prompts that are all answered alike show weights that say nothing."""
    texts = {(answer.text, answer.ids) for answer in answers if answer}
    if len(texts) == 1:
        text, _ = texts.pop()
        if repeats:
            return passed("variety", answer=text[:_SHOWN], why=f"one answer to all prompts, {_AS_THERE}")
        return unsure("variety", "different prompts got the same answer", answer=text[:_SHOWN])
    return passed("variety")


def chat(asking: Asking) -> list[Check]:
    """A chat at temperature 0; with real weights the same again."""
    if asking.paths and CHAT not in asking.paths:
        return [skipped("chat", "the server has no chat route for this model")]
    exchange = asking.chat(_QUESTION)
    if exchange.status == 400 and any(word in exchange.why for word in _NO_TEMPLATE):
        return [skipped("chat", "its tokenizer has no chat template; the completions were judged")]
    found = [asking.judge("chat", exchange, _QUESTION)]
    if asking.real and exchange.status == 200:
        found.append(same("repeat", exchange, asking.chat(_QUESTION), asking.unsteady))
    return found


def pictures(asking: Asking, takes_images: bool) -> list[Check]:
    """Two pictures, the same question: both are answered, and with real weights not alike."""
    if not takes_images:
        return [skipped("image", "the model takes no images")]
    asked = [asking.chat(with_image(_LOOK, picture(seed)), logprobs=True, top_logprobs=1) for seed in (1, 2)]
    if asked[0].status == 400 and any(words in asked[0].why for words in _NO_IMAGES):
        return [skipped("image", f"this server takes no images as it was started: {asked[0].why}")]
    for exchange in asked:
        check = asking.judge("image", exchange, _LOOK)
        if check.state != "PASS":
            return [check]
    if not asking.real:
        return [passed("image", _LOOK)]
    first, second = (read(exchange) for exchange in asked)
    assert first is not None
    assert second is not None
    if first.text != second.text:
        return [passed("image", _LOOK, f"{first.text[:_SHOWN]} | {second.text[:_SHOWN]}")]
    if first.probabilities and first.probabilities != second.probabilities:
        why = "another picture changes the probabilities, but not the answer"
        return [unsure("image", why, _LOOK, first.text)]
    why = "another picture changes nothing: the image does not reach the model"
    return [failed("image", why, _LOOK, first.text)]


def judge(
    name: str,
    exchange: Exchange,
    real: bool,
    prompt: str = "",
    detokenize: Callable[[Sequence[int]], str] = lambda ids: "",
) -> Check:
    """One answer by itself. ``detokenize``: token ids -> their text, asked where the answer has none."""
    if exchange.why:
        return failed(name, f"no answer: {exchange.why}", prompt)
    answer = read(exchange)
    if answer is None:
        return failed(name, "the answer is no completion", prompt, str(exchange.answer)[:_SHOWN])
    shown = answer.text[:_SHOWN]
    if answer.tokens <= 0:
        return failed(name, "no token was counted", prompt, shown)
    if not all(map(math.isfinite, answer.probabilities)):
        return failed(name, "a probability is infinite or not a number", prompt, shown)
    if not real:
        return passed(name, prompt, shown)
    held_back = False
    if not answer.text.strip() and not any(part.get("audio") for part in answer.parts):
        # a server holds the bytes of a character back until it is whole, which random bytes never are
        held_back = set(detokenize(answer.ids)) == {"\ufffd"}
        if not held_back:
            return failed(name, f"{_EMPTY} ({answer.tokens} tokens were counted)", prompt)
    if is_one_token(answer):
        return failed(name, _ONE_TOKEN, prompt, shown)
    if answer.finish not in FINISHED:
        why = f"it ended for the reason {answer.finish!r}, expected stop or length"
        return failed(name, why, prompt, shown)
    why = f"its {answer.tokens} tokens are bytes that make no whole character" if held_back else ""
    return passed(name, prompt, shown, why)


def same(name: str, first: Exchange, second: Exchange, unsteady: str = "") -> Check:
    """The same request twice at temperature 0; a difference proves nothing, and passes nothing.

    ``unsteady``: what may be behind one.
    """
    one, two = read(first), read(second)
    if second.why or one is None or two is None:
        return failed(name, f"the second time there was no answer: {second.why}")
    if one.text == two.text:
        return passed(name)
    both = f"{one.text[:_SHOWN]} | {two.text[:_SHOWN]}"
    return unsure(name, f"the same request got two answers{unsteady}", answer=both)


def _pooling(asking: Asking) -> Check:
    """Models that generate nothing: an embedding or pooled output of numbers."""
    path = next((one for one in (EMBEDDINGS, POOLING) if one in asking.paths), None)
    if path is None:
        why = "the server has neither completions nor chat nor embeddings for this model"
        return unsure("generation", why)
    exchange = asking.client.post(path, {"model": asking.name, "input": list(_PROMPTS[:2])})
    if exchange.why:
        return failed("generation", f"no answer: {exchange.why}", _PROMPTS[0])
    try:
        rows = [one.get("embedding", one.get("data")) for one in exchange.answer["data"]]
        flat = [_numbers(row) for row in rows]
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError):
        return failed("generation", "the answer holds no vectors", _PROMPTS[0], str(exchange.answer)[:_SHOWN])
    if len(flat) != 2 or not all(flat) or not all(math.isfinite(number) for row in flat for number in row):
        return failed("generation", "a vector is empty, infinite or not a number", _PROMPTS[0])
    if asking.real and flat[0] == flat[1]:
        return failed("generation", "different texts got the same vector", _PROMPTS[0])
    return passed("generation", _PROMPTS[0], f"{len(flat[0])} numbers", why=f"asked at {path}")


def _numbers(row: Any) -> list[float]:
    if isinstance(row, list):
        return [number for part in row for number in _numbers(part)]
    return [float(row)]
