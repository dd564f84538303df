"""How long a context and how many sequences: the steps, their bounds, and what vLLM says would fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from features_kit import started
from hypothesis import given
from hypothesis import strategies as st

from npu_upgrade.gates.capacity import (
    LENGTH,
    RETRIES,
    SEQUENCES,
    Capacity,
    climb,
    fitting,
    most_together,
)
from npu_upgrade.gates.serving.log_lines import parse
from npu_upgrade.gates.serving.requests import Arrival
from npu_upgrade.gates.serving.starts import Start, Started, descend
from npu_upgrade.ground.verdict import Verdict

TOO_LONG = "ERROR 11-22 03:04:05 [x.py:9] ValueError: To serve at least one request ... "


class Memory:
    """A machine whose cache takes ``tokens``; each sequence beyond the first costs ``each`` of them."""

    def __init__(self, folder: Path, tokens: int, each: int = 0, says: bool = True) -> None:
        self.folder, self.tokens, self.each, self.says = folder, tokens, each, says
        self.lengths: list[tuple[int, int]] = []

    def __call__(self, start: Start) -> Started:
        length, number = int(start.arguments[1]), int(start.arguments[3])
        self.lengths.append((length, number))
        fits = self.tokens - self.each * number
        if length <= fits:
            resolved = {"max_model_len": length}
            return started(self.folder, start, resolved=resolved, cache_tokens=fits)
        told = f"the estimated maximum model length is {fits}. Try" if self.says and fits > 0 else "no memory"
        root = {"id": "kv-cache-too-small", "cause": "c", "line": 1, "text": told}
        return started(
            self.folder, start, TOO_LONG + told, verdict=Verdict.FAIL, summary="start: it ended", root=root
        )


def states(found: Capacity) -> list[tuple[int, int, str]]:
    return [(one.length, one.sequences, one.state) for one in found.steps]


def test_all_that_is_asked_for_fits(tmp_path: Path) -> None:
    found = climb(Memory(tmp_path, 4 * 131072), 131072)
    assert states(found) == [(131072, 16, "PASS"), (131072, 32, "PASS"), (131072, 64, "PASS")]
    assert (found.theoretical, found.practical, found.most_sequences) == (131072, 131072, 64)


def test_one_start_shows_fewer_sequences_where_the_most_come_first(tmp_path: Path) -> None:
    machine = Memory(tmp_path, 131072)
    found = climb(machine, 131072, most_first=True)
    assert states(found) == [(131072, 16, "PASS"), (131072, 32, "PASS"), (131072, 64, "PASS")]
    assert machine.lengths == [(131072, 64)]
    assert "64 were served" in found.steps[0].why


def test_where_the_most_sequences_do_not_fit_the_others_are_climbed(tmp_path: Path) -> None:
    machine = Memory(tmp_path, 131072 + 40 * 100, each=100, says=False)
    found = climb(machine, 131072, most_first=True)
    assert states(found) == [(131072, 64, "FAIL"), (131072, 16, "PASS"), (131072, 32, "PASS")]
    assert (found.practical, found.most_sequences) == (131072, 32)


def test_the_length_that_fits_is_tried_and_both_are_recorded(tmp_path: Path) -> None:
    found = climb(Memory(tmp_path, 100_000), 262144)
    assert states(found)[:2] == [(LENGTH, 16, "FAIL"), (99_968, 16, "PASS")]
    assert found.steps[0].root["id"] == "kv-cache-too-small"
    assert "131072 tokens were asked for" in found.steps[1].why
    assert found.practical == 99_968
    assert found.theoretical == 100_000


def test_a_short_model_is_not_asked_for_more_than_it_promises(tmp_path: Path) -> None:
    machine = Memory(tmp_path, 10**6)
    assert climb(machine, 512).practical == 512
    assert {length for length, _ in machine.lengths} == {512}


def test_more_than_the_baseline_is_served_where_it_fits(tmp_path: Path) -> None:
    found = climb(Memory(tmp_path, 200_000), 262144)
    assert found.practical == 199_936
    assert climb(Memory(tmp_path, 200_000), 262144, at_most=False).practical == 131072


def test_sequences_after_the_first_that_fail_are_not_tried(tmp_path: Path) -> None:
    found = climb(Memory(tmp_path, LENGTH + 20, each=1, says=False), LENGTH)
    assert [(one.sequences, one.state) for one in found.steps] == [
        (16, "PASS"),
        (32, "FAIL"),
        (64, "not tried"),
    ]


@given(st.integers(-10, 400_000), st.integers(0, 3000), st.booleans(), st.sampled_from([None, 300, 262144]))
def test_the_starts_are_bounded_and_nothing_is_served_that_was_not(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, each: int, says: bool, promised: int | None
) -> None:
    machine = Memory(tmp_path_factory.mktemp("logs"), tokens, each, says)
    found = climb(machine, promised)
    assert len(machine.lengths) <= (len(SEQUENCES) + 1) * (RETRIES + 1)
    assert len(set(machine.lengths)) == len(machine.lengths)
    for one in found.steps:
        assert (one.state == "PASS") == (
            one.length <= tokens - each * one.sequences and one.state != "not tried"
        )


@pytest.mark.parametrize(("state", "passes"), [("PASS", True), ("INCONCLUSIVE", False)])
def test_only_requests_that_ran_together_are_capacity(tmp_path: Path, state: str, passes: bool) -> None:
    def unsure(start: Start) -> Started:
        checks = {"concurrent": (state, "16 at once"), "repeat": ("INCONCLUSIVE", "two answers")}
        return started(
            tmp_path, start, verdict=Verdict.INCONCLUSIVE, summary="repeat: two answers", checks=checks
        )

    found = climb(unsure, None, sequences=(16,))
    assert (found.steps[0].state == "PASS") is passes
    assert "two answers" in found.steps[0].why


def arrivals(start: float, seconds: float, tokens: int = 20) -> list[Arrival]:
    return [Arrival(start + seconds * count / tokens, count) for count in range(1, tokens + 1)]


@pytest.mark.parametrize(
    ("streams", "most"),
    [
        ([arrivals(0, 2)] * 3, 3),
        ([arrivals(0, 2), arrivals(1, 2), arrivals(0.5, 2)], 3),
        ([arrivals(0, 2), arrivals(1.7, 2), arrivals(0.5, 2)], 2),  # the first is nearly done
        ([arrivals(0, 1), arrivals(1, 1), arrivals(2, 1)], 1),
        ([[Arrival(0, 20)], [Arrival(0, 20)]], 0),  # whole answers in one piece tell nothing
        ([arrivals(0, 2), [Arrival(0.5, 20)]], 1),
    ],
)
def test_requests_run_together_while_none_is_near_its_end(streams: list, most: int) -> None:
    assert most_together(streams) == most


def test_a_server_that_shortened_the_context_by_itself_did_not_serve_what_was_asked(tmp_path: Path) -> None:
    def shortens(start: Start) -> Started:
        return started(tmp_path, start, resolved={"model_config": {"max_model_len": 4096}}, cache_tokens=8192)

    assert climb(shortens, None).steps[0].state == "FAIL"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the estimated maximum model length is 7168. Try", 7168),
        ("the estimated maximum model length is 1,007,168. Try", 1007168),
        (
            "User-specified max_model_len (9) is greater than the derived max_model_len "
            "(max_position_embeddings=512 or model_max_length=None in model's config.json).",
            512,
        ),
        (
            "greater than the derived max_model_len (n_positions=512 or model_max_length=300 in x)",
            300,
        ),
        ("max_model_len is 131072", None),
        ("the estimated maximum model length is 0.", None),
    ],
)
def test_what_vllm_says_would_fit(text: str, tokens: int | None) -> None:
    assert fitting(parse([TOO_LONG + text])) == tokens


def ladder(folder: Path, serves: Callable[[Start], bool], modalities: tuple[str, ...] = ("image",)):
    def run(start: Start) -> Started:
        if serves(start):
            return started(folder, start)
        root = {"id": f"cause-{start.name}", "cause": "c", "line": 1, "text": "t"}
        return started(folder, start, verdict=Verdict.FAIL, summary="start: it ended", root=root)

    return descend(run, modalities)


@pytest.mark.parametrize(
    ("needs", "last", "narrowed"),
    [
        (lambda start: True, "same", "not come every time"),
        (lambda start: "--enforce-eager" in start.arguments, "eager", "graphs"),
        (lambda start: start.environment.get("TORCHDYNAMO_DISABLE") == "1", "dynamo off", "torch.compile"),
        (lambda start: '{"image": 0}' in start.arguments, "text only", "encoder"),
    ],
)
def test_the_ladder_stops_at_the_first_that_serves(
    tmp_path: Path, needs: Callable[[Start], bool], last: str, narrowed: str
) -> None:
    found = ladder(tmp_path, needs)
    assert found.rungs[-1].step == last
    assert [one.state for one in found.rungs] == ["FAIL"] * (len(found.rungs) - 1) + ["PASS"]
    order = ["same", "eager", "dynamo off", "text only"]
    assert [one.step for one in found.rungs] == order[: len(found.rungs)]
    for less, one in zip(found.starts, found.starts[1:], strict=False):  # each has less than the one before
        assert set(less.start.arguments) <= set(one.start.arguments)
        assert less.start.environment.items() <= one.start.environment.items()
    assert narrowed in found.narrowed
    assert all(one.diagnostic for one in found.rungs)


def test_a_text_model_has_no_step_without_pictures(tmp_path: Path) -> None:
    found = ladder(tmp_path, lambda start: False, ())
    assert [one.step for one in found.rungs] == ["same", "eager", "dynamo off"]
    assert found.narrowed == ""
    assert "another root cause" in found.rungs[-1].why
    assert (
        len(
            descend(
                lambda start: started(tmp_path, start, verdict=Verdict.FAIL), (), ("--enforce-eager",)
            ).rungs
        )
        == 2
    )
