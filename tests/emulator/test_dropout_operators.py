"""The reference operator of dropout."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")

from tests.emulator.operators import refused  # noqa: E402

from npu_emulator.operators.dropout import npu_dropout  # noqa: E402


@pytest.mark.parametrize(("shape", "p"), [((4,), 0.3), ((3, 50), 0.5), ((2, 2), 0.0)])
def test_the_mask_tells_what_is_kept(shape, p):
    values = torch.full(shape, 3.0)
    result, mask = npu_dropout(values, p)
    bits = [int(byte) >> bit & 1 for byte in mask for bit in range(8)]
    assert len(bits) % 128 == 0
    expected = [3.0 / (1 - p) if bit else 0.0 for bit in bits[: values.numel()]]
    torch.testing.assert_close(result.flatten(), torch.tensor(expected))


def test_it_moves_nobodys_seed():
    torch.manual_seed(5)
    npu_dropout(torch.ones(1000), 0.5)
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))


def test_a_probability_is_asked_for():
    with refused("probability below 1"):
        npu_dropout(torch.ones(4), 1.0)
