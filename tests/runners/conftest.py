"""Releases and environments come from the real cache: they are large, and fetched once."""

import pytest


@pytest.fixture(autouse=True)
def own_home():
    """In place of the fixture that gives each test a cache of its own."""
