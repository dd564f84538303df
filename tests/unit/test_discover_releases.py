"""Who answers the question of what was published, and what is said about those who could not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from discover_world import clone_with_tags, use_as_index
from sources_kit import Server, serving

from npu_upgrade.ground.errors import Blocked
from npu_upgrade.sources import releases
from npu_upgrade.sources.index import Published
from npu_upgrade.sources.releases import PassedOver, from_clone, from_gh, from_rest, version_of_tag

NOWHERE = "http://127.0.0.1:9"


def entry(tag: str, date: str = "2026-10-13T15:30:00Z", **more: object) -> dict:
    return {"tag_name": tag, "published_at": date, "draft": False, "prerelease": False} | more


@pytest.fixture
def fake_gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a ``gh`` with the given shell body first on PATH; returns the file its arguments go to."""

    def install(body: str) -> Path:
        folder, log = tmp_path / "bin", tmp_path / "gh.log"
        folder.mkdir()
        tool = folder / "gh"
        tool.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{body}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return log

    return install


@pytest.fixture
def no_gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with git and nothing else."""
    folder = tmp_path / "only-git"
    folder.mkdir()
    git = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True, check=True)
    (folder / "git").symlink_to(git.stdout.strip())
    monkeypatch.setenv("PATH", str(folder))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, configured as the only package index."""
    with serving() as running:
        use_as_index(running, monkeypatch)
        yield running


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v0.18.0rc1", "0.18.0rc1"),
        ("0.7.3.post1", "0.7.3.post1"),
        ("nightly", None),
        ("v7.3.0-pytorch2.7.1", None),
    ],
)
def test_only_tags_that_name_a_version_count(tag: str, version: str | None) -> None:
    assert version_of_tag(tag) == version


def test_gh_pages_written_one_after_another_are_all_read(fake_gh: Callable[[str], Path]) -> None:
    pages = [
        [entry("v0.2.0"), entry("v0.3.0rc1")],
        [entry("v0.1.0"), entry("nightly"), entry("v9", draft=True)],
    ]
    log = fake_gh("cat <<'END'\n" + "\n".join(json.dumps(page) for page in pages) + "\nEND")
    found = from_gh("vllm-project/vllm")
    assert [r.version for r in found] == ["0.2.0", "0.3.0rc1", "0.1.0"]
    assert found[1].prerelease
    assert found[0].date == datetime(2026, 10, 13, 15, 30, tzinfo=UTC)
    assert found[0].tag == "v0.2.0"
    assert found[0].yanked is None
    assert "--json" not in log.read_text()  # older gh has none


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit 4", "not logged in"),
        ("echo 'error connecting to api.github.com' >&2; exit 1", "error connecting"),
        ("echo '<html>'", "JSON"),
        ("""echo '{"message": "no"}'""", "list of releases"),
        ("echo '[]'", "no release named by a version"),
    ],
)
def test_a_gh_that_cannot_answer_says_why(fake_gh: Callable[[str], Path], body: str, reason: str) -> None:
    fake_gh(body)
    with pytest.raises(PassedOver, match=reason):
        from_gh("vllm-project/vllm")


def test_no_gh_at_all(no_gh: None) -> None:
    with pytest.raises(PassedOver, match="not installed"):
        from_gh("vllm-project/vllm")


def test_rest_follows_pages_and_sends_the_token(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret-1")
    path = "/repos/vllm-project/vllm/releases"
    server.json(path, [entry("v0.2.0")], Link=f'<{server.url}{path}?page=2>; rel="next"')
    server.json(f"{path}?page=2", [entry("v0.1.0")])
    assert [r.version for r in from_rest("vllm-project/vllm", server.url)] == ["0.2.0", "0.1.0"]
    assert all(headers["Authorization"] == "Bearer secret-1" for _, headers in server.requests)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1790000000"}, b"{}"),
            "rate limited.*GITHUB_TOKEN",
        ),
        ((429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1790000000"}, b"{}"), "rate limited"),
        ((403, {}, b"{}"), "HTTP 403"),
        ((401, {}, b"{}"), "HTTP 401"),
        ((200, {}, b"<html>login</html>"), "Expecting value"),
    ],
)
def test_a_rest_that_cannot_answer_says_why(server: Server, answer: tuple, reason: str) -> None:
    server.answers["/repos/vllm-project/vllm/releases"] = answer
    with pytest.raises(PassedOver, match=reason):
        from_rest("vllm-project/vllm", server.url)


def test_rest_without_network_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(PassedOver, match="no network"):
        from_rest("vllm-project/vllm", NOWHERE)


def test_a_clone_gives_dates_and_the_commit_of_both_kinds_of_tag(tmp_path: Path) -> None:
    clone = clone_with_tags(tmp_path / "repo", "v0.1.0", "v0.2.0rc1", "nightly")
    found = {r.version: r for r in from_clone(clone)}
    assert set(found) == {"0.1.0", "0.2.0rc1"}
    for version, release in found.items():
        rev = ["git", "-C", str(clone), "rev-parse", f"v{version}^{{commit}}"]
        assert release.sha == subprocess.run(rev, capture_output=True, text=True).stdout.strip()
    assert found["0.2.0rc1"].date == datetime(2026, 8, 2, 12, tzinfo=UTC)
    assert found["0.2.0rc1"].prerelease


def test_a_folder_that_is_no_clone_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(PassedOver, match="not a git repository"):
        from_clone(tmp_path)


def test_gh_is_asked_first_and_named(fake_gh: Callable[[str], Path], server: Server) -> None:
    fake_gh("echo '" + json.dumps([entry("v0.2.0")]) + "'")
    answer = releases.find("vllm", rest_url=server.url)
    assert (answer.source, answer.passed_over) == ("gh", {})


def test_every_source_passed_over_is_named_until_one_answers(no_gh: None, server: Server) -> None:
    server.answers["/repos/vllm-project/vllm/releases"] = (403, {"x-ratelimit-remaining": "0"}, b"{}")
    server.index("vllm", ("0.9.0", "2026-01-01", False), ("0.10.0", "2026-02-01", False))
    answer = releases.find("vllm", rest_url=server.url)
    assert answer.source == "index"
    assert [r.version for r in answer.releases] == ["0.10.0", "0.9.0"]
    assert list(answer.passed_over) == ["gh", "rest", "git"]
    assert "rate limited" in answer.passed_over["rest"]
    assert "--repo" in answer.passed_over["git"]


def test_a_clone_behind_the_index_does_not_answer(no_gh: None, server: Server, tmp_path: Path) -> None:
    clone = clone_with_tags(tmp_path / "repo", "v0.25.1rc1")
    server.index("vllm-ascend", ("0.25.1rc1", "2026-08-19", False), ("0.30.0rc2", "2026-10-13", False))
    answer = releases.find("vllm-ascend", clone=clone, rest_url=NOWHERE)
    assert answer.source == "index"
    assert "behind" in answer.passed_over["git"]
    assert releases.find("vllm-ascend", "git", clone).releases[0].version == "0.25.1rc1"


def test_a_clone_answers_when_nothing_newer_can_be_known(
    no_gh: None, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = clone_with_tags(tmp_path / "repo", "v0.25.1rc1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    answer = releases.find("vllm-ascend", clone=clone, rest_url=NOWHERE)
    assert answer.source == "git"
    assert any("2026-08-01" in note for note in answer.notes)


def test_yanked_and_uploads_out_of_order(server: Server) -> None:
    server.index(
        "vllm-ascend",
        ("0.30.0", "2026-10-20", True),
        ("0.30.0rc2", "2026-10-13", False),
        ("0.23.0.post1", "2026-10-30", False),
    )
    answer = releases.find("vllm-ascend", "index")
    assert [r.version for r in answer.releases] == ["0.30.0", "0.30.0rc2", "0.23.0.post1"]
    stable, pre = answer.newest(pre=False), answer.newest(pre=True)
    assert stable
    assert stable.version == "0.23.0.post1"
    assert pre
    assert pre.version == "0.30.0rc2"
    assert any("0.23.0.post1 came last" in note for note in answer.notes)


def test_torch_npu_is_answered_by_the_index_alone(fake_gh: Callable[[str], Path], server: Server) -> None:
    log = fake_gh("echo '" + json.dumps([entry("v7.3.0")]) + "'")
    server.index("torch-npu", ("2.9.0", "2026-01-01", False))
    for source in ("auto", "gh"):
        answer = releases.find("torch-npu", source, rest_url=server.url)
        assert answer.source == "index"
        assert answer.releases[0].version == "2.9.0"
        assert "name no torch-npu version" in answer.passed_over["gh"]
    assert not log.exists()


def test_nobody_answered_is_blocked_with_what_to_try(no_gh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    answers = releases.find_all(rest_url=NOWHERE)
    with pytest.raises(Blocked) as caught:
        releases.refuse_if_silent(answers)
    assert "gh is not installed" in caught.value.what
    assert "--repo" in caught.value.try_


def test_one_answer_is_enough_to_go_on() -> None:
    published = [Published("0.1.0", None, False)]
    releases.refuse_if_silent(
        {"vllm": releases.Answer("vllm", "git", "x", published), "x": releases.Answer("x")}
    )


@pytest.mark.network
def test_the_real_index_knows_all_four_projects() -> None:
    answers = releases.find_all("index")
    assert {name: answer.source for name, answer in answers.items()} == dict.fromkeys(
        releases.REPOSITORIES, "index"
    )
    ascend = answers["vllm-ascend"]
    assert {"0.18.0", "0.30.0rc2"} <= {r.version for r in ascend.releases}
    assert all(r.date for r in ascend.releases)
