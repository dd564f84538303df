"""The histogram of the emulated device, which takes whole numbers as the device does."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import refused  # noqa: E402

from npu_emulator.operators.counting import histc  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.bfloat16])
def test_each_element_is_counted_in_its_type(dtype):
    experts = torch.tensor([[0, 3], [3, 1], [7, 3]], dtype=dtype)
    counts = histc(experts, bins=8, min=0, max=8)
    assert counts.dtype is dtype
    assert counts.tolist() == [1, 1, 0, 3, 0, 0, 0, 1]


def test_what_is_outside_the_range_is_not_counted():
    assert histc(torch.tensor([-1, 2, 9]), bins=4, min=0, max=4).tolist() == [0, 0, 1, 0]


def test_a_positive_number_of_ranges_is_asked_for():
    with refused("bins is positive"):
        histc(torch.zeros(3), bins=0)


def test_the_device_counts_with_it():
    chosen = torch.tensor([[0, 3], [3, 1]], dtype=torch.int32).npu()
    assert torch.histc(chosen, bins=4, min=0, max=4).tolist() == [1, 1, 0, 2]
