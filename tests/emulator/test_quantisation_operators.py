"""Reference operators that quantise activations."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import random, refused, uncovered  # noqa: E402

from npu_emulator.operators.quantisation import npu_dynamic_quant, npu_quant_matmul, npu_quantize  # noqa: E402

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


COLUMNS = 5


def integers(*shape, seed=3):
    return torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)


def test_a_product_of_integers_is_scaled_by_column_and_row():
    x, weight = integers(ROWS, SIZE), integers(SIZE, COLUMNS, seed=4)
    scale, rows = random(COLUMNS, seed=5).abs(), random(ROWS, seed=6).abs()
    bias = random(COLUMNS, seed=7)
    result = npu_quant_matmul(x, weight, scale, pertoken_scale=rows, bias=bias, output_dtype=torch.bfloat16)
    for row in range(ROWS):
        for column in range(COLUMNS):
            product = sum(int(x[row, at]) * int(weight[at, column]) for at in range(SIZE))
            expected = product * float(scale[column]) * float(rows[row]) + float(bias[column])
            assert float(result[row, column]) == pytest.approx(expected, rel=1e-2)
    assert result.dtype == torch.bfloat16


def test_a_bias_of_integers_is_scaled_too():
    x, weight, bias = (
        integers(ROWS, SIZE),
        integers(SIZE, COLUMNS, seed=4),
        torch.arange(5, dtype=torch.int32),
    )
    scale = torch.full((1,), 0.25)
    plain = npu_quant_matmul(x, weight, scale, output_dtype=3)  # the operator is given torch's number
    assert torch.equal(plain, x.int() @ weight.int())
    result = npu_quant_matmul(x, weight, scale, bias=bias, output_dtype=torch.float16)
    torch.testing.assert_close(result, ((plain + bias) * 0.25).half())


def test_a_product_in_int8_is_rounded_and_kept_in_range():
    x, weight = integers(ROWS, SIZE), integers(SIZE, COLUMNS, seed=4)
    result = npu_quant_matmul(x, weight, torch.ones(1), offset=torch.full((1,), 3.0))
    assert torch.equal(result, (x.int() @ weight.int() + 3).clamp(-128, 127).to(torch.int8))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x2": integers(SIZE + 1, COLUMNS)}, "8 columns, x2 9 rows"),
        ({"scale": torch.ones(COLUMNS - 1)}, "scale is"),
        (
            {"scale": torch.ones(COLUMNS, dtype=torch.bfloat16), "output_dtype": torch.float16},
            "scale is one of",
        ),
        ({"output_dtype": torch.float32}, "output_dtype is"),
        ({"offset": torch.ones(1)}, "offset is float32"),
        ({"pertoken_scale": torch.ones(ROWS + 1)}, "pertoken_scale is"),
        ({"pertoken_scale": torch.ones(ROWS), "output_dtype": torch.int32}, "pertoken_scale is float32"),
        ({"bias": torch.ones(COLUMNS), "output_dtype": torch.int32}, "bias is one of"),
        ({"bias": torch.ones(COLUMNS + 1)}, "bias is"),
    ],
)
def test_a_product_refuses(options, text):
    given = {"x1": integers(ROWS, SIZE), "x2": integers(SIZE, COLUMNS), "scale": torch.ones(COLUMNS)}
    with refused(text):
        npu_quant_matmul(**given | {"output_dtype": torch.bfloat16} | options)


def test_packed_scales_and_blocks_have_no_reference():
    given = (integers(ROWS, SIZE), integers(SIZE, COLUMNS))
    with uncovered("int64"):
        npu_quant_matmul(*given, torch.ones(COLUMNS, dtype=torch.int64))
    with uncovered("group_sizes"):
        npu_quant_matmul(*given, torch.ones(COLUMNS), group_sizes=[1, 1, 32])
