"""The runners' benchmark: what counts as a missed goal, and which rows the table has."""

import pytest

from bench import runners
from bench.runners_cells import ASCEND_RELEASES, CELLS, CPU_RELEASES, MODELS
from bench.runners_run import Throughput


def measured(off=1.0, on=1.0, stock=20.0, cosine=1.0):
    """Rates of two repetitions; ``stock`` in tokens per second at batch 1."""
    rates = {
        batch: {
            "stock": [stock * batch, 2 * stock * batch],
            "off": [stock * batch * off, 2 * stock * batch * off],
            "on": [stock * batch * on, 2 * stock * batch * on],
        }
        for batch in runners.BATCHES
    }
    noisy = {"stock": [9.0, 9.0], "off": [1.0, 1.0], "on": [1.0, 1.0]}
    return Throughput("0.30.0", cosine, {batch: {"cpu": one, "wall": noisy} for batch, one in rates.items()})


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


def test_a_step_too_short_to_judge_by_is_a_miss():
    missed, summary = runners._speed(measured(stock=1000.0))
    assert all("too short" in one for one in missed)
    assert summary["off_b1"] == "1.000"


def test_repetitions_are_compared_with_the_one_beside_them():
    assert runners._ratio([1.0, 2.0, 30.0], [2.0, 4.0, 30.0]) == 0.5


def test_the_table_covers_the_releases_and_says_how():
    assert {cell.version for cell in CELLS} == {*CPU_RELEASES, *ASCEND_RELEASES}
    assert {cell.kind for cell in CELLS} <= set(MODELS)
    assert {cell.how for cell in CELLS if cell.project == "vllm-ascend"} == {"emulated dry-run"}
    on_cpu = [cell for cell in CELLS if cell.project == "vllm"]
    assert all(("hook" in cell.how) == (cell.runner == "V2" or cell.mode == "async") for cell in on_cpu)
    assert all(
        cell.plan("x")["options"]["async_scheduling"] == ("async" in cell.mode)
        for cell in CELLS
        if cell.project == "vllm-ascend"
    )
