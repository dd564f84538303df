"""The runners' benchmark: what counts as a missed goal, and which rows the table has."""

import pytest

from bench import runners, runners_models
from bench.runners_cells import CELLS, each_kind
from bench.runners_run import Decoding, Result, Throughput
from bench.shared import Run


def measured(off=1.0, on=1.0, step=0.02, cosine=1.0, delivery=0.0):
    """Two groups of steps; the throughput of ours is that of stock times ``off`` and ``on``."""
    steps = {"stock": [step, 2 * step], "off": [step / off, 2 * step / off], "on": [step / on, 2 * step / on]}
    noisy = {name: [9.0, 1.0] for name in steps}
    decoding = Decoding({"cpu": steps, "wall": noisy}, [delivery])
    return Throughput("0.30.0", cosine, dict.fromkeys(runners.BATCHES, decoding))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (measured(), []),
        (measured(off=0.98), ["batch 1: off 0.980 < 0.99", "batch 16: off 0.980 < 0.99"]),
        (measured(on=0.96), ["batch 1: on 0.960 < 0.97", "batch 16: on 0.960 < 0.97"]),
        (measured(cosine=0.9), ["cosine 0.900000 < 0.9999"]),
    ],
)
def test_goals(found, expected):
    assert runners._speed(found)[0] == expected


def test_steps_are_compared_with_the_one_beside_them():
    decoding = Decoding({"cpu": {"stock": [1.0, 2.0, 30.0], "off": [2.0, 4.0, 30.0]}}, [])
    assert runners._ratio(decoding, 1, "cpu", "off") == 0.5


def test_handing_over_falls_on_the_steps_of_its_request():
    missed, summary = runners._speed(measured(delivery=0.02 * runners.TOKENS / 16))
    assert summary["on_b16"] == "0.583"
    assert (summary["on_b1"], summary["off_b16"]) == ("0.955", "1.000")
    assert missed == ["batch 1: on 0.955 < 0.97", "batch 16: on 0.583 < 0.97"]


def test_a_default_run_has_each_runner_and_kind_of_check_and_each_mode():
    default = each_kind()
    for part in ("kind", "mode"):
        every, seen = ({(c.project, c.runner, getattr(c, part)) for c in some} for some in (CELLS, default))
        assert every == seen
    assert len(default) < len(CELLS) / 3


def played(monkeypatch, kind, words, *results):
    asked = []

    def play(model, mode):
        asked.append(f"{model.name} {mode}")
        return list(results)

    monkeypatch.setattr(runners_models, "play", play)
    rows, failed = runners_models.rows(Run("bench-runners", kind), words)
    return asked, rows, failed


def test_a_default_run_plays_one_real_model_and_says_why_the_others_are_empty(monkeypatch):
    asked, rows, failed = played(
        monkeypatch, "default", (), Result("equal in 8 parts"), Result("equal in 8 parts")
    )
    assert asked == list(runners_models.DEFAULT)
    assert failed == []
    assert {row[-1] for row in rows} == {"emulated dry-run", "not run"}
    assert all(row[2] and row[3] for row in rows)


def test_a_real_model_that_answers_otherwise_is_missed(monkeypatch):
    wrong = Result("fail: not equal", "speech 0: (3,) and (4,)")
    asked, _, failed = played(
        monkeypatch, "chosen", ("Qwen3-TTS", "graph"), Result("equal in 8 parts"), wrong
    )
    assert asked == ["Qwen3-TTS graph"]
    assert failed == ["Qwen3-TTS graph: fail: not equal: speech 0: (3,) and (4,)"]
