"""The numbers that the serve gate reads from a server: none passes that is infinite or not a number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from npu_upgrade.gates.serving import smoke
from npu_upgrade.gates.serving.requests import GENERATED, Exchange, counted
from npu_upgrade.gates.serving.smoke import CHAT, COMPLETIONS, EMBEDDINGS, POOLING, Asking

# as a server spells them; json reads all of them
ODD = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + 400 * "0", '"nan"', '"inf"', "null", "{}"]


@dataclass
class Server:
    """Answers every request with ``answer(how often it was asked)``."""

    answer: Callable[[int], str]
    asked: int = 0

    def post(self, path: str, body: dict[str, Any]) -> Exchange:
        self.asked += 1
        return Exchange("POST", path, body, 200, json.loads(self.answer(self.asked)))


def asking(answer: Callable[[int], str], path: str, real: bool) -> Asking:
    return Asking(Server(answer), "tiny", real, frozenset({path}), generations=1)  # type: ignore[arg-type]


def vectors(path: str, odd: str, place: int) -> str:
    """Two vectors, or pooled matrices, one of whose six numbers is ``odd``."""
    numbers = [str(number + 0.5) for number in range(6)]
    if place < 6:
        numbers[place] = odd
    key = "embedding" if path == EMBEDDINGS else "data"
    rows = [numbers[:3], numbers[3:]]
    texts = [
        f"[{','.join(row)}]" if key == "embedding" else f"[[{row[0]}], [{row[1]}, {row[2]}]]" for row in rows
    ]
    return f'{{"data": [{{"{key}": {texts[0]}}}, {{"{key}": {texts[1]}}}]}}'


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("path", [EMBEDDINGS, POOLING])
@pytest.mark.parametrize("odd", ODD)
def test_a_vector_has_finite_numbers_only(path: str, odd: str, real: bool) -> None:
    states = [
        smoke.generations(asking(lambda _, place=place: vectors(path, odd, place), path, real))[0].state
        for place in range(7)
    ]
    assert states == ["FAIL"] * 6 + ["PASS"]


def completion(tokens: str = "8", logprob: str = "-0.5", text: str = "some text") -> str:
    choice = f'{{"message": {{"content": "{text}"}}, "text": "{text}", "finish_reason": "stop", '
    choice += f'"logprobs": {{"content": [{{"logprob": -1.5}}, {{"logprob": {logprob}}}]}}}}'
    return f'{{"choices": [{choice}], "usage": {{"completion_tokens": {tokens}}}}}'


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("odd", [odd for odd in ODD if not odd.isdigit()])
def test_a_count_of_tokens_is_a_finite_number(path: str, odd: str, real: bool) -> None:
    assert smoke.generations(asking(lambda _: completion(odd), path, real))[0].state == "FAIL"
    assert smoke.generations(asking(lambda _: completion(), path, real))[0].state == "PASS"


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("number", [1, 2])
def test_a_probability_is_a_finite_number(odd: str, number: int, real: bool) -> None:
    """The two pictures are told apart by text and probabilities: an odd one must not make the difference."""

    def answer(asked: int) -> str:
        return completion(logprob=odd if asked == number else "-0.5", text=f"picture {asked}")

    assert [one.state for one in smoke.pictures(asking(answer, CHAT, real), True)] == ["FAIL"]
    odd = "-0.5"
    assert [one.state for one in smoke.pictures(asking(answer, CHAT, real), True)] == ["PASS"]


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-Inf", "Infinity", "1e999", "many"])
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_counter_that_is_no_number_counts_nothing(odd: str, at: str) -> None:
    lines = {"before": 0.0, "after": 99.0}
    metrics = {
        when: f'{GENERATED}{{engine="0"}} {value}\n{GENERATED}{{engine="1"}} {odd if when == at else 0}\n'
        for when, value in lines.items()
    }
    assert counted(metrics[at]) is None


@pytest.mark.parametrize(
    ("decoded", "ids", "state"),
    [
        ('"\\ufffd\\ufffd\\ufffd"', list(range(8)), "PASS"),  # held back until a character is whole
        ('"\\ufffd\\ufffd\\ufffd"', [7] * 8, "FAIL"),  # one token over and over
        ('"<pad><eos><pad>"', list(range(8)), "FAIL"),
        ('" \\n"', list(range(8)), "FAIL"),
        ('"a text that got lost"', list(range(8)), "FAIL"),
        ('""', list(range(8)), "FAIL"),
        ('"\\ufffd"', [], "FAIL"),
        ("null", list(range(8)), "FAIL"),
        ("7", list(range(8)), "FAIL"),
    ],
)
def test_an_empty_answer_passes_only_where_its_tokens_are_bytes_without_a_character(
    decoded: str, ids: list[int], state: str
) -> None:
    empty = json.loads(completion(text=""))
    empty["choices"][0]["token_ids"] = ids

    @dataclass
    class Decoding(Server):
        def post(self, path: str, body: dict[str, Any]) -> Exchange:
            if path == smoke.DETOKENIZE:
                assert body["tokens"] == ids
                return Exchange("POST", path, body, 200, {"prompt": json.loads(decoded)})
            return super().post(path, body)

    server = Decoding(lambda _: json.dumps(empty))
    paths = frozenset({COMPLETIONS, smoke.DETOKENIZE})
    asked = Asking(server, "tiny", True, paths, generations=1)  # type: ignore[arg-type]
    assert smoke.generations(asked)[0].state == state
