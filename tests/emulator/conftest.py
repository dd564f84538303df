"""Emulated runs use the real cache: an environment of several GB is made once, not for each test."""

import pytest

from npu_upgrade.gates.emulation.environment import check_machine
from npu_upgrade.ground.errors import Blocked


@pytest.fixture(autouse=True)
def own_home():
    """In place of the fixture that gives each test a cache of its own."""


@pytest.fixture
def machine():
    """Skips the test, and says why, where nothing can be emulated."""
    try:
        check_machine()
    except Blocked as error:
        pytest.skip(f"no emulation on this machine: {error.what}")
