"""The pull request and the issue comment, with a gh that writes down what it was asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from adapt_kit import World, deliver, make_world
from artifacts_kit import NAME
from deliver_support import Gh, git, write


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    made = make_world(tmp_path, monkeypatch)
    made.prove()
    made.generate(capsys)
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "fork.git"))
    git(made.repo, "remote", "set-url", "origin", str(tmp_path / "fork.git"))
    return made


def test_nothing_is_published_unasked(world: World, gh: Gh, capsys) -> None:
    code, result = deliver(world, capsys)
    assert code == 0, result
    assert gh.calls() == []
    assert git(world.folder / "fork.git", "for-each-ref") == ""
    assert "push" in result["next"]


def test_a_dry_run_publishes_nothing(world: World, gh: Gh, capsys) -> None:
    assert deliver(world, capsys, "--dry-run", "--pr", "--comment", "5")[0] == 0
    assert gh.calls() == []
    assert git(world.folder / "fork.git", "for-each-ref") == ""


def test_the_request_is_of_the_commit_under_the_projects_headings(world: World, gh: Gh, capsys) -> None:
    template = "### What this PR does\n### Any user-facing change?\n### How was it tested?\n"
    write(world.repo, ".github/PULL_REQUEST_TEMPLATE.md", template)
    code, result = deliver(world, capsys, "--pr", "--leave", ".github")
    assert code == 0, result
    assert result["pull_request"] == "https://example.com/pr/7"
    assert git(world.folder / "fork.git", "rev-parse", "adapt-tiny").strip() == result["commit"]
    ((arguments, body),) = gh.calls("pr", "create")
    assert arguments[arguments.index("--title") + 1] == f"[Feature] Support {NAME}"
    assert "### How was it tested?\n\n## " in body
    assert "Evidence for tree" in body
    assert deliver(world, capsys, "--pr", "--leave", ".github")[1]["new"] is False
    assert len(gh.calls("pr", "create")) == 1


def test_a_comment_is_posted_once(world: World, gh: Gh, capsys) -> None:
    result = deliver(world, capsys, "--comment", "5")[1]
    ((arguments, body),) = gh.calls("issue", "comment")
    assert arguments[2] == "5"
    assert f"## {NAME} on vllm-ascend" in body
    assert result["commit"] in body
    assert deliver(world, capsys, "--comment", "5")[1]["comment"] == "posted before"
    assert len(gh.calls("issue", "comment")) == 1


def test_the_commit_stays_when_gh_fails_and_the_next_call_goes_on(world: World, gh: Gh, capsys) -> None:
    gh.fail.write_text("")
    code, result = deliver(world, capsys, "--comment", "5")
    assert code == 3
    assert "not logged in" in result["error"]
    assert f"Adapted-Model: {NAME}" in world.body()
    gh.fail.unlink()
    code, result = deliver(world, capsys, "--comment", "5")
    assert (code, result["new"]) == (0, False)
    assert len(gh.calls("issue", "comment")) == 1


def test_nothing_is_posted_when_nobody_knows_what_was_posted_before(world: World, gh: Gh, capsys) -> None:
    posted = world.workspace / ".npu-upgrade/adapt" / NAME / "posted.json"
    posted.write_text('{"5": "once"}')
    code, result = deliver(world, capsys, "--comment", "5")
    assert code == 2
    assert str(posted) in result["error"]
    assert gh.calls("issue", "comment") == []
    posted.unlink()
    assert deliver(world, capsys, "--comment", "5")[1]["new"] is False
    assert len(gh.calls("issue", "comment")) == 1


def test_without_a_remote_there_is_no_request(world: World, gh: Gh, capsys) -> None:
    git(world.repo, "remote", "remove", "origin")
    code, result = deliver(world, capsys, "--pr")
    assert code == 3
    assert "no remote" in result["error"]


def test_without_gh(world: World, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only/git").symlink_to(shutil.which("git") or "git")
    monkeypatch.setenv("PATH", str(tmp_path / "only"))
    code, result = deliver(world, capsys, "--comment", "5")
    assert code == 3
    assert "gh is not installed" in result["error"]
