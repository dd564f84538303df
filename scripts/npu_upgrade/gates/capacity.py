"""How long a context and how many sequences a model serves: what fits in theory, and what was served.

128k tokens and 16 sequences come first, then more sequences, each with that many real requests at once. The
number of starts is bounded: a length that did not fit is tried again only at the length that vLLM says would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import msgspec

from npu_upgrade.checkpoint.memory import BASELINE_LEN, BASELINE_SEQS
from npu_upgrade.gates.serving.checks import Check, failed, passed, unsure
from npu_upgrade.gates.serving.launch import given
from npu_upgrade.gates.serving.log_lines import LogLine
from npu_upgrade.gates.serving.requests import Arrival, Client, counted
from npu_upgrade.gates.serving.session import Stopped
from npu_upgrade.gates.serving.starts import Extra, Start, Started, Starter, setting
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.tables import cut
from npu_upgrade.ground.verdict import Verdict

_ESTIMATED = re.compile(r"estimated maximum model length is ([\d,]+)")
_DERIVED = re.compile(r"greater than the derived max_model_len \((?P<named>[^)]*)\)")
_NUMBER = re.compile(r"=\s*(\d[\d,]*)")


def fitting(lines: Iterable[LogLine]) -> int | None:
    """The longest context, in tokens, that the log says would fit; None when it names none.

    The memory's limit, and the configuration's; the lower one where both are said.
    """
    found: list[int] = []
    for line in lines:
        if estimated := _ESTIMATED.search(line.text):
            found.append(_integer(estimated[1]))
        if derived := _DERIVED.search(line.text):
            found += [_integer(number) for number in _NUMBER.findall(derived["named"])]
    return min((number for number in found if number > 0), default=None)


def _integer(text: str) -> int:
    return int(text.replace(",", ""))


ANSWER = 8  # tokens
_FIRST, _DIFFERENT = 10, 50  # token ids that every vocabulary has


def filled(client: Client, name: str, length: int, seconds: float) -> list[Check]:
    """Whether one request of ``length`` tokens, its answer included, is served within ``seconds``."""
    prompt = [_FIRST + at % _DIFFERENT for at in range(length - ANSWER)]
    exchange = client.post("/v1/completions", _asked(name, prompt, ANSWER), seconds)
    said = f"a request of {length} tokens"
    if exchange.why:
        return [failed("filled", f"{said} was not answered: {exchange.why}")]
    usage = (exchange.answer or {}).get("usage") or {}
    tokens = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    if tokens != (length - ANSWER, ANSWER):
        return [failed("filled", f"{said} was counted as {tokens[0]} and {tokens[1]}")]
    return [passed("filled", why=f"{said} took {exchange.seconds:.0f} s")]


def _asked(name: str, prompt: str | list[int] | list[str], tokens: int) -> dict[str, Any]:
    return {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


PREEMPTED, RUNNING = "vllm:num_preemptions_total", "vllm:num_requests_running"
_LOOK_AGAIN = 0.02  # seconds between two looks at how many run
_TO_COME = 0.25  # of a request's tokens, so that chunks on their way do not make it look as if it still ran
_WORDS = ("river", "stone", "lantern", "orchard", "violin", "harbour", "meadow", "comet")


class _Answered(NamedTuple):
    """``why``: what went wrong; ``tokens``: of all answers; ``together``: the most that were seen to run."""

    why: str
    tokens: int = 0
    together: int = 0


def concurrent(client: Client, name: str, number: int, seconds: float) -> list[Check]:
    """Whether ``number`` requests are all answered within ``seconds``, together.

    They run together when the engine counts so many, or when all have begun to answer and none is near its
    end; and the engine preempted none. An engine that takes them one after the other, or is done before all
    have begun, is asked again for more tokens, all prompts in one request, since a small model answers faster
    than requests come in; after that it is INCONCLUSIVE, not a pass.
    """
    # a prompt of its own for each, so that no cache of prefixes answers for another
    prompts = [f"Story {at} about the {_WORDS[at % len(_WORDS)]}:" for at in range(number)]
    for ask, tokens in ((_apart, 64), (_in_one, 192), (_in_one, 384)):
        found, too_fast = _watched(client, number, partial(ask, client, name, prompts, tokens, seconds))
        if not too_fast:
            break
    return [found]


def _watched(client: Client, number: int, ask: Callable[[], _Answered]) -> tuple[Check, bool]:
    """What ``ask`` gets, judged by what the engine says meanwhile; and whether more tokens may show more."""
    before = counted(client.metrics(), PREEMPTED)
    over = Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_most_running, client, over)
        try:
            answered = ask()
        finally:
            over.set()
    after = counted(client.metrics(), PREEMPTED)
    return _judge(number, answered, (after or 0.0) - (before or 0.0), running.result())


def _most_running(client: Client, over: Event) -> int:
    """The most requests that the engine says it ran at one time, until it is ``over``."""
    most = 0.0
    while not over.wait(_LOOK_AGAIN):
        most = max(most, counted(client.metrics(), RUNNING) or 0.0)
    return int(most)


def _apart(client: Client, name: str, prompts: list[str], tokens: int, seconds: float) -> _Answered:
    """A streamed request for each prompt."""
    bodies = [_asked(name, prompt, tokens) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda body: client.stream("/v1/completions", body, seconds), bodies))
    if wrong := [one.why for one, _ in answers if one.why]:
        return _Answered(f"{len(wrong)} of {len(prompts)} requests at once were not answered: {wrong[0]}")
    return _of_streams([[one for one in arrived if one.tokens] for _, arrived in answers])


def _in_one(client: Client, name: str, prompts: list[str], tokens: int, seconds: float) -> _Answered:
    """One streamed request with all prompts, which vLLM takes as a request each."""
    exchange, arrived = client.stream("/v1/completions", _asked(name, prompts, tokens), seconds)
    if exchange.why:
        return _Answered(f"{len(prompts)} prompts at once were not answered: {exchange.why}")
    counts = [one for one in arrived if one.tokens]
    return _of_streams([[one for one in counts if one.index == at] for at in range(len(prompts))])


def _of_streams(streams: list[list[Arrival]]) -> _Answered:
    if not all(streams):
        return _Answered(f"{streams.count([])} of {len(streams)} answers count no token")
    return _Answered("", sum(stream[-1].tokens for stream in streams), most_together(streams))


def _judge(number: int, answered: _Answered, preempted: float, counted_together: int) -> tuple[Check, bool]:
    if answered.why:
        return failed("concurrent", answered.why), False
    running = max(answered.together, min(counted_together, number))
    said = f"{number} requests at once, {answered.tokens} tokens, {running} seen running together"
    if running < number:
        return unsure("concurrent", f"{said}: the engine was not seen to run all of them at one time"), True
    if preempted:
        why = f"{said}, but {preempted:.0f} were preempted: their key-value cache was short"
        return unsure("concurrent", why), False
    return passed("concurrent", why=said), False


def most_together(streams: Sequence[Sequence[Arrival]]) -> int:
    """The most requests that had begun to answer at one time with a good part still to come."""
    good = ((stream, (1 - _TO_COME) * stream[-1].tokens) for stream in streams)
    spans = [(stream[0].at, next(one.at for one in stream if one.tokens > kept)) for stream, kept in good]
    return max(sum(began <= moment < ends for began, ends in spans) for moment, _ in spans)


LENGTH, SEQUENCES = BASELINE_LEN, (BASELINE_SEQS, 32, 64)  # what an adapted model is held to, and beyond
RETRIES = 2  # further starts for one number of sequences
_BLOCK = 128  # tokens; lengths are rounded down to whole blocks of the KV cache
NOT_TRIED = "not tried"
_SAID = 300  # characters of what was in the way
_LONGER = 10  # times the patience for an answer: a whole context takes a while
OPTIONS = ("--max-model-len", "--max-num-seqs")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One length with one number of sequences.

    ``why`` is a sentence where it did not pass or was lowered. ``filled``: one request took all of it.
    """

    length: int = msgspec.field(name="max_model_len")
    sequences: int = msgspec.field(name="max_num_seqs")
    state: str
    why: str = ""
    cache_tokens: int | None = msgspec.field(default=None, name="kv_cache_tokens")
    root: Any = None
    evidence: str = ""
    filled: bool = False


@dataclass
class Capacity:
    """``promised``: the longest context of the configuration, in tokens; None when it says none."""

    promised: int | None
    steps: list[Step] = field(default_factory=list)
    starts: list[Started] = field(default_factory=list)

    @property
    def practical(self) -> int | None:
        """The longest context that was served."""
        return max((one.length for one in self.steps if one.state == "PASS"), default=None)

    @property
    def theoretical(self) -> int | None:
        """The longest context of one request: what the KV cache and the configuration allow."""
        tokens = max((one.cache_tokens for one in self.steps if one.cache_tokens), default=None)
        known = [one for one in (tokens, self.promised) if one]
        return min(known) if tokens else None

    @property
    def filled(self) -> int | None:
        """The longest context that one request took whole."""
        return max((one.length for one in self.steps if one.filled), default=None)

    @property
    def most_sequences(self) -> int | None:
        return max((one.sequences for one in self.steps if one.state == "PASS"), default=None)

    def judged(self, length: int, sequences: Sequence[int], stopped: Stopped = None) -> tuple[Verdict, str]:
        """The verdict over the steps; the configuration's own limit lowers what is asked for only."""
        if self.practical is None:
            why = next((one.why for one in reversed(self.steps) if one.why), "nothing was started")
            summary = f"nothing was served: {why}"
        else:
            most = f"theoretical maximum {self.theoretical}" if self.theoretical else "no KV cache size told"
            started = f"{self.practical} tokens of context and {self.most_sequences} sequences"
            shown = f"filled {self.filled} tokens" if self.filled else "no request was of that length"
            summary = f"served with room for {started}; {shown}; {most}"
        if isinstance(stopped, Blocked):
            return Verdict.BLOCKED, f"{summary}; ended early: {stopped.what}"
        if stopped is not None:
            return Verdict.INCONCLUSIVE, f"{summary}; interrupted"
        if self.practical is None:
            failed = any(one.state == "FAIL" for one in self.steps)
            return (Verdict.FAIL if failed else Verdict.INCONCLUSIVE), summary
        wanted = min(length, self.promised or length)
        if self.practical >= wanted and self.most_sequences == max(sequences):
            return Verdict.PASS, summary
        less = next((one for one in self.steps if one.state != "PASS"), None)
        why = f"; with {less.length} tokens and {less.sequences} sequences: {less.why}" if less else ""
        return Verdict.INCONCLUSIVE, f"{summary}{cut(why, _SAID)}"

    def rows(self) -> list[dict[str, Any]]:
        """The steps as results name them, each with the maxima."""
        maxima = {
            "theoretical_max_model_len": self.theoretical,
            "practical_max_model_len": self.practical,
            "filled_max_model_len": self.filled,
        }
        return [
            msgspec.to_builtins(one) | {key: value for key, value in maxima.items() if value}
            for one in self.steps
        ]


def checks(fill: bool, seconds: float) -> Callable[[Start], list[Extra]]:
    """What a start is asked, ``seconds`` being the patience for an answer; each length is filled once."""
    tried: set[int] = set()

    def of(start: Start) -> list[Extra]:
        length, number = (
            int(given(start.arguments, one)[0]) for one in ("--max-model-len", "--max-num-seqs")
        )
        found: list[Extra] = [partial(concurrent, number=number, seconds=seconds)]
        if fill and length > ANSWER and length not in tried:
            tried.add(length)
            found.append(partial(filled, length=length, seconds=_LONGER * seconds))
        return found

    return of


def climb(
    starter: Starter,
    promised: int | None,
    length: int = LENGTH,
    sequences: Sequence[int] = SEQUENCES,
    at_most: bool = True,
    capacity: Capacity | None = None,
    most_first: bool = False,
) -> Capacity:
    """Serve ``length`` with each number of ``sequences`` until one does not; then the longest that fits.

    ``at_most``: whether to try the theoretical maximum, one more start, where it is beyond what was served.
    ``capacity`` is filled as the starts are made. ``most_first``: begin with the most sequences; when so many
    are served, fewer need no start of their own.
    """
    capacity = capacity or Capacity(promised)
    wanted = min(length, promised) if promised else length
    if most_first and len(sequences) > 1:
        most = max(sequences)
        sequences = [one for one in sequences if one != most]
        _serve(capacity, starter, wanted, most, length)
        last = capacity.steps[-1]
        if last.state == "PASS":
            alike = msgspec.structs.replace(last, why=f"{most} were served", filled=False)
            fewer = [msgspec.structs.replace(alike, sequences=number) for number in sequences]
            capacity.steps[-1:] = [*fewer, last]
            sequences = []
    for number in sequences:
        wanted = _serve(capacity, starter, wanted, number, length)
        if capacity.steps[-1].state != "PASS":
            rest = [one for one in sequences if one > number]
            why = f"{number} sequences were not served"
            capacity.steps += [Step(wanted, one, NOT_TRIED, why) for one in rest]
            break
    most, served = _whole(capacity.theoretical or 0), capacity.practical
    if at_most and served and most > served:
        _serve(capacity, starter, most, min(one.sequences for one in capacity.steps), most)
    return capacity


def _serve(capacity: Capacity, starter: Starter, length: int, number: int, asked: int) -> int:
    """One number of sequences; at a length that vLLM says would fit when the one asked for does not.

    Returns the length of the last start.
    """
    for left in reversed(range(RETRIES + 1)):
        started = _start(capacity, starter, length, number)
        why = f"{asked} tokens were asked for, {length} fit" if length < asked else ""
        if _served(started):
            capacity.steps.append(_step(started, length, number, why))
            return length
        fits = fitting(started.lines()) if "generation" not in started.checks else None
        capacity.steps.append(_step(started, length, number, started.summary))
        if left == 0 or not fits or (shorter := _whole(min(fits, length - 1))) < 1:
            return length
        length = shorter
    return length


def _served(started: Started) -> bool:
    """Whether all requests at once were answered, whatever a check of quality is not sure of."""
    together = started.checks.get("concurrent", ("", ""))[0] == "PASS"
    return started.verdict is Verdict.PASS or (started.served and together)


def _whole(length: int) -> int:
    return length // _BLOCK * _BLOCK if length > _BLOCK else length


def _start(capacity: Capacity, starter: Starter, length: int, number: int) -> Started:
    arguments = (OPTIONS[0], str(length), OPTIONS[1], str(number))
    started = starter(Start(f"start-{len(capacity.starts) + 1}", (), arguments))
    capacity.starts.append(started)
    return started


def _step(started: Started, length: int, number: int, why: str) -> Step:
    root = started.root
    state = "PASS" if _served(started) else started.verdict.value
    said = "; ".join(started.checks[name][1] for name in ("concurrent", "filled") if name in started.checks)
    if state == "PASS" and started.verdict is not Verdict.PASS:
        said = f"{said}; {started.summary}"
    resolved = setting(started.resolved, "max_model_len")
    if state == "PASS" and resolved not in (None, length):
        state, why = "FAIL", f"the server resolved max_model_len = {resolved}"
    every = "; ".join(one for one in (why, said) if one)
    filled = state != "FAIL" and started.checks.get("filled", ("", ""))[0] == "PASS"
    return Step(length, number, state, every, started.cache_tokens, root, started.shown_root, filled)
