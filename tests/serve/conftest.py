"""The environment with vLLM and the tiny checkpoints come from the real cache: they are made once."""

import pytest


@pytest.fixture(autouse=True)
def own_home():
    """In place of the fixture that gives each test a cache of its own."""
