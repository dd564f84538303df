"""The products with adapters against one product for each row."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import close, random, refused  # noqa: E402

from npu_emulator.operators import lora  # noqa: E402
from npu_emulator.operators.registry import SHAPES  # noqa: E402

WIDE, RANK, ADAPTERS = 24, 4, 3
INDICES = torch.tensor([2, -1, 0, 2, 1])
LENGTHS, OF_SEQUENCES = torch.tensor([1, 1, 3]), torch.tensor([2, -1, 1])


def half(*shape, seed=0):
    return random(*shape, seed=seed).half()


def row_by_row(x, weight, of_rows, start, scale=1.0):
    found = start.float().clone()
    for row, adapter in enumerate(of_rows):
        if adapter >= 0:
            found[row] = (
                weight.reshape(ADAPTERS, *weight.shape[-2:])[adapter].float() @ x[row].float() * scale
            )
    return found


@pytest.mark.parametrize("shape", [(ADAPTERS, RANK, WIDE), (ADAPTERS, 1, RANK, WIDE)])
def test_shrink(shape):
    x, weight, y = half(5, WIDE), half(*shape, seed=1), torch.full((5, RANK), 7.0)
    expected = row_by_row(x, weight, INDICES.tolist(), y, 0.5)
    lora.bgmv_shrink(x, weight, INDICES, y, 0.5)
    close(y, expected)
    y = torch.full((5, RANK), 7.0)
    expected = row_by_row(x, weight, [2, -1, 1, 1, 1], y, 0.5)
    lora.sgmv_shrink(x, weight, OF_SEQUENCES, LENGTHS, y, 0.5)
    close(y, expected)


def test_expand_adds_into_a_slice():
    x, weight = random(5, RANK), half(ADAPTERS, 8, RANK, seed=1)
    for call, of_rows in (
        (lambda y: lora.bgmv_expand(x, weight, INDICES, y, 6, 8), INDICES.tolist()),
        (lambda y: lora.sgmv_expand(x, weight, OF_SEQUENCES, LENGTHS, y, 6, 8), [2, -1, 1, 1, 1]),
    ):
        y = half(5, WIDE, seed=2)
        expected = y.float().clone()
        expected[:, 6:14] += row_by_row(x, weight, of_rows, torch.zeros(5, 8))
        call(y)
        close(y.float(), expected, 2e-3)


def test_rows_behind_the_last_sequence_have_no_adapter():
    x, weight, y = half(6, WIDE), half(ADAPTERS, RANK, WIDE, seed=1), torch.full((6, RANK), 7.0)
    lora.sgmv_shrink(x, weight, OF_SEQUENCES, LENGTHS, y, 1.0)
    assert y[5].tolist() == [7.0] * RANK


def test_limits():
    weight, y = half(ADAPTERS, RANK, WIDE), torch.zeros(5, RANK)
    with refused("only float16 and bfloat16"):
        lora.bgmv_shrink(random(5, WIDE), weight, INDICES, y, 1.0)
    with refused("one entry for each of 5 rows"):
        lora.bgmv_shrink(half(5, WIDE), weight, INDICES[:4], y, 1.0)
    with refused("wider than y"):
        lora.bgmv_shrink(half(5, RANK), weight, INDICES, y, 1.0)
    with refused("not within the 24 of y"):
        lora.bgmv_expand(random(5, RANK), half(ADAPTERS, 8, RANK), INDICES, half(5, WIDE), 20, 8)
    with refused("the slice 2"):
        lora.bgmv_expand(random(5, RANK), half(ADAPTERS, 2, RANK), INDICES, half(5, WIDE), 0, 2)
    with refused("needs 3 or 4 dimensions"):
        lora.bgmv_shrink(half(5, WIDE), weight[0], INDICES, y, 1.0)


@pytest.mark.parametrize(("name", "lengths"), [("bgmv_expand", ()), ("sgmv_expand", (LENGTHS,))])
def test_a_graph_is_traced_without_values(name, lengths):
    x, weight, y = half(5, RANK), half(ADAPTERS, 1, WIDE, RANK, seed=1), half(5, 2 * WIDE)
    given = [one.to("meta") for one in (x, weight, INDICES, *lengths, y)]
    made = SHAPES[f"_C_ascend::{name}"](*given, 0, WIDE)
    assert (made.shape, made.dtype, made.device.type) == (y.shape, y.dtype, "meta")
