"""Triton kernels in the interpreter on the emulated NPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from tests.emulator.operators import close, random  # noqa: E402


@triton.jit
def scaled_rows(values, scales, result, rows, columns, PAD: tl.constexpr, COLUMNS: tl.constexpr):
    """Each row times its scale, in pairs of different block shapes; every second column is negated."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        column = tl.arange(0, COLUMNS)
        inside = column < columns
        read = tl.load(values + row * columns + column, mask=inside, other=0.0)
        sign = tl.where(column % 2 == 0, 1, -1).to(tl.float32)
        scale = tl.load(scales + tl.arange(0, PAD) * 0 + row)
        block = read[None, :] * scale[:, None] * sign[None, :]
        tl.store(result + row * columns + column, tl.sum(block, axis=0) / PAD, mask=inside)


@triton.jit
def squared(values, result):
    index = tl.arange(0, 4)
    value = tl.load(values + index)
    tl.store(result + index, value * value)


@triton.jit
def mixed(values, others, product, larger, whole, wide):
    index = tl.arange(0, 64)
    value, other = tl.load(values + index), tl.load(others + index)
    tl.store(product + index, value * other - other + 0.3)
    tl.store(larger + index, tl.where(value > other, value, other))
    tl.store(whole + index, value.to(tl.int32))
    tl.store(wide + index, tl.sum(tl.exp(value.to(tl.float32)).to(tl.bfloat16), axis=0))


def test_bfloat16_rounds_after_each_operation():
    values, others = (4 * random(64, seed=seed).bfloat16() for seed in (1, 2))
    product, larger, wide = (torch.zeros(64, dtype=torch.bfloat16, device="npu") for _ in range(3))
    whole = torch.zeros(64, dtype=torch.int32, device="npu")
    mixed[(1,)](values.npu(), others.npu(), product, larger, whole, wide)
    assert torch.equal(product.cpu(), values * others - others + torch.tensor(0.3).bfloat16())
    assert torch.equal(larger.cpu(), torch.maximum(values, others))
    assert torch.equal(whole.cpu(), values.int())
    close(wide.cpu().float(), values.float().exp().bfloat16().float().sum().expand(64), 0.01)


@pytest.mark.parametrize("columns", [3, 8])
def test_a_kernel_computes_what_torch_does(columns):
    values, scales = random(5, columns).npu(), random(5, seed=1).npu()
    result = torch.zeros_like(values)
    scaled_rows[(2,)](values, scales, result, 5, columns, PAD=2, COLUMNS=triton.next_power_of_2(columns))
    sign = torch.tensor([1.0, -1.0]).repeat(columns)[:columns]
    close(result.cpu(), values.cpu() * scales.cpu()[:, None] * sign)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32])
def test_one_kernel_takes_several_dtypes(dtype):
    values = torch.tensor([2, 3, 4, 5], dtype=dtype, device="npu")
    result = torch.zeros_like(values)
    squared[(1,)](values, result)
    assert result.tolist() == [4, 9, 16, 25]
    assert result.dtype == dtype


def test_integers_wrap_as_in_a_compiled_kernel():
    values = torch.full((4,), 2**17, dtype=torch.int32, device="npu")
    result = torch.ones_like(values)
    squared[(1,)](values, result)
    assert result.tolist() == [0] * 4


def test_types_stay_different():
    one = tl.block_type(tl.float32, [4])
    assert one == tl.block_type(tl.float32, [4])
    assert one.shape == one.get_block_shapes()
    assert all(one != other for other in (tl.block_type(tl.float32, [8]), tl.block_type(tl.int32, [4])))
    with pytest.raises((ValueError, TypeError)):
        tl.block_type(tl.float32, [3.5])


@triton.jit
def share_of_the_largest(values, result, size, LENGTH: tl.constexpr):
    """A scalar comparison meets a block of them, and a block has a length of no power of two."""
    index = tl.arange(0, LENGTH)
    inside = index < size
    read = tl.load(values + index, mask=inside, other=float("-inf"))
    largest = tl.max(read, axis=0)
    known = largest > float("-inf")
    weights = tl.where(inside & known, tl.exp(read - largest), 0.0)
    tl.store(result, tl.sum(weights, axis=0))


@pytest.mark.parametrize("length", [8, 12])
def test_a_comparison_of_numbers_stays_a_truth_value_and_blocks_have_any_length(length):
    values, result = random(7).npu(), torch.zeros(1).npu()
    share_of_the_largest[(1,)](values, result, 7, LENGTH=length)
    close(result.cpu(), torch.exp(values.cpu() - values.cpu().max()).sum()[None])


def test_a_block_that_is_too_large_or_empty_is_refused():
    with pytest.raises(triton.runtime.errors.InterpreterError, match="exceeds triton maximum"):
        share_of_the_largest[(1,)](random(7).npu(), torch.zeros(1).npu(), 7, LENGTH=3 * 2**20)
    with pytest.raises(triton.runtime.errors.InterpreterError, match="greater than the start"):
        share_of_the_largest[(1,)](random(7).npu(), torch.zeros(1).npu(), 7, LENGTH=0)
