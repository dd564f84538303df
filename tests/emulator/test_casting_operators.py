"""The reference operator of casts."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run in the interpreter of an emulated environment")


def test_a_cast_keeps_values():
    values = torch.tensor([1.5, -2.0, 0.0]).npu()
    found = torch.ops.npu._npu_dtype_cast(values, torch.int32)
    assert (found.dtype, found.tolist()) == (torch.int32, [1, -2, 0])
