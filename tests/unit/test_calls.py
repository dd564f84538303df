"""Every command notes its call in the workspace that it was made in."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_upgrade.cli import main as cli
from npu_upgrade.cli.calls import NAME, calls
from npu_upgrade.ground.paths import WORKSPACE_DIR, workspace_root


def run(*argv: str) -> int:
    return cli.main("upgrade.py", "test", ["explain", "status"], list(argv))


def test_a_call_is_noted_with_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, inside = workspace_root(tmp_path), tmp_path / "deep" / "er"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    (inside / "serve.log").write_text("all is well\n")
    code = run("explain", "serve.log")
    printed = capsys.readouterr()
    (call,) = calls(folder)
    assert call.command == ["upgrade.py", "explain", "serve.log"]
    assert (call.exit, call.stdout, call.stderr) == (code, len(printed.out), len(printed.err))


def test_a_refused_call_is_noted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace_root(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("explain", "missing.log") == 2
    assert [call.exit for call in calls(folder)] == [2]


def test_the_workspace_that_an_option_names_has_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace_root(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    run("status", "--workspace", str(tmp_path / "there"))
    assert len(calls(folder)) == 1


def test_without_a_workspace_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("status")
    assert not (tmp_path / WORKSPACE_DIR).exists()


def test_a_note_that_cannot_be_written_hinders_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace_root(tmp_path) / NAME).mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.log").write_text("all is well\n")
    assert run("explain", "serve.log") != 70
