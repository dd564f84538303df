"""A server asked what a reference holds, and held against it.

It reads each prompt with the reference's continuation and tells the log-probabilities along it, and it
generates its own tokens, which are compared until a near-tie parts them. Half of the differences, and nine of
ten, have to stay within ``TIMES`` what the half dtype changes in Transformers itself. Shares, because the
router of a mixture may choose another expert at a near-tie, which changes a few places a lot in any dtype.

A wrong scale moves all places together, where rounding moves most of them each its own way. So the
differences are also fitted to what a scale changes in Transformers: a few percent show below the rounding of
a single place. What the half dtype does to all places of a model together is fitted alike and allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from npu_upgrade.checkpoint.likeness import Likeness
from npu_upgrade.checkpoint.locate import model_folder
from npu_upgrade.evidence.judged import model_digest
from npu_upgrade.evidence.runs import mapping
from npu_upgrade.gates.reference.reference import (
    LOOK,
    TEXT,
    NoReference,
    Prompt,
    Reference,
    make,
    read,
)
from npu_upgrade.gates.serving.answers import is_repeated
from npu_upgrade.gates.serving.checks import PASS, Check, failed, passed, skipped
from npu_upgrade.gates.serving.launch import REAL, Launch
from npu_upgrade.gates.serving.requests import Client, Exchange
from npu_upgrade.gates.serving.smoke import CHAT, COMPLETIONS, picture, with_image
from npu_upgrade.ground.files import read_object

EQUAL, DIFFERS, NONE = "equal", "differs", "none"
TIMES = 3.0
FLOOR = 0.005  # of a log-probability: less is the order of a sum
LEAST = 24  # compared places: below that nothing is said, and nine of ten are too few to count
SCALE, SURE = 0.03, 8.0  # a scale that is off by more than this, and by more than so many standard errors
_SHARES = (0.5, 0.9)
_FINER = {"float16": 1 / 8, "float32": 1 / 8}  # rounding over bfloat16's; NPUs multiply float32 in 11 bits
_GREEDY = {"temperature": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
_TELLING = {"ignore_eos": True, "return_token_ids": True, "return_tokens_as_token_ids": True}
_ANSWERS = "loads and answers"
_Told = Sequence[tuple[int, Mapping[int, float]]]  # a token, and what the server says of its place


class Outcome(msgspec.Struct, frozen=True):
    """What ``result.json`` says of real weights.

    ``state``: equal, differs or none; ``why`` is a sentence. ``kinds``: text, image: what was compared.
    ``tokens``: places whose log-probabilities were compared. ``largest`` and ``tolerance`` are differences of
    log-probabilities; nine of ten have to be within the tolerance. ``label``: whose code, and recorded where.
    ``planned``: the architecture that the job's plan says the weights are of, where it named them for the
    reference, too; ``assumed``: what this plan takes for granted.
    """

    state: str
    why: str
    transformers: str = ""
    prompts: int = 0
    tokens: int = 0
    largest: float = 0.0
    tolerance: float = 0.0
    digest: str = ""
    label: str = ""
    planned: str = ""
    assumed: list[str] = []
    kinds: list[str] = []

    @property
    def check(self) -> Check:
        if self.state == NONE:
            return skipped("reference", self.why)
        return (passed if self.state == EQUAL else failed)("reference", why=self.why)


@dataclass
class Held:
    """What a launch is held against: ``reference`` and its ``file``, or nothing."""

    outcome: Outcome
    reference: Reference | None = None
    file: Path | None = None

    def as_there(self, client: Client, name: str, resolved: Mapping[str, Any], repeated: bool) -> bool:
        """Whether the server equals the reference, which says (``repeated``) one token over and over, too."""
        prompts = self.reference.prompts if self.reference else ()
        alike = any(is_repeated(one.tokens) for one in prompts) if repeated else bool(prompts)
        return alike and self.compare(client, name, resolved)[0].state == PASS

    def compare(self, client: Client, name: str, resolved: Mapping[str, Any]) -> list[Check]:
        """Ask the server called ``name``, whose settings are ``resolved``; ``outcome`` is then of it."""
        if self.reference:
            finer = _FINER.get(str(resolved.get("dtype")), 1.0)
            adapters = bool(resolved.get("lora_config")) and resolved.get("device") == "npu"
            asked = _Asked(self.reference, finer, resolved.get("max_model_len") or math.inf, not adapters)
            lossy = f"quantization {resolved.get('quantization')}, cache {resolved.get('cache_dtype')}"
            if resolved.get("quantization") or "fp8" in lossy or "int8" in lossy:
                asked.refused.append(f"served with {lossy}, the reference without")
            else:
                asked.ask(client, name)
            self.outcome = asked.judged(self.outcome)
        return [self.outcome.check]


def find(launch: Launch, file: Path | None, like: Likeness | None = None) -> Held:
    """The reference of what is started: ``file``, or one that Transformers makes here, ``like`` a family.

    The checkpoint's own code goes before a family that a plan chose, where a person lets it run. Raises
    :class:`BadInput` for a file that is of other weights.
    """
    if launch.load_format != REAL:
        return Held(Outcome(NONE, "dummy weights are compared with nothing"))
    if launch.omni:
        return Held(Outcome(NONE, f"{_ANSWERS}: the stages of vllm-omni are compared with nothing"))
    try:
        if file:
            content = model_digest(model_folder(launch.model)) or ""
            reference, where = read(file, content), "recorded elsewhere"
        else:
            trust = "--trust-remote-code" in launch.arguments
            if trust and _has_own_code(Path(launch.model)):
                like = None
            given: Any = {"trust": trust, "like": like, "variables": launch.environment}
            (reference, file), where = (
                make(launch.model, launch.python, **given),
                "made here",
            )
    except NoReference as none:
        return Held(Outcome(NONE, f"{_ANSWERS}, no reference: {none}"))
    unasked = Outcome(NONE, "it was not compared", reference.transformers, digest=reference.digest)
    by_plan = reference.architecture if like else ""
    code = f"{reference.code}, as {by_plan} by the plan" if by_plan else reference.code
    assumed = like.assumed if like else []
    told = replace(unasked, label=f"{code}, {where}", planned=by_plan, assumed=assumed)
    return Held(told, reference, file)


def _has_own_code(folder: Path) -> bool:
    """Whether the checkpoint brings a model of its own that computes with its weights as they are."""
    config = read_object(folder / "config.json")
    own = any(name.startswith("AutoModel") for name in mapping(config.get("auto_map")))
    return own and not config.get("quantization_config")


class _Along(NamedTuple):
    """Differences times what a scale changes: the server's, the half dtype's; and the change squared."""

    off: float
    half: float
    square: float


class _Place(NamedTuple):
    """The reference's ``wanted`` of ``token``, of which the server says ``got``, or at most that."""

    way: tuple[str, str]  # kind of the prompt; read or generated
    prompt: str
    position: int
    token: int
    wanted: float
    got: float
    noise: float
    moved: Mapping[str, _Along]  # by each scale

    @property
    def size(self) -> float:
        return abs(self.wanted - self.got)


@dataclass
class _Asked:
    """``finer``: rounding of the served dtype over that of the half dtype; ``longest``: of tokens.

    ``reads``: whether it is asked for what it makes of a prompt, which ends a vllm-ascend with adapters
    (``lora-adapter-not-there`` in signatures.yaml).
    """

    reference: Reference
    finer: float
    longest: float
    reads: bool = True
    places: list[_Place] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    wrong: str = ""

    def ask(self, client: Client, name: str) -> None:
        for prompt in self.reference.prompts:
            fits = len(prompt.ids) + len(prompt.tokens) < self.longest
            if fits and not self.wrong and not client.broken():
                self._ask(prompt, client, {"model": name} | _GREEDY | _TELLING)

    def _ask(self, prompt: Prompt, client: Client, body: dict[str, Any]) -> None:
        top, body = _top(prompt), body | {"max_tokens": len(prompt.tokens)}
        if prompt.kind == TEXT:
            more = {"prompt": prompt.ids + prompt.tokens, "max_tokens": 1, "prompt_logprobs": top}
            whole = self._answer(prompt, client.post(COMPLETIONS, body | more)) if self.reads else {}
            more = {"prompt": prompt.ids, "logprobs": top}
            own = self._answer(prompt, client.post(COMPLETIONS, body | more))
        else:
            body["messages"] = [{"role": "user", "content": with_image(LOOK, picture(prompt.seed))}]
            # of an id beyond the vocabulary there is no log-probability
            if self.reads and max(prompt.ids) < self.reference.vocabulary:
                body["prompt_logprobs"] = top
            more = {"logprobs": True, "top_logprobs": top}
            whole = own = self._answer(prompt, client.post(CHAT, body | more))
            ids = own.get("prompt_token_ids")
            if own and ids != prompt.ids:
                why = f"the server reads {ids}, the model's own processor {prompt.ids}"
                self.refused.append(f"{prompt.name}: {why}"[:300])
                return
        told = whole.get("prompt_logprobs") or _choice(whole).get("prompt_logprobs") or ()
        read = [{int(one): _number(said["logprob"]) for one, said in (place or {}).items()} for place in told]
        self._compare(prompt, "read", 0, read[1:])
        self._generated(prompt, _generated(_choice(own)))

    def _answer(self, prompt: Prompt, exchange: Exchange) -> dict[str, Any]:
        """The answer, or an empty one; what the server refuses is not wrong, what it cannot do is."""
        if exchange.status == 200 and isinstance(exchange.answer, dict):
            return exchange.answer
        if exchange.status in (400, 404, 422):
            self.refused.append(f"{prompt.name}: {exchange.why}"[:300])
        else:
            self.wrong = self.wrong or f"{prompt.name}: no answer: {exchange.why}"
        return {}

    def _generated(self, prompt: Prompt, told: _Told) -> None:
        """Compare the server's own tokens, until one is another one; only a near-tie may part them."""
        pairs = zip(told, prompt.tokens, strict=False)
        until = next((at for at, ((own, _), token) in enumerate(pairs) if own != token), len(told))
        start = len(prompt.ids) - 1
        self._compare(prompt, "generated", start, [one for _, one in told[: until + 1]])
        row = dict(prompt.rows[start + until]) if until < len(told) else {}
        if row and not self.wrong:
            token, own = prompt.tokens[until], told[until][0]
            gap = row[token] - row.get(own, min(row.values()))
            if gap > (tie := max(FLOOR, TIMES * self.finer * max(prompt.noise))):
                self.wrong = (
                    f"prompt {prompt.name!r}, position {start + until + 1}: token {token} is likelier by"
                    f" {gap:.4f} than {own}, which was generated; a near-tie is at most {tie:.4f}"
                )

    def _compare(self, prompt: Prompt, way: str, start: int, told: Iterable[Mapping[int, float]]) -> None:
        top, noise = _top(prompt), prompt.noise
        for at, numbers in enumerate(told, start=start):
            row = prompt.rows[at]
            if not row or not numbers:
                continue
            if not all(map(math.isfinite, numbers.values())):
                self.wrong = self.wrong or f"{prompt.name}, position {at + 1}: a log-probability is no number"
                return
            # what the server does not name is at most as likely as the last of the likeliest, which it names
            least = sorted(numbers.values(), reverse=True)[top - 1] if len(numbers) >= top else math.inf
            pairs = [(one, value, numbers.get(one, min(value, least))) for one, value in row]
            worst = max(pairs, key=lambda one: abs(one[1] - one[2]))
            named = [index for index, (one, _) in enumerate(row) if one in numbers]
            offs = [numbers[row[index][0]] - row[index][1] for index in named]
            changes = {name: rows[at] for name, rows in prompt.scaled.items()}
            changes["logits"] = [value for _, value in row]
            half = [prompt.half[at][index] for index in named]
            moved = {
                scale: _along(offs, half, [change[index] for index in named])
                for scale, change in changes.items()
            }
            where = ((prompt.kind, way), prompt.name, at + 1)
            self.places.append(_Place(*where, *worst, noise[at], moved))

    def judged(self, outcome: Outcome) -> Outcome:
        """``outcome`` with what came of it."""
        named, tolerance = f"Transformers {outcome.transformers}", 0.0
        for way in dict.fromkeys(one.way for one in self.places):
            places = [one for one in self.places if one.way == way]
            noise = [one.noise for one in self.places if one.way[0] == way[0]]
            for share in _SHARES if len(places) >= LEAST else _SHARES[:1]:
                most = max(FLOOR, TIMES * self.finer * _within(noise, share))
                tolerance = max(tolerance, most)
                off = _within([one.size for one in places], share)
                if off > most and not self.wrong:
                    self.wrong = _told(places, share, off, most)
        self.wrong = self.wrong or _scaled(self.places, self.finer)
        outcome = replace(
            outcome,
            prompts=len({one.prompt for one in self.places}),
            tokens=len(self.places),
            largest=round(max((one.size for one in self.places), default=0.0), 4),
            tolerance=round(tolerance, 4),
            kinds=sorted({one.way[0] for one in self.places}),
        )
        if self.wrong:
            return replace(outcome, state=DIFFERS, why=f"differs from {named}: {self.wrong}")
        missing = self.refused + [
            f"{kind} was not compared, as Transformers' model does not answer it ({why})"
            for kind, why in self.reference.without.items()
        ]
        also = f"; {missing[0]}"[:200] if missing else ""
        if outcome.tokens < LEAST:
            why = f"{_ANSWERS}: {outcome.tokens} tokens compared with {named}{also}"
            return replace(outcome, state=NONE, why=why)
        most = _within([one.size for one in self.places], _SHARES[-1])
        what = (
            f"{outcome.prompts} prompts, {outcome.tokens} tokens, {_SHARES[-1]:.0%} of them within {most:.4f}"
        )
        what += f" (allowed {outcome.tolerance}), largest difference {outcome.largest}"
        rounded = max(one.noise for one in self.places)
        what += f" (rounding alone moves {named} by up to {rounded:.4f})" if outcome.largest > FLOOR else ""
        return replace(outcome, state=EQUAL, why=f"equals {named}: {what}{also}")


def _told(places: Sequence[_Place], share: float, off: float, most: float) -> str:
    place = max(places, key=lambda one: one.size)
    which = f"{share:.0%} of {len(places)} places {place.way[1]}"
    where = f"prompt {place.prompt!r}, position {place.position}"
    both = f"token {place.token} has {place.wanted:.4f}, here {place.got:.4f}"
    return f"{which} differ by up to {off:.4f}, allowed {most:.4f}; most in {where}: {both}"


def _along(offs: Sequence[float], half: Sequence[float], changes: Sequence[float]) -> _Along:
    """The differences along the changes; what moves a whole row alike is none."""
    mean = sum(changes) / max(1, len(changes))
    free = [one - mean for one in changes]
    along = (sum(off * one for off, one in zip(given, free, strict=True)) for given in (offs, half, free))
    return _Along(*along)


def _scaled(places: Sequence[_Place], finer: float) -> str:
    """Which scale is off, by least squares over all places; empty when rounding may have done it."""
    for scale in dict.fromkeys(name for one in places for name in one.moved):
        sums = [one.moved[scale] for one in places if scale in one.moved]
        whole = sum(one.square for one in sums)
        if whole and len(sums) >= LEAST:
            off = sum(one.off for one in sums) / whole
            half = TIMES * finer * abs(sum(one.half for one in sums) / whole)
            error = math.hypot(*(one.off - off * one.square for one in sums)) / whole
            if abs(off) > max(SCALE, SURE * error) + half:
                return (
                    f"{len(sums)} places are as if {scale} were scaled by {1 + off:.3f} ± {error + half:.3f}"
                )
    return ""


def _top(prompt: Prompt) -> int:
    """Of how many of the likeliest tokens the server is asked."""
    return max(map(len, prompt.rows))


def _within(values: Sequence[float], share: float) -> float:
    """The value that a share of the values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    return (answer.get("choices") or [{}])[0]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _generated(choice: Mapping[str, Any]) -> _Told:
    """The generated tokens of a completion or a chat, each with the log-probabilities at its place."""
    told = choice.get("logprobs") or {}
    tokens, tops = told.get("tokens") or (), told.get("top_logprobs") or ()
    if "content" in told:
        tokens = [one["token"] for one in told["content"]]
        tops = [{top["token"]: top["logprob"] for top in one["top_logprobs"]} for one in told["content"]]
    named = [{_id(one): _number(value) for one, value in (top or {}).items()} for top in tops]
    return list(zip(map(_id, tokens), named, strict=False))


def _id(token: str) -> int:
    return int(token.removeprefix("token_id:"))
