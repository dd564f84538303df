"""The old pair of a job is looked at in the background, from the merge on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from audit_kit import BASE, make_world
from deliver_support import Upgrade

from npu_upgrade.audit.run import _is_kept, check_names
from npu_upgrade.audit.world import World
from npu_upgrade.cli import main as cli
from npu_upgrade.cli.calls import calls
from npu_upgrade.commands import audit
from npu_upgrade.ground import behind

RUNNER = (
    "from vllm_ascend.worker.model_runner_v1 import NPUModelRunner\n\n\n"
    "class OmniNPUModelRunner(NPUModelRunner):\n    pass\n"
)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would run in the background."""
    commands: list[list[str]] = []

    def begin(command: list[str], **how: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(pid=7)

    monkeypatch.setattr(behind, "subprocess", SimpleNamespace(Popen=begin, DEVNULL=-3))
    return commands


def test_it_is_begun_by_the_program_alone(
    upgrade: Upgrade, begun: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    audit.begin_ahead(upgrade.job)
    assert begun == [], "a part of another program begins nothing"
    monkeypatch.setattr("sys.argv", ["/skill/scripts/upgrade.py", "merge", "--apply"])
    audit.begin_ahead(upgrade.job)
    ((_, program, *words),) = begun
    assert program == "/skill/scripts/upgrade.py"
    assert words[:2] == ["audit", "--ahead"]


def test_what_it_finds_is_known_to_the_audit_and_no_call_of_anybody(
    upgrade: Upgrade,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = make_world(tmp_path / "old", {BASE: RUNNER}).triple
    monkeypatch.setattr(audit, "open_project", lambda spec, name: None)
    monkeypatch.setattr(audit, "open_triple", lambda *given: None)
    monkeypatch.setattr(audit, "baseline", lambda specs, triple, job: old)
    monkeypatch.setattr(audit, "give_way", lambda: None)
    monkeypatch.setenv(behind.BEHIND, "1")
    before = len(calls(upgrade.workspace / ".npu-upgrade"))
    records = [record.id for record in upgrade.job.records()]
    words = ["audit", "--ahead", "--workspace", str(upgrade.workspace), "--format", "json"]
    assert not _is_kept(World(old), check_names())
    assert cli.main("upgrade.py", "", ["audit"], words) == 0
    assert json.loads(capsys.readouterr().out)["summary"].startswith("looked at ")
    assert _is_kept(World(old), check_names())
    assert len(calls(upgrade.workspace / ".npu-upgrade")) == before
    assert [record.id for record in upgrade.job.records()] == records, "it is no evidence"
