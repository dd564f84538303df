"""The list of what the files lack of the GPU side is made anew before the commit names it."""

from __future__ import annotations

from typing import Any

import pytest
from deliver_support import Upgrade

from npu_upgrade.commands import gains
from npu_upgrade.job.plan_file import load_plan


@pytest.mark.parametrize("listed_for", ["nothing", "older files", "these files"])
def test_it_is_made_where_the_files_have_changed_since(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch, listed_for: str
) -> None:
    job = upgrade.job
    now = load_plan(job).subject(job.root).tree
    tree = {"nothing": None, "older files": "0" * 64, "these files": now}[listed_for]
    called: list[str] = []

    def answered(command: Any, *, whole: bool) -> tuple[int, dict[str, Any]]:
        called.append(command.name)
        return 0, {}

    monkeypatch.setattr(gains, "port_survey", lambda job: {"tree": tree} if tree else {})
    monkeypatch.setattr(gains, "answered", answered)
    with gains.listing_beside(job):
        pass  # it is waited for at the end
    assert called == (["port"] if listed_for == "older files" else [])
