"""Triton kernels in the interpreter on the emulated NPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
import triton.language.extra.cann.extension as cann  # noqa: E402
from tests.emulator.operators import close, random  # noqa: E402

from npu_emulator.triton_kernels import together  # noqa: E402


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


@triton.jit
def turned_rows(values, cosines, places, rows, columns: tl.constexpr, WIDTH: tl.constexpr):
    """In place, like a rotary embedding: a program takes every so many rows, at places read from memory."""
    for row in tl.range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0)):
        place = tl.load(places + row).to(tl.int64)
        half = tl.arange(0, WIDTH)
        inside = half < columns // 2
        cosine = tl.load(cosines + place * columns + half, mask=inside, other=0.0)
        sine = tl.load(cosines + place * columns + columns // 2 + half, mask=inside, other=0.0)
        at = values + row * columns + half
        one, other = tl.load(at, mask=inside, other=0.0), tl.load(at + columns // 2, mask=inside, other=0.0)
        tl.store(at, one * cosine - other * sine, mask=inside)
        tl.store(at + columns // 2, other * cosine + one * sine, mask=inside)


@triton.jit
def ways(values, lengths, result, extreme, columns, WIDTH: tl.constexpr):
    """A program's own count of steps, a condition on what it read, and values along an axis."""
    row = tl.program_id(0)
    length = tl.load(lengths + row)
    total = 0.0
    for step in tl.range(0, length):
        total += tl.load(values + row * columns + step)
    if length % 2 == 1:
        total = -total
    tl.store(result + row, total)
    column = tl.arange(0, WIDTH)
    read = tl.load(values + row * columns + column, mask=column < columns, other=-100.0)
    pair = tl.reshape(tl.broadcast_to(read[:, None], (WIDTH, 2)), (2 * WIDTH,))
    tl.store(extreme + row * 4, tl.max(read, axis=0))
    tl.store(extreme + row * 4 + 1, tl.argmax(read, axis=0))
    tl.store(
        extreme + row * 4 + 2, tl.max(pair, axis=0) + tl.sum(tl.where(column < columns, read, 0.0), axis=0)
    )
    tl.store(extreme + row * 4 + 3, tl.sum(tl.cumsum(tl.where(column < columns, read, 0.0), axis=0), axis=0))


@triton.jit
def stored_before(values, result):
    """In place, and what a condition asks for only afterwards."""
    row = tl.program_id(0)
    value = tl.load(values + row)
    tl.store(values + row, value + 1.0)
    if value > 0.0:
        tl.store(result + row, 1.0)


@triton.jit
def products(one, other, result, SIZE: tl.constexpr):
    """A matrix product of each program, with one that all share, and the transposed one."""
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    here = tl.program_id(0) * SIZE * SIZE
    mine, shared = tl.load(one + here + at), tl.load(other + at)
    tl.store(result + here + at, tl.dot(mine, shared) + tl.trans(mine) + mine.T)


extract_slice, insert_slice, get_element = cann.extract_slice, cann.insert_slice, cann.get_element


@triton.jit
def halves_turned(values, places, result, COLUMNS: tl.constexpr):
    """The halves of a row each in the other's place, and one element of it, by the CANN extension."""
    row = tl.program_id(0)
    read = tl.load(values + row * COLUMNS + tl.arange(0, COLUMNS))
    first = extract_slice(read, (0,), (COLUMNS // 2,), (1,))
    second = extract_slice(read, offsets=(COLUMNS // 2,), sizes=(COLUMNS // 2,), strides=(1,))
    turned = insert_slice(tl.zeros((COLUMNS,), tl.float32), second, (0,), (COLUMNS // 2,), (1,))
    turned = insert_slice(turned, first, offsets=(COLUMNS // 2,), sizes=(COLUMNS // 2,), strides=(1,))
    chosen = get_element(read, (tl.load(places + row),))
    shared = get_element(tl.arange(0, COLUMNS), (row % 2,))
    tl.store(result + row * COLUMNS + tl.arange(0, COLUMNS), turned + chosen * shared)


@triton.jit
def masked_rows(values, result, others, rows, COLUMNS: tl.constexpr):
    """A tile of two rows of each program, of which most programs have none."""
    row = tl.program_id(0) * 2 + tl.arange(0, 2)[:, None]
    at, column = row * COLUMNS + tl.arange(0, COLUMNS)[None, :], tl.arange(0, COLUMNS)[None, :]
    read = tl.load(values + at, mask=row < rows, other=column + 1.0)
    shared = tl.load(values + at, mask=row < rows, other=2.0)
    tl.store(result + at, read * shared, mask=row < rows)
    tl.store(others + tl.program_id(0), tl.sum(tl.sum(read, axis=1), axis=0))


@triton.jit
def counted(total, order):
    """What cannot be done for several programs at once."""
    tl.store(order + tl.program_id(0), tl.atomic_add(total, 1))


@triton.jit
def outside(values, result, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    tl.store(result + row, 1.0)
    tl.static_assert(WIDTH < 2, "too wide")


def one_by_one(kernel, grid, *given, **constants):
    """What the kernel leaves in ``given`` when each program runs by itself."""
    together.ALONE.add(kernel.rewrite())
    try:
        kernel[grid](*given, **constants)
    finally:
        together.ALONE.clear()


def both_ways(kernel, grid, *given, **constants):
    """The tensors after programs ran together, which are those after they ran one by one."""
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    one_by_one(kernel, grid, *copies, **constants)
    kernel[grid](*given, **constants)
    for here, there in zip(given, copies, strict=True):
        if isinstance(here, torch.Tensor):
            assert torch.equal(here.cpu(), there.cpu())
    return kernel.rewrite() not in together.ALONE


@pytest.mark.parametrize(("rows", "programs"), [(1, 1), (7, 3), (130, 48), (100, 100)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_programs_together_do_what_they_do_one_by_one(rows, programs, kind):
    values, cosines = random(rows, 12).to(kind).npu(), random(9, 12, seed=1).to(kind).npu()
    places = (torch.arange(rows) % 9).npu()
    before = values.clone()
    assert both_ways(turned_rows, (programs,), values, cosines, places, rows, columns=12, WIDTH=8)
    assert not torch.equal(values.cpu(), before.cpu())


def test_programs_of_different_ways_are_told_apart():
    values, lengths = random(90, 5).npu(), (torch.arange(90) % 6).npu()
    result, extreme = torch.zeros(90).npu(), torch.zeros(90, 4).npu()
    assert both_ways(ways, (90,), values, lengths, result, extreme, 5, WIDTH=8)
    sums = torch.stack(
        [row[:length].sum() * (-1) ** length for row, length in zip(values.cpu(), lengths.cpu(), strict=True)]
    )
    close(result.cpu(), sums)


def test_what_was_stored_before_programs_are_told_apart_is_put_back():
    values, result = random(20).npu(), torch.zeros(20).npu()
    before = values.cpu()
    assert both_ways(stored_before, (20,), values, result)
    assert torch.equal(values.cpu(), before + 1.0)
    assert torch.equal(result.cpu(), (before > 0).float())


def test_matrices_of_programs_together():
    one, other, result = random(5, 16, 16).npu(), random(16, 16, seed=1).npu(), torch.zeros(5, 16, 16).npu()
    assert both_ways(products, (5,), one, other, result, SIZE=16)
    mine = one.cpu()
    close(result.cpu(), mine @ other.cpu() + 2 * mine.transpose(1, 2))


def test_slices_and_elements_of_programs_together():
    values, places = random(20, 6).npu(), (torch.arange(20) % 6).int().npu()
    result = torch.zeros(20, 6).npu()
    assert both_ways(halves_turned, (20,), values, places, result, COLUMNS=6)
    read, chosen = values.cpu(), torch.arange(20) % 6
    odd = (torch.arange(20) % 2)[:, None]
    close(result.cpu(), torch.cat((read[:, 3:], read[:, :3]), 1) + read.gather(1, chosen[:, None]) * odd)


@pytest.mark.parametrize("rows", [0, 1, 5, 12])
def test_programs_without_work_leave_memory_as_it_was(rows):
    values, result, others = random(rows + 1, 4).npu(), torch.full((12, 4), -1.0).npu(), torch.zeros(6).npu()
    assert both_ways(masked_rows, (6,), values, result, others, rows, COLUMNS=4)
    close(result.cpu()[:rows], values.cpu()[:rows] ** 2)
    assert (result.cpu()[rows:] == -1).all()


@triton.jit
def squared_rows(values, result, rows, COLUMNS: tl.constexpr):
    """A tile of two rows of each program; what it stores is decided by the number of rows alone."""
    row = tl.program_id(0) * 2 + tl.arange(0, 2)[:, None]
    at = row * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < tl.minimum(rows, 100)) & (tl.arange(0, COLUMNS)[None, :] < COLUMNS)
    for step in tl.range(tl.cdiv(rows, rows)):
        read = tl.load(values + at, mask=inside, other=0.0)
        tl.store(result + at + step, read * read, mask=inside)


@triton.jit
def positive(values, result):
    """What it stores is decided by what it reads."""
    row = tl.program_id(0)
    read = tl.load(values + row)
    tl.store(result + row, read, mask=read > 0.0)


def busy(kernel):
    return [len(places) for call, places in together.BUSY.items() if call[0] is kernel.rewrite()]


def test_idle_programs_are_left_out_once_they_are_known():
    for rows in (3, 12, 3):
        values, result = random(12, 4, seed=rows).npu(), torch.full((12, 4), -1.0).npu()
        for _ in range(2):
            squared_rows[(6,)](values, result, rows, COLUMNS=4)
            close(result.cpu()[:rows], values.cpu()[:rows] ** 2)
            assert (result.cpu()[rows:] == -1).all()
            values += 1.0
    assert busy(squared_rows) == [2, 6]


@pytest.mark.parametrize("kernel", [positive, stored_before])
def test_programs_whose_work_is_decided_by_what_they_read_are_never_left_out(kernel):
    values, result = torch.tensor([1.0, -1.0, -1.0]).npu(), torch.zeros(3).npu()
    kernel[(3,)](values, result)
    assert (result.cpu() > 0).tolist() == [True, False, False]
    values.copy_(torch.tensor([-3.0, 2.0, 2.0]))
    kernel[(3,)](values, result)
    assert (result.cpu() > 0).tolist() == [True, True, True]
    assert busy(kernel) == []


def test_what_cannot_be_done_together_is_done_one_by_one():
    total, order = torch.zeros(1, dtype=torch.int32).npu(), torch.zeros(20, dtype=torch.int32).npu()
    counted[(20,)](total, order)
    assert order.cpu().tolist() == list(range(20))
    assert counted.rewrite() in together.ALONE


def test_a_kernel_that_fails_says_it_in_the_interpreters_words():
    values, result = random(8).npu(), torch.zeros(8).npu()
    with pytest.raises(Exception, match="too wide"):
        outside[(8,)](values, result, WIDTH=4)
    assert result.cpu().tolist() == [1.0] + [0.0] * 7  # as if each ran by itself


def test_a_grid_of_several_axes_is_whole():
    @triton.jit
    def places(result):
        x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        tl.store(result + (x * 5 + y) * 3 + z, 100 * x + 10 * y + z)

    result = torch.full((40 * 5 * 3,), -1, dtype=torch.int32).npu()
    assert both_ways(places, (40, 5, 3), result)
    assert result.view(40, 5, 3)[39, 4, 2].item() == 39 * 100 + 42
