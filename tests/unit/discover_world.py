"""What the discovery tests share: a server as the only index, and tagged clones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sources_kit import Server, commit, git


def use_as_index(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server the only package index, and reachable without a proxy."""
    for name in ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX", "PIP_NO_INDEX", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def clone_with_tags(path: Path, *tags: str) -> Path:
    """A repository with one commit per tag, a day apart from 2026-08-01 on; annotated every second."""
    for number, tag in enumerate(tags):
        date = f"2026-08-{number + 1:02}T12:00:00Z"
        commit(path, {}, tag, date)
        git(path, "tag", *(["-a", "-m", tag] if number % 2 else []), tag, date=date)
    return path
