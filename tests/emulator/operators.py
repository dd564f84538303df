"""What the tests of the reference operators share: seeded values, and how a refusal is expected."""

import pytest
import torch

from npu_emulator.problems import MissingReference, OperatorLimit


def random(*shape, seed=0, dtype=None):
    """Seeded normal values."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values if dtype is None else values.to(dtype)


def refused(text: str):
    """A call outside of a documented limit, whose message has ``text``."""
    return pytest.raises(OperatorLimit, match=text)


def uncovered(text: str):
    """A call of a documented mode without a reference."""
    return pytest.raises(MissingReference, match=text)


def close(one, other, tolerance=1e-5):
    """Equal up to rounding."""
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
