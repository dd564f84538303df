"""What every test gets: a home of its own, and no network unless it is marked for it."""

from __future__ import annotations

import functools
import os
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A fresh home and cache folder, without the user's or the system's git configuration.

    Tests marked ``network`` keep the real home, where pip's configuration may be.
    """
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("HOME", str(home))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
    return home


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked ``network`` where the index does not answer; in CI they run and fail."""
    if item.get_closest_marker("network") and not os.environ.get("CI") and not _index_answers():
        pytest.skip("the package index does not answer")


@functools.cache
def _index_answers() -> bool:
    from npu_upgrade.ground.pipconfig import indexes

    try:
        with urllib.request.urlopen(f"{indexes()[0].url}/pip/", timeout=10):
            return True
    except (OSError, ValueError, IndexError):
        return False
