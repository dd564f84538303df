"""Reference operators that quantise activations."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import random, refused, uncovered  # noqa: E402

from npu_emulator.operators.quantisation import npu_dynamic_quant, npu_quantize  # noqa: E402

ROWS, SIZE = 3, 8


def values():
    return random(ROWS, SIZE, dtype=torch.bfloat16)


def test_each_token_has_a_scale_of_its_own():
    x = values()
    quantised, scale = npu_dynamic_quant(x)
    for row in range(ROWS):
        largest = max(abs(float(value)) for value in x[row])
        assert float(scale[row]) == pytest.approx(largest / 127)
        assert quantised[row].abs().max() == 127
        for one, other in zip(quantised[row].tolist(), x[row].tolist(), strict=True):
            assert abs(one * largest / 127 - other) <= largest / 254 + 1e-6
    assert (quantised.dtype, scale.dtype) == (torch.int8, torch.float32)


def test_a_row_of_zeros_stays_zero():
    quantised, scale = npu_dynamic_quant(torch.zeros(2, SIZE, dtype=torch.float16))
    assert not quantised.any()
    assert not scale.any()


def test_smoothing_comes_before_the_scale():
    smooth = random(SIZE, seed=2, dtype=torch.bfloat16)
    quantised, scale = npu_dynamic_quant(values(), smooth_scales=smooth)
    largest = (values().float() * smooth.float()).abs().amax(-1)
    torch.testing.assert_close(scale, largest / 127)
    assert (quantised.abs().amax(-1) == 127).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x": random(ROWS, SIZE)}, "float16 or bfloat16"),
        ({"x": values()[0]}, "more than one dimension"),
        ({"x": values(), "smooth_scales": random(SIZE + 1, dtype=torch.bfloat16)}, "smooth_scales is"),
        ({"x": values(), "smooth_scales": random(SIZE)}, "smooth_scales is"),
    ],
)
def test_a_scale_for_each_token_refuses(options, text):
    with refused(text):
        npu_dynamic_quant(**options)


def test_int4_has_no_reference():
    with uncovered("dst_type"):
        npu_dynamic_quant(values(), dst_type=torch.quint4x2)
    with uncovered("dtype"):
        npu_quantize(values(), torch.ones(1), None, torch.quint4x2, -1, False)


@pytest.mark.parametrize(
    ("axis", "div_mode", "scales", "offset", "first"),
    [
        (-1, True, torch.full((4,), 0.5), None, [2, 4, 127, -128]),
        (-1, False, torch.tensor([1.0, 2, 1, 1]), torch.tensor([0.0, 1, 0, 0]), [1, 5, 127, -128]),
        (0, True, torch.tensor([2.0, 1.0]), None, [0, 1, 100, -100]),
        (1, False, torch.tensor([1.0]), None, [1, 2, 127, -128]),
        (-2, False, torch.tensor([3.0, 1.0]), None, [3, 6, 127, -128]),
    ],
)  # fmt: skip
def test_given_scales(axis, div_mode, scales, offset, first):
    x = torch.tensor([[1.0, 2.0, 200.0, -200.0], [0.0, 0.0, 0.0, 0.0]])
    found = npu_quantize(x, scales, offset, torch.qint8, axis, div_mode)
    assert found[0].tolist() == first
    assert found.dtype == torch.int8


def test_given_scales_refuse():
    with refused("one scale or 8, got 5"):
        npu_quantize(values(), torch.ones(5), None, torch.qint8, -1)
    with refused("offsets like scales"):
        npu_quantize(values(), torch.ones(SIZE), torch.ones(1), torch.qint8, -1)
    with refused("scales is one of"):
        npu_quantize(values(), torch.ones(SIZE, dtype=torch.float16), None, torch.qint8, -1)
