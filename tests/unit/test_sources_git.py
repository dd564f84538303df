from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime

import pytest
from sources_kit import commit, git

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.sources.git import Change, Repo, version_of_tag

pytest_plugins = "sources_kit"
pytestmark = pytest.mark.usefixtures("clean_machine")
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def clone(tmp_path):
    """A clone with two commits on main, the first tagged, and a branch."""
    folder = tmp_path / "clone"
    commit(folder, {"a.py": "one\n", "sub/b.py": "b\n"}, "first")
    git(folder, "tag", "v0.1.0rc1")
    git(folder, "branch", "releases/v0.1")
    commit(folder, {"a.py": "two\n"}, "second")
    return folder


@pytest.fixture(params=["work tree", "bare"])
def repo(request, clone, tmp_path):
    if request.param == "work tree":
        return Repo(clone)
    git(tmp_path, "clone", "-q", "--mirror", str(clone), "bare.git")
    return Repo(tmp_path / "bare.git")


def test_refs_become_full_shas(repo, clone):
    first, second = git(clone, "rev-parse", "main~1"), git(clone, "rev-parse", "main")
    for ref in ("v0.1.0rc1", "refs/tags/v0.1.0rc1", "releases/v0.1", "main~1", first, first[:10]):
        assert repo.resolve(ref) == first
    assert repo.resolve("main") == repo.resolve("HEAD") == second


def test_an_annotated_tag_is_its_commit(clone):
    git(clone, "tag", "-a", "-m", "note", "v9", "main")
    assert Repo(clone).resolve("v9") == git(clone, "rev-parse", "main")


def test_a_branch_of_the_remote_is_found(clone, tmp_path):
    git(tmp_path, "clone", "-q", str(clone), "copy")
    assert Repo(tmp_path / "copy").resolve("releases/v0.1") == git(clone, "rev-parse", "releases/v0.1")


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v0.1.0rc1", "0.1.0rc2"),
        ("v0.1.0", "0.1.1"),
        ("0.1.0.post1", "0.1.0.post2"),
        ("v0.2.0.dev4", "0.2.1"),
        ("release", None),
        (None, None),
    ],
)
def test_a_commit_is_built_as_the_next_version_of_the_tag_before_it(tmp_path, tag, version):
    """As setuptools-scm has it, which vLLM and vllm-ascend are built with."""
    folder = tmp_path / "clone"
    commit(folder, {"a.py": "one\n"}, "first")
    if tag:
        git(folder, "tag", tag)
    repo = Repo(folder)
    assert repo.built_version(repo.resolve("main")) == (version and version_of_tag(tag))
    commit(folder, {"a.py": "two\n"}, "second")
    commit(folder, {"a.py": "three\n"}, "third")
    sha = repo.resolve("main")
    assert repo.built_version(sha) == (version and f"{version}.dev2+g{sha[:9]}")


@pytest.mark.parametrize("ref", ["v0.1.0rc2", "0" * 40, "main:a.py", "--all", ""])
def test_an_unknown_ref_is_bad_input(repo, ref):
    with pytest.raises(BadInput, match="no commit"):
        repo.resolve(ref)


def test_the_nearest_refs_are_named(repo):
    with pytest.raises(BadInput) as caught:
        repo.resolve("v0.1.0rc2")
    assert "v0.1.0rc1" in caught.value.expected


def test_what_is_no_clone_is_bad_input(clone, tmp_path):
    (tmp_path / "plain").mkdir()
    for path in (tmp_path / "none", tmp_path / "plain", clone / "a.py"):
        with pytest.raises(BadInput):
            Repo(path)
    with pytest.raises(BadInput, match="not a git repository"):
        Repo(clone / "sub")


def test_files_are_read_at_a_commit(repo):
    sha = repo.resolve("v0.1.0rc1")
    assert repo.read(sha, "a.py") == "one\n"
    assert repo.list(sha) == ["a.py", "sub/b.py"]
    assert repo.list(sha, "sub") == repo.list(sha, "sub/") == ["sub/b.py"]
    assert repo.list(sha, "su") == []
    assert repo.commit_date(sha) == WHEN
    assert repo.describe(sha) == (WHEN, ["v0.1.0rc1"])
    for path in ("none.py", "sub", "../a.py", "/a.py"):
        with pytest.raises(BadInput, match="no file"):
            repo.read(sha, path)


def test_bytes_that_are_no_text_are_bad_input(clone):
    (clone / "x.py").write_bytes(b"\xff\xfe")
    sha = commit(clone, {}, "binary")
    with pytest.raises(BadInput, match=r"x\.py is not UTF-8"):
        Repo(clone).read(sha, "x.py")


def test_links_and_odd_names(clone):
    (clone / "link.py").symlink_to("a.py")
    sha = commit(clone, {"é \t.py": "odd", "quote'\".py": "q"})
    repo = Repo(clone)
    assert repo.list(sha) == ["a.py", "quote'\".py", "sub/b.py", "é \t.py"]
    assert repo.read(sha, "é \t.py") == "odd"


def test_history_is_newest_first_with_one_blob_per_change(clone):
    git(clone, "mv", "a.py", "c.py")
    gone = commit(clone, {}, "moved\x01 away")
    repo = Repo(clone)
    history = repo.file_history("a.py")
    assert [entry.subject for entry in history] == ["moved\x01 away", "second", "first"]
    assert history[0] == Change(gone, WHEN, "moved\x01 away", {"a.py": None})
    texts = repo.blobs(entry.blobs["a.py"] for entry in history if entry.blobs["a.py"])
    assert [texts[entry.blobs["a.py"]] for entry in history[1:]] == ["two\n", "one\n"]
    assert repo.file_history("none.py") == []
    assert [entry.subject for entry in repo.file_history("a.py", ["v0.1.0rc1"])] == ["first"]


def test_history_covers_branches_and_merges_but_no_pull_requests(clone):
    git(clone, "checkout", "-q", "-b", "side", "main~1")
    commit(clone, {"a.py": "side\n"}, "on side")
    git(clone, "checkout", "-q", "main")
    git(clone, "merge", "-q", "-s", "ours", "--no-commit", "side")
    (clone / "a.py").write_text("merged by hand\n")
    commit(clone, {}, "evil merge")
    git(clone, "checkout", "-q", "-b", "pull")
    commit(clone, {"a.py": "proposal\n"}, "a pull request")
    git(clone, "update-ref", "refs/pull/1/head", "pull")
    git(clone, "checkout", "-q", "main")
    git(clone, "branch", "-q", "-D", "pull")
    repo = Repo(clone)
    subjects = {entry.subject: entry.blobs["a.py"] for entry in repo.file_history("a.py")}
    assert set(subjects) == {"first", "second", "on side", "evil merge"}
    assert repo.blobs([subjects["evil merge"]]) == {subjects["evil merge"]: "merged by hand\n"}


def test_history_does_not_depend_on_the_users_settings(clone):
    before = Repo(clone).file_history("a.py")
    settings = {
        "log.showRoot": "false",
        "log.follow": "true",
        "color.ui": "always",
        "log.showSignature": "true",
    }
    for name, value in settings.items():
        git(clone, "config", name, value)
    assert Repo(clone).file_history("a.py") == before


def test_blobs_are_read_in_one_go(clone):
    sha = commit(clone, {"empty.py": "", "odd.py": "blob\n\nx missing\n"})
    repo = Repo(clone)
    blobs = repo.files(sha)
    texts = repo.blobs([*blobs.values(), *blobs.values()])
    assert {path: texts[blob] for path, blob in blobs.items()} == {
        "a.py": "two\n",
        "empty.py": "",
        "odd.py": "blob\n\nx missing\n",
        "sub/b.py": "b\n",
    }
    assert repo.blobs([]) == {}


def test_a_shallow_clone_says_so(clone, tmp_path):
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{clone}", "shallow")
    assert Repo(tmp_path / "shallow").is_shallow
    assert not Repo(clone).is_shallow
    with pytest.raises(BadInput, match="a shallow clone"):
        Repo(tmp_path / "shallow").resolve("v0.1.0rc1")


def test_a_partial_clone_is_blocked_and_fetches_nothing(clone, tmp_path):
    git(clone, "config", "uploadpack.allowFilter", "true")
    git(clone, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{clone}", "partial")
    git(tmp_path / "partial", "config", "protocol.file.allow", "always")
    repo = Repo(tmp_path / "partial")
    started = time.monotonic()
    with pytest.raises(Blocked, match="does not hold everything"):
        repo.read(repo.resolve("main"), "a.py")
    assert time.monotonic() - started < 10
    git(tmp_path / "partial", "cat-file", "-p", "main:a.py")  # git itself would have fetched it


def test_a_missing_object_is_blocked(clone):
    repo = Repo(clone)
    blob = repo.files(repo.resolve("main"))["a.py"]
    (clone / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Blocked, match=blob):
        repo.blob(blob)


def test_nothing_configured_in_the_clone_is_run(clone, tmp_path):
    ran = tmp_path / "ran"
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    command.chmod(0o755)
    (clone / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    sha = commit(clone, {})
    names = ("core.fsmonitor", "core.pager", "diff.external", "filter.evil.clean", "filter.evil.process")
    for name in (*names, "diff.evil.textconv", "gpg.program", "core.sshCommand"):
        git(clone, "config", name, str(command))
    (clone / "a.py").write_text("two\n")
    os.utime(clone / "a.py", (1, 1))
    hook = clone / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(command, hook)
    repo = Repo(clone)
    assert repo.head_and_dirty() == (sha, False)
    repo.file_history("a.py")
    repo.read(sha, "a.py")
    assert not ran.exists()


def test_the_environment_cannot_point_git_elsewhere(clone, tmp_path, monkeypatch):
    commit(tmp_path / "other", {"other.py": ""})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    repo = Repo(clone)
    assert repo.list(repo.resolve("main")) == ["a.py", "sub/b.py"]


def test_without_git_it_is_blocked(clone, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Blocked, match="git is not installed"):
        Repo(clone)
