"""Fixtures that the tests of the delivery of an upgrade share; how long a drawn example may take."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deliver_support import OTHER, Gh, Upgrade, make_gh, make_upgrade, run_deliver, snapshot
from hypothesis import HealthCheck, settings

from npu_upgrade.ground import command

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def no_program_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which program a test calls is forgotten after it."""
    monkeypatch.setattr(command, "_called", [])


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes need not outlive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where a world is that a module makes once, and where it is kept as it was made."""
    root = tmp_path_factory.mktemp("made")
    return root / "world", root / "kept"


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """A checkout on the upgrade branch with a merge applied and checked, and its job."""
    return make_upgrade(tmp_path, monkeypatch)


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gh:
    """A gh that writes down what it was asked."""
    return make_gh(tmp_path, monkeypatch)


@pytest.fixture
def deliver(
    upgrade: Upgrade, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Deliver the upgrade; the exit code and the JSON."""
    return lambda *options: run_deliver(upgrade, capsys, *options)


@pytest.fixture
def refused(upgrade: Upgrade, deliver: Callable[..., tuple[int, dict[str, Any]]]) -> Callable[..., str]:
    """The error of a delivery that is refused, after checking that it changed nothing."""

    def call(*options: str) -> str:
        if (upgrade.repo / OTHER).exists():
            os.utime(upgrade.repo / OTHER, (1, 1))  # git would like to refresh its index now
        before = snapshot(upgrade.repo)
        code, result = deliver(*options)
        assert code == 2, result
        assert result["expected"]
        assert result["try"]
        assert snapshot(upgrade.repo) == before
        assert not list(upgrade.repo.glob(".git/*.lock"))
        return f"{result['error']} / {result['try']}"

    return call
