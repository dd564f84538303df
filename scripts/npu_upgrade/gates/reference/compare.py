"""A server asked what a reference holds, and held against it.

Each prompt is asked twice: once with the reference's continuation behind it, for the log-probabilities along
the whole text, and once for the server's own greedy tokens, which are compared until a near-tie parts them.
How much may differ comes from the reference: half of the differences, and nine of ten, have to stay within
``TIMES`` what the half dtype changes in Transformers itself. Quantiles, because a mixture's router may choose
another expert at a near-tie of its own, which changes a few places a lot in any dtype.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.gates.reference.reference import (
    TEXT,
    NoReference,
    Prompt,
    Reference,
    digest,
    make,
    question,
    read,
)
from npu_upgrade.gates.serving.checks import Check, failed, passed, skipped
from npu_upgrade.gates.serving.launch import REAL, Launch
from npu_upgrade.gates.serving.requests import Client, Exchange
from npu_upgrade.gates.serving.smoke import CHAT, COMPLETIONS, with_image

_ANSWERS = "loads and answers"
EQUAL, DIFFERS, NONE = "equal", "differs", "none"
TIMES = 3.0
FLOOR = 0.005  # of a log-probability: less is the order of a sum
LEAST = 24  # compared places: below that nothing is said, and nine of ten are too few to count
_QUANTILES = (0.5, 0.9)
_FINER = {"bfloat16": 1.0, "float16": 1 / 8, "float32": 1 / 8}  # rounding; NPUs multiply float32 in 11 bits
_GREEDY = {"temperature": 0, "repetition_penalty": 1.0, "presence_penalty": 0, "frequency_penalty": 0}
_TELLING = {"ignore_eos": True, "return_token_ids": True, "return_tokens_as_token_ids": True}


class Outcome(msgspec.Struct, frozen=True):
    """What ``result.json`` says of real weights.

    ``state``: equal, differs or none; ``why`` is a sentence. ``kinds``: text, image: what was compared.
    ``tokens``: places whose log-probabilities were compared. ``largest`` and ``tolerance`` are differences of
    log-probabilities; nine of ten have to be within the tolerance. ``label``: whose code, and recorded where.
    """

    state: str
    why: str
    transformers: str = ""
    prompts: int = 0
    tokens: int = 0
    largest: float | None = None
    tolerance: float | None = None
    digest: str = ""
    label: str = ""
    kinds: list[str] = []

    @property
    def check(self) -> Check:
        if self.state == NONE:
            return skipped("reference", self.why)
        return (passed if self.state == EQUAL else failed)("reference", why=self.why)


@dataclass
class Held:
    """What a launch is held against: ``reference`` and its ``file``, or nothing; ``outcome`` is what came."""

    outcome: Outcome
    reference: Reference | None = None
    file: Path | None = None

    def compare(self, client: Client, name: str, resolved: Mapping[str, Any]) -> list[Check]:
        """Ask the server called ``name``, whose settings are ``resolved``; ``outcome`` is then of it."""
        if self.reference:
            self.outcome = _Comparison(self.reference, self.outcome.label).held(client, name, resolved)
        return [self.outcome.check]


def find(launch: Launch, file: Path | None) -> Held:
    """The reference of what is started: ``file``, or one that Transformers makes here.

    Raises :class:`BadInput` for a file that is of other weights.
    """
    if launch.load_format != REAL:
        return Held(Outcome(NONE, "dummy weights are compared with nothing"))
    if launch.omni:
        return Held(Outcome(NONE, f"{_ANSWERS}: the stages of vllm-omni are compared with nothing"))
    try:
        if file:
            reference, where = read(file, digest(model_folder(launch.model))), "recorded elsewhere"
        else:
            trust = "--trust-remote-code" in launch.arguments
            (reference, file), where = make(launch.model, launch.python, trust=trust), "made here"
    except NoReference as none:
        return Held(Outcome(NONE, f"{_ANSWERS}, no reference: {none}"))
    label = f"{reference.code}, {where}"
    unasked = Outcome(
        NONE, "it was not compared", reference.transformers, digest=reference.digest, label=label
    )
    return Held(unasked, reference, file)


@dataclass(frozen=True)
class Place:
    """One position of a prompt and its continuation, compared. ``way``: read or generated.

    ``token``: the reference's, of which the server says ``got`` or, unsaid, at most that; ``allowed``: noise.
    """

    prompt: str
    way: tuple[str, str]
    position: int
    token: int
    wanted: float
    got: float
    noise: float

    @property
    def size(self) -> float:
        return abs(self.wanted - self.got)


@dataclass
class _Comparison:
    """``finer``: how much smaller the rounding of the served dtype is than that of the half dtype."""

    reference: Reference
    label: str
    places: list[Place] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    wrong: str = ""
    asked: int = 0
    finer: float = 1.0

    def held(self, client: Client, name: str, resolved: Mapping[str, Any]) -> Outcome:
        lossy = (resolved.get("quantization"), resolved.get("kv_cache_dtype"))
        if lossy[0] or any(part in str(lossy[1]) for part in ("fp8", "int8")):
            why = f"{_ANSWERS}: served with quantization {lossy[0]}, cache {lossy[1]}, the reference without"
            return replace(self._judge(), why=why)
        self.finer = _FINER.get(str(resolved.get("dtype", "")), 1.0)
        longest = resolved.get("max_model_len") or math.inf
        for prompt in self.reference.prompts:
            if len(prompt.ids) + len(prompt.tokens) < longest:
                ask = self._text if prompt.kind == TEXT else self._image
                self.asked += ask(client, name, prompt)
            if self.wrong or client.broken():
                break
        return self._judge()

    def _text(self, client: Client, name: str, prompt: Prompt) -> bool:
        body, top = {"model": name, **_GREEDY, **_TELLING}, _top(prompt)
        whole = {"prompt": [*prompt.ids, *prompt.tokens], "max_tokens": 1, "prompt_logprobs": top}
        answer = self._answer(prompt, client.post(COMPLETIONS, body | whole))
        read = self._read(prompt, _choice(answer).get("prompt_logprobs"))
        more = {"prompt": prompt.ids, "max_tokens": len(prompt.tokens), "logprobs": top}
        answer = self._answer(prompt, client.post(COMPLETIONS, body | more))
        return self._generated(prompt, _completed(_choice(answer))) or read

    def _image(self, client: Client, name: str, prompt: Prompt) -> bool:
        top = _top(prompt)
        content = with_image(*question(prompt))
        body = {"model": name, **_GREEDY, **_TELLING, "messages": [{"role": "user", "content": content}]}
        body |= {"max_tokens": len(prompt.tokens), "logprobs": True, "top_logprobs": top}
        if max(prompt.ids) < self.reference.vocabulary:  # the log-probability of another one may not exist
            body["prompt_logprobs"] = top
        answer = self._answer(prompt, client.post(CHAT, body))
        ids = answer.get("prompt_token_ids")
        if answer and ids != prompt.ids:
            self.refused.append(
                f"{prompt.name}: the server reads {ids}, the model's own processor {prompt.ids}"[:300]
            )
            return False
        read = self._read(prompt, answer.get("prompt_logprobs"))
        return self._generated(prompt, _chatted(_choice(answer))) or read

    def _answer(self, prompt: Prompt, exchange: Exchange) -> dict[str, Any]:
        """The answer, or an empty one; what the server refuses is not wrong, what it cannot do is."""
        if exchange.status == 200 and isinstance(exchange.answer, dict):
            return exchange.answer
        if exchange.status in (400, 404, 422):
            self.refused.append(f"{prompt.name}: {exchange.why}"[:300])
        else:
            self.wrong = self.wrong or f"{prompt.name}: no answer: {exchange.why}"
        return {}

    def _read(self, prompt: Prompt, told: Any) -> bool:
        """Compare what the server says along the whole text, or along the prompt alone."""
        found = [_numbers(one) for one in told or ()][1:]
        self._compare(prompt, "read", range(len(found)), found)
        return bool(found)

    def _generated(self, prompt: Prompt, told: Sequence[tuple[int, Mapping[int, float]]]) -> bool:
        """Compare the server's own tokens, until one is another one; only a near-tie may part them."""
        start = len(prompt.ids) - 1
        same = [one == other for (one, _), other in zip(told, prompt.tokens, strict=False)]
        until = same.index(False) + 1 if False in same else len(same)
        self._compare(prompt, "generated", range(start, start + until), [one for _, one in told[:until]])
        row = dict(prompt.rows[start + until - 1])
        if False in same and row and not self.wrong:
            token, other = prompt.tokens[until - 1], told[until - 1][0]
            gap = row[token] - row.get(other, min(row.values()))
            width = max(FLOOR, TIMES * self.finer * max(prompt.noise))
            if gap > width:
                self.wrong = (
                    f"prompt {prompt.name!r}, position {start + until}: {token} is likelier by {gap:.4f} than"
                    f" {other}, which was generated; a near-tie is at most {width:.4f}"
                )
        return until > 0

    def _compare(
        self, prompt: Prompt, way: str, positions: Iterable[int], told: Iterable[Mapping[int, float]]
    ) -> None:
        top = _top(prompt)
        for at, numbers in zip(positions, told, strict=False):
            row = prompt.rows[at]
            if not row or not numbers:
                continue
            if not all(map(math.isfinite, numbers.values())):
                self.wrong = self.wrong or f"{prompt.name}, position {at + 1}: a log-probability is no number"
                return
            # what the server does not name is at most as likely as the last of the likeliest, which it names
            least = sorted(numbers.values(), reverse=True)[:top][-1] if len(numbers) >= top else math.inf
            pairs = [(one, value, numbers.get(one, min(value, least))) for one, value in row]
            token, wanted, got = max(pairs, key=lambda one: abs(one[1] - one[2]))
            place = Place(prompt.name, (prompt.kind, way), at + 1, token, wanted, got, prompt.noise[at])
            self.places.append(place)

    def _judge(self) -> Outcome:
        named = f"Transformers {self.reference.transformers}"
        groups = defaultdict(list)
        for place in self.places:
            groups[place.way].append(place)
        noise = {way: [one.noise for one in self.places if one.way[0] == way[0]] for way in groups}
        allowed = {way: [_allowed(noise[way], at, self.finer) for at in _QUANTILES] for way in groups}
        for way, places in groups.items():
            parts = _QUANTILES if len(places) >= LEAST else _QUANTILES[:1]
            for part, most in zip(parts, allowed[way], strict=False):
                off = _quantile([one.size for one in places], part)
                if off > most and not self.wrong:
                    worst = max(places, key=lambda one: one.size)
                    self.wrong = _told(worst, f"{part:.0%} of {len(places)} places {way[1]}", off, most)
        outcome = Outcome(
            EQUAL,
            "",
            self.reference.transformers,
            self.asked,
            len(self.places),
            round(max((one.size for one in self.places), default=0.0), 4),
            round(max((bounds[1] for bounds in allowed.values()), default=0.0), 4),
            self.reference.digest,
            self.label,
            sorted({kind for kind, _ in groups}),
        )
        if self.wrong:
            return replace(outcome, state=DIFFERS, why=f"differs from {named}: {self.wrong}")
        missing = self.refused + [f"no {kind}: {why}" for kind, why in self.reference.without.items()]
        also = f"; {missing[0]}"[:200] if missing else ""
        if len(self.places) < LEAST:
            why = f"{_ANSWERS}: {len(self.places)} tokens compared with {named}{also}"
            return replace(outcome, state=NONE, why=why)
        text = f"equals {named}: {self.asked} prompts, {len(self.places)} tokens"
        return replace(outcome, why=f"{text}, largest difference {outcome.largest}{also}")


def _top(prompt: Prompt) -> int:
    """Of how many of the likeliest tokens the server is asked."""
    return max(map(len, prompt.rows))


def _told(place: Place, which: str, off: float, most: float) -> str:
    return (
        f"{which} differ by up to {off:.4f}, allowed {most:.4f}; most in prompt {place.prompt!r}, position"
        f" {place.position}: token {place.token} has {place.wanted:.4f}, here {place.got:.4f}"
    )


def _allowed(noise: Sequence[float], part: float, finer: float) -> float:
    return max(FLOOR, TIMES * finer * _quantile(noise, part))


def _quantile(values: Sequence[float], part: float) -> float:
    """The value that ``part`` of the values do not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def _choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices") or [{}]
    return choices[0]


def _numbers(told: Any) -> dict[int, float]:
    """Token id -> log-probability of one place, as ``prompt_logprobs`` tells it."""
    return {int(one): _number(said["logprob"]) for one, said in (told or {}).items()}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _completed(choice: Mapping[str, Any]) -> list[tuple[int, dict[int, float]]]:
    """The generated ids of a completion, each with the log-probabilities at its place."""
    told = choice.get("logprobs") or {}
    tops = [
        {_id(one): _number(value) for one, value in (top or {}).items()}
        for top in told.get("top_logprobs") or ()
    ]
    return list(zip(map(_id, told.get("tokens") or ()), tops, strict=False))


def _chatted(choice: Mapping[str, Any]) -> list[tuple[int, dict[int, float]]]:
    """The same of a chat."""
    told = (choice.get("logprobs") or {}).get("content") or ()
    return [
        (_id(one["token"]), {_id(top["token"]): _number(top["logprob"]) for top in one["top_logprobs"]})
        for one in told
    ]


def _id(text: str) -> int:
    return int(text.removeprefix("token_id:"))
