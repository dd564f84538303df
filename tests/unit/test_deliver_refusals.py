"""Whatever delivery refuses, HEAD, the index and the working tree are byte for byte as before."""

from __future__ import annotations

import os

import pytest
from deliver_support import ASCEND, BRANCH, NEW, OTHER, RUNNER, WORKER, git, snapshot, write

from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.job import open_job, start_job


@pytest.mark.parametrize("marker", ["<<<<<<< ours", ">>>>>>> theirs", "||||||| base", "<<<<<<<"])
def test_conflict_marker(upgrade, refused, marker):
    write(upgrade.repo, RUNNER, f'"""\n{marker}\n"""\n')
    upgrade.record_all()
    assert f"{RUNNER} line 2 still has a conflict marker" in refused()


def test_a_heading_underline_is_no_conflict_marker(upgrade, deliver):
    write(upgrade.repo, RUNNER, '"""\nHeading\n=======\nx << 7\n"""\n')
    upgrade.record_all()
    assert deliver()[0] == 0


def test_staged_change_to_another_file(upgrade, refused):
    write(upgrade.repo, OTHER, "MINE = 1\n")
    git(upgrade.repo, "add", OTHER)
    said = refused()
    assert f"other changes are staged: {OTHER}" in said
    assert f"git restore --staged {OTHER}" in said


def test_staged_removal_and_new_file_of_others(upgrade, refused):
    write(upgrade.repo, "extra.py", "x = 1\n")
    git(upgrade.repo, "add", "extra.py")
    git(upgrade.repo, "rm", "-q", "--cached", OTHER)
    assert f"extra.py, {OTHER}" in refused()


@pytest.mark.parametrize("key", ["user.name", "user.email"])
def test_no_identity(upgrade, refused, key, monkeypatch):
    git(upgrade.repo, "config", "--unset", key)
    assert "git does not know who commits" in refused()


def test_an_identity_from_the_environment_will_do(upgrade, deliver, monkeypatch):
    git(upgrade.repo, "config", "--unset", "user.name")
    git(upgrade.repo, "config", "--unset", "user.email")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Grace Hopper")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "grace@example.com")
    assert deliver()[0] == 0
    assert upgrade.body().strip().endswith("Signed-off-by: Grace Hopper <grace@example.com>")


def test_detached_head(upgrade, refused):
    git(upgrade.repo, "checkout", "-q", "--detach")
    assert f"HEAD is detached, so no branch would hold the commit / git switch {BRANCH}" in refused()


def test_default_branch(upgrade, refused):
    git(upgrade.repo, "switch", "-q", "main")
    assert f"HEAD is on the default branch main / git switch {BRANCH}" in refused()


def test_default_branch_as_the_remote_calls_it(upgrade, refused):
    git(upgrade.repo, "switch", "-q", "-c", "develop")
    git(upgrade.repo, "update-ref", "refs/remotes/origin/develop", "HEAD")
    git(upgrade.repo, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/develop")
    assert "default branch develop" in refused()


def test_default_branch_when_the_job_is_for_it(upgrade, deliver):
    git(upgrade.repo, "switch", "-q", "main")
    open_job(upgrade.workspace).place(branch="main")
    assert deliver()[0] == 0


@pytest.mark.parametrize(
    ("name", "operation"),
    [("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")],
)
def test_operation_in_progress(upgrade, refused, name, operation):
    (upgrade.repo / ".git" / name).write_text(upgrade.head() + "\n")
    assert f"a {operation} is in progress" in refused()


def test_real_rebase_in_progress(upgrade, refused):
    git(upgrade.repo, "stash", "-u", "-q")
    write(upgrade.repo, OTHER, "ONE = 1\n")
    git(upgrade.repo, "commit", "-qam", "one")
    git(upgrade.repo, "-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "main")
    assert "a rebase is in progress" in refused()


def test_index_lock(upgrade, deliver):
    lock = upgrade.repo / ".git/index.lock"
    lock.write_bytes(b"")
    before = snapshot(upgrade.repo)
    code, result = deliver()
    assert code == 2
    assert "is locked" in result["error"]
    assert str(lock) in result["try"]
    assert snapshot(upgrade.repo) == before
    assert lock.exists()


def test_no_evidence(upgrade, refused):
    for name in ("evidence.jsonl", "evidence.head"):
        (upgrade.job.store.folder / name).unlink()
    assert "gate plan has no evidence / upgrade.py next --run" in refused()


def test_evidence_of_other_contents(upgrade, refused):
    write(upgrade.repo, RUNNER, "NAME = 'edited after the check'\n")
    assert "gate plan judged other contents of these files" in refused()


def test_evidence_covers_files_the_upgrade_left_alone(upgrade, refused):
    write(upgrade.repo, WORKER, "NAME = 'edited after the check'\n")
    assert "gate plan judged other contents of these files" in refused()


def test_evidence_of_other_contents_counts_again_when_they_come_back(upgrade, deliver):
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    upgrade.record(verdict=Verdict.FAIL)
    write(upgrade.repo, RUNNER, "NAME = 'upgraded'\n")
    assert deliver()[0] == 0


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.BLOCKED, Verdict.INCONCLUSIVE])
def test_newest_plan_verdict_is_no_pass(upgrade, refused, verdict):
    upgrade.record(verdict=verdict)
    assert "plan" in refused()


def test_plan_evidence_with_another_label(upgrade, refused):
    for name in ("evidence.jsonl", "evidence.head"):
        (upgrade.job.store.folder / name).unlink()
    upgrade.record(label="CPU dummy")
    assert "gate plan has no evidence" in refused()


def test_another_gate_failed_for_this_tree(upgrade, refused):
    upgrade.record("audit", verdict=Verdict.FAIL)
    assert "gate audit (static) failed for exactly these files: audit said so" in refused()


def test_a_pass_under_another_label_does_not_hide_a_fail(upgrade, refused):
    upgrade.record("serve", "NPU real", Verdict.FAIL)
    upgrade.record("serve", "CPU dummy", Verdict.PASS)
    assert "gate serve (NPU real) failed" in refused()


def test_a_fail_that_was_run_again_and_passed_is_over(upgrade, deliver):
    upgrade.record("audit", verdict=Verdict.FAIL)
    upgrade.record("audit")
    assert deliver()[0] == 0


def test_edited_evidence(upgrade, refused):
    upgrade.record("audit", verdict=Verdict.FAIL)
    ledger = upgrade.job.store.folder / "evidence.jsonl"
    ledger.write_text(ledger.read_text().replace('"FAIL"', '"PASS"'))
    assert "cannot be trusted: line 3 was changed" in refused()


def test_removed_fail(upgrade, refused):
    upgrade.record("audit", verdict=Verdict.FAIL)
    ledger = upgrade.job.store.folder / "evidence.jsonl"
    ledger.write_text(ledger.read_text().splitlines(keepends=True)[0])
    assert "cannot be trusted: its newest records were removed" in refused()


def test_torn_newest_record_until_its_gate_ran_again(upgrade, refused, deliver):
    with (upgrade.job.store.folder / "evidence.jsonl").open("a") as stream:
        stream.write('{"command":["upgrade.py","audit"],"verd')
    assert "half-written" in refused()
    upgrade.record("audit")
    assert deliver()[0] == 0


def test_open_conflicts(upgrade, refused):
    upgrade.write_plan(conflicts_open=2)
    assert "2 conflicts are open" in refused()


def test_a_file_that_does_not_parse(upgrade, refused):
    write(upgrade.repo, RUNNER, "def broken(:\n")
    upgrade.record_all()
    assert f"{RUNNER} does not parse" in refused()


def test_nothing_to_commit(upgrade, refused):
    git(upgrade.repo, "checkout", "-q", "--", ".")
    (upgrade.repo / NEW).unlink()
    files = [entry for entry in upgrade.plan["files"] if entry["path"] != NEW]
    upgrade.write_plan(files=files)
    upgrade.record_all()
    assert "nothing to commit" in refused()


def test_missing_plan(upgrade, refused):
    (upgrade.workspace / "out/plan.json").unlink()
    assert "has no plan" in refused()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "npu-upgrade/plan/9"}'])
def test_unreadable_plan(upgrade, refused, text):
    (upgrade.workspace / "out/plan.json").write_text(text)
    assert "cannot read" in refused()


@pytest.mark.parametrize("path", ["../outside.py", "/etc/passwd", ".git/config", "a//b.py", "a\nb.py", ""])
def test_a_path_outside_the_repository(upgrade, refused, path):
    upgrade.write_plan(files=[{"path": path, "sha256_merged": "0" * 64, "sha256_ours": "0" * 64}])
    assert "not a file of the repository" in refused()


def test_a_branch_as_a_version(upgrade, refused):
    upgrade.write_plan(versions=upgrade.plan["versions"] | {"ascend": {"version": "v0.11.0-dev"}})
    assert "ascend is not pinned: version 'v0.11.0-dev'" in refused()


def test_no_repository(upgrade, deliver, tmp_path):
    for path, said in ((tmp_path / "none", "no folder"), (upgrade.workspace, "is not a git checkout")):
        code, result = deliver("--repo", str(path))
        assert code == 2
        assert said in result["error"]


def test_bare_repository(upgrade, deliver, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    code, result = deliver("--repo", str(tmp_path / "bare.git"))
    assert code == 2
    assert "is not a git checkout" in result["error"]


def test_a_folder_inside_a_repository(upgrade, refused):
    assert f"--repo {upgrade.repo}" in refused("--repo", str(upgrade.repo / "vllm_omni"))


def test_no_commit_yet(upgrade, deliver, tmp_path):
    git(tmp_path, "init", "-q", "-b", "new", "empty")
    code, result = deliver("--repo", str(tmp_path / "empty"))
    assert code == 2
    assert "has no commit yet" in result["error"]


def test_a_missing_file(upgrade, refused):
    (upgrade.repo / WORKER).unlink()
    assert f"{WORKER} is missing" in refused()


def test_a_sparse_path(upgrade, refused):
    git(upgrade.repo, "update-index", "--skip-worktree", WORKER)
    (upgrade.repo / WORKER).unlink()
    assert f"{WORKER} is left out by the sparse checkout / git sparse-checkout add" in refused()


def test_a_submodule(upgrade, refused):
    git(upgrade.repo, "stash", "-u", "-q")
    git(upgrade.repo, "update-index", "--add", "--cacheinfo", f"160000,{upgrade.head()},third")
    git(upgrade.repo, "commit", "-qm", "[Misc] submodule")
    git(upgrade.repo, "stash", "pop", "-q")
    (upgrade.repo / "third").mkdir(exist_ok=True)
    inside = {"path": "third/x.py", "sha256_merged": "0" * 64, "sha256_ours": "0" * 64}
    upgrade.write_plan(files=[*upgrade.plan["files"], inside])
    assert "third/x.py is inside a submodule" in refused()


def test_a_link_in_the_place_of_a_file(upgrade, refused, tmp_path):
    write(tmp_path, "elsewhere.py", "x = 1\n")
    (upgrade.repo / RUNNER).unlink()
    (upgrade.repo / RUNNER).symlink_to(tmp_path / "elsewhere.py")
    assert "is a link or a folder" in refused()


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Upgrade to vllm-ascend 0.23.0", "vllm-omni takes a title with one of"),
        ("Upgrade [NPU]", "vllm-omni takes a title with one of"),
        ("[Whatever] Upgrade", "vllm-omni takes a title with one of"),
        ("[NPU] " + "x" * 100, "more than 100"),
        ("[NPU] two\nlines", "one line of printable text"),
        ("  ", "one line of printable text"),
    ],
)
def test_title(upgrade, refused, title, said):
    assert said in refused("--title", title)


def test_another_job(upgrade, refused):
    assert "no job 'other'" in refused("--job", "other")
    assert "no job '../other'" in refused("--job", "../other")


def test_no_job(upgrade, deliver, tmp_path):
    code, result = deliver("--workspace", str(tmp_path))
    assert code == 2
    assert "upgrade.py discover" in result["try"]
    assert not (tmp_path / ".npu-upgrade").exists()


def test_a_job_without_a_merge(upgrade, deliver):
    omni = {"spec": "pypi:vllm-omni==0.21.0", "identity": {"version": "0.21.0"}}
    job = start_job(upgrade.workspace, omni=omni, ascend=ASCEND)
    code, result = deliver("--job", job.id)
    assert code == 2
    assert "has no plan" in result["error"]


def test_without_git(upgrade, refused, deliver, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    code, result = deliver()
    assert (code, result["error"]) == (3, "git is not installed")


MARKER = "# ---- Omni-new ----"


def test_markers_lost_while_their_code_stands(upgrade, refused):
    marked = f"def run():\n    {MARKER}\n    omni()\n    {MARKER}\n    return 1\n"
    write(upgrade.repo, RUNNER, marked)
    git(upgrade.repo, "commit", "-qm", "Mark it", "--", RUNNER)
    write(upgrade.repo, RUNNER, marked.replace(f"    {MARKER}\n", ""))
    upgrade.record_all()
    assert f"{RUNNER} has lost markers of omni code in run" in refused()


def test_a_method_defined_twice(upgrade, refused):
    write(upgrade.repo, RUNNER, "def run():\n    pass\n\n\ndef run():\n    pass\n")
    upgrade.record_all()
    assert f"{RUNNER} defines run twice" in refused()
