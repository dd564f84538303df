"""The ladder of capacity: 128k tokens and 16 sequences first, then more sequences, each really served.

The number of starts is bounded: a length that did not fit is tried again only at the length that vLLM says
would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_upgrade.gates.capacity.limits import fitting
from npu_upgrade.gates.features.started import Start, Started, Starter, setting
from npu_upgrade.ground.verdict import Verdict

LENGTH, SEQUENCES = 131072, (16, 32, 64)  # the baseline that an adapted model is held to, and beyond
RETRIES = 2  # further starts for one number of sequences
_BLOCK = 128  # tokens; lengths are rounded down to whole blocks of the KV cache
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Step:
    """One length with one number of sequences.

    ``why`` is a sentence where it did not pass or was lowered. ``filled``: one request took all of it.
    """

    length: int
    sequences: int
    state: str
    why: str = ""
    cache_tokens: int | None = None
    root: Any = None
    evidence: str = ""
    filled: bool = False

    def as_json(self) -> dict[str, Any]:
        said = {
            "max_model_len": self.length,
            "max_num_seqs": self.sequences,
            "state": self.state,
            "why": self.why,
            "kv_cache_tokens": self.cache_tokens,
            "root": self.root,
            "evidence": self.evidence,
            "filled": self.filled or None,
        }
        return {key: value for key, value in said.items() if value not in (None, "")}


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

    def rows(self) -> list[dict[str, Any]]:
        """The steps as results name them, each with the maxima."""
        maxima = {
            "theoretical_max_model_len": self.theoretical,
            "practical_max_model_len": self.practical,
            "filled_max_model_len": self.filled,
        }
        return [one.as_json() | {key: value for key, value in maxima.items() if value} for one in self.steps]


def climb(
    starter: Starter,
    promised: int | None,
    length: int = LENGTH,
    sequences: Sequence[int] = SEQUENCES,
    at_most: bool = True,
    capacity: Capacity | None = None,
) -> Capacity:
    """Serve ``length`` with each number of ``sequences`` until one does not; then the longest that fits.

    ``at_most``: whether to try the theoretical maximum, one more start, where it is beyond what was served.
    ``capacity`` is filled as the starts are made.
    """
    capacity = capacity or Capacity(promised)
    wanted = min(length, promised) if promised else length
    for number in sequences:
        wanted = _serve(capacity, starter, wanted, number, length)
        if capacity.steps[-1].state != "PASS":
            rest = [one for one in sequences if one > number]
            why = f"{number} sequences were not served"
            capacity.steps += [Step(wanted, one, NOT_TRIED, why) for one in rest]
            break
    most, served = _whole(capacity.theoretical or 0), capacity.practical
    if at_most and served and most > served:
        _serve(capacity, starter, most, sequences[0], most)
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
        fits = fitting(started.lines()) if not started.resolved else None
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
    arguments = ("--max-model-len", str(length), "--max-num-seqs", str(number))
    started = starter(Start(f"start-{len(capacity.starts) + 1}", (), arguments))
    capacity.starts.append(started)
    return started


def _step(started: Started, length: int, number: int, why: str) -> Step:
    root = started.root
    place = f"{started.shown_log}:{root['line']}: {str(root['text']).strip()[:300]}" if root else ""
    state = "PASS" if _served(started) else started.verdict.value
    said = "; ".join(started.checks[name][1] for name in ("concurrent", "filled") if name in started.checks)
    if state == "PASS" and started.verdict is not Verdict.PASS:
        said = f"{said}; {started.summary}"
    resolved = setting(started.resolved, "max_model_len")
    if state == "PASS" and resolved not in (None, length):
        state, why = "FAIL", f"the server resolved max_model_len = {resolved}"
    every = "; ".join(one for one in (why, said) if one)
    filled = state == "PASS" and "filled" in started.checks
    return Step(length, number, state, every, started.cache_tokens, root, place, filled)
