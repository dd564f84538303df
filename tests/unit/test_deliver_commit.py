"""Delivery makes exactly one signed-off commit of the reviewed files, or nothing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from deliver_support import BRANCH, NEW, OTHER, RUNNER, Upgrade, add_hook, git, make_upgrade, snapshot, write

from npu_upgrade.cli import main as cli
from npu_upgrade.delivery.upgrade import carry_out, prepare
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.answer import by_word
from npu_upgrade.job.ask import CORRECTED, WAIVE, Ask
from npu_upgrade.job.job import open_job
from npu_upgrade.job.journal import Answer, Attempt
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.job.upgrade import walk


def test_one_signed_off_commit_of_exactly_the_changed_files(upgrade, deliver):
    before = upgrade.head()
    code, result = deliver()
    assert code == 0, result
    assert git(upgrade.repo, "rev-parse", "HEAD^").strip() == before
    assert upgrade.committed() == sorted([NEW, RUNNER])
    assert git(upgrade.repo, "status", "--porcelain") == ""
    body = upgrade.body().strip().splitlines()
    assert body[0] == "[NPU] Upgrade to vllm-ascend 0.23.0.post1"
    assert body[-3:] == [
        "NPU-Validation: pending",
        f"Upgrade-Job: {upgrade.job.id}",
        "Signed-off-by: Ada Lovelace <ada@example.com>",
    ]
    assert "- vllm-ascend 0.22.1rc1 (bbbbbbbbbbbb) -> 0.23.0.post1 (aaaaaaaaaaaa)" in body
    assert "- 2 methods: 1 merged, 1 ours" in body
    assert "- port-1: gpu port: new sampler" in body
    assert "- port-3: gpu port: not for NPU" in body
    assert any(line.startswith("- static: plan PASS (record ") for line in body)
    ended = open_job(upgrade.workspace).attempt("deliver").ended
    assert (ended.verdict, ended.outputs["commit"]) == ("PASS", result["commit"])
    assert "validation on NPU hardware is pending" in result["summary"]


def test_the_message_says_nothing_twice(upgrade, deliver):
    item = {"id": "flag-callee-1a2b", "kind": "flag-callee", "path": RUNNER, "state": "open"}
    upgrade.write_plan(
        methods=[{"name": "execute_model", "outcome": "conflict"}],
        items=[item | {"title": f"{RUNNER}: Runner.run: look at the call"}],
    )
    upgrade.record_all()
    assert deliver()[0] == 0
    body = git(upgrade.repo, "log", "-1", "--format=%B").splitlines()
    assert "- 1 method: 1 with conflicts resolved" in body
    assert "- flag-callee-1a2b: Runner.run: look at the call" in body


def test_the_checkout_names_the_job_where_the_present_folder_has_none(tmp_path, monkeypatch, capsys):
    upgrade = make_upgrade(tmp_path, monkeypatch)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    upgrade.workspace.joinpath(".npu-upgrade").rename(upgrade.repo / ".npu-upgrade")
    code = cli.main("upgrade.py", "", ["deliver"], ["deliver", "--repo", str(upgrade.repo), "--dry-run"])
    assert (code, json.loads(capsys.readouterr().out)["job"]) == (0, upgrade.job.id)


def test_unrelated_work_of_the_person_stays_theirs(upgrade, deliver):
    write(upgrade.repo, OTHER, "MINE = 1\n")
    write(upgrade.repo, "notes.txt", "mine\n")
    write(upgrade.repo, "later.py", "x = 1\n")
    git(upgrade.repo, "add", "-N", "later.py")
    assert deliver()[0] == 0
    assert upgrade.committed() == sorted([NEW, RUNNER])
    status = git(upgrade.repo, "status", "--porcelain").splitlines()
    assert sorted(status) == [" A later.py", f" M {OTHER}", "?? notes.txt"]


def test_the_working_tree_counts_not_an_older_staged_version(upgrade, deliver):
    reviewed = (upgrade.repo / RUNNER).read_text()
    write(upgrade.repo, RUNNER, "NAME = 'older'\n")
    git(upgrade.repo, "add", RUNNER)
    git(upgrade.repo, "update-index", "--assume-unchanged", RUNNER)
    write(upgrade.repo, RUNNER, reviewed)
    assert deliver()[0] == 0
    assert git(upgrade.repo, "show", f"HEAD:{RUNNER}") == reviewed


def test_a_file_the_upgrade_deletes_is_deleted(upgrade, deliver):
    files = upgrade.plan["files"]
    upgrade.write_plan(files=[*files, {"path": OTHER, "sha256_merged": None, "sha256_ours": "0" * 64}])
    (upgrade.repo / OTHER).unlink()
    upgrade.record_all()
    assert deliver()[0] == 0
    assert git(upgrade.repo, "diff", "--name-status", "HEAD^", "HEAD", "--", OTHER).startswith("D")


def test_an_executable_file_keeps_its_bit(upgrade, deliver):
    (upgrade.repo / NEW).chmod(0o755)
    assert deliver()[0] == 0
    assert git(upgrade.repo, "ls-tree", "HEAD", NEW).startswith("100755")


def test_modes_are_those_of_the_history_where_the_file_system_has_none(upgrade, deliver):
    git(upgrade.repo, "stash", "-u", "-q")
    git(upgrade.repo, "update-index", "--chmod=+x", RUNNER)
    git(upgrade.repo, "commit", "-qm", "[Misc] Make it a script")
    git(upgrade.repo, "config", "core.fileMode", "false")
    git(upgrade.repo, "stash", "pop", "-q")
    (upgrade.repo / RUNNER).chmod(0o644)
    (upgrade.repo / NEW).chmod(0o755)
    assert deliver()[0] == 0
    assert git(upgrade.repo, "ls-tree", "HEAD", RUNNER).startswith("100755")
    assert git(upgrade.repo, "ls-tree", "HEAD", NEW).startswith("100644")
    assert deliver()[1]["new"] is False


def test_a_sparse_checkout_stays_sparse(upgrade, deliver):
    git(upgrade.repo, "stash", "-u", "-q")
    write(upgrade.repo, "assets/large.txt", "large\n")
    git(upgrade.repo, "add", "assets")
    git(upgrade.repo, "commit", "-qm", "[Misc] Assets")
    git(upgrade.repo, "sparse-checkout", "set", "--sparse-index", "vllm_omni")
    git(upgrade.repo, "stash", "pop", "-q")
    assert deliver()[0] == 0
    assert upgrade.committed() == sorted([NEW, RUNNER])
    assert git(upgrade.repo, "status", "--porcelain") == ""
    assert "assets/" in git(upgrade.repo, "ls-files", "--sparse").splitlines()


def test_an_edit_that_only_the_time_of_the_index_gives_away_is_seen(upgrade, deliver):
    """The same size and the same second: git reads the file because its index is not newer."""
    runner, index = upgrade.repo / RUNNER, upgrade.repo / ".git/index"
    git(upgrade.repo, "config", "core.trustctime", "false")
    os.utime(runner, (1000, 1000))
    git(upgrade.repo, "add", RUNNER)
    runner.write_text("NAME = 'UPGRADED'\n")
    for path in (runner, index):
        os.utime(path, (1000, 1000))
    upgrade.record_all()
    assert deliver()[0] == 0
    assert git(upgrade.repo, "show", f"HEAD:{RUNNER}") == "NAME = 'UPGRADED'\n"


def test_dry_run_shows_and_changes_nothing(upgrade, deliver):
    before = snapshot(upgrade.repo)
    code, result = deliver("--dry-run")
    assert code == 0
    assert snapshot(upgrade.repo) == before
    assert result["files"] == sorted([NEW, RUNNER])
    assert result["message"].startswith("[NPU] Upgrade to vllm-ascend 0.23.0.post1\n\nVersions:\n")
    assert open_job(upgrade.workspace).attempt("deliver") == Attempt(None, None, 0)
    assert cli.main("upgrade.py", "", ["deliver"], shlex.split(result["next"])[1:]) == 0
    assert upgrade.body().strip().startswith(result["message"].strip())


def test_npu_evidence_for_this_tree_replaces_pending(upgrade, deliver):
    upgrade.record("serve", "NPU dummy")
    real = upgrade.served()
    code, result = deliver()
    assert code == 0
    trailer = git(upgrade.repo, "log", "-1", "--format=%(trailers:key=NPU-Validation,unfold)").strip()
    assert trailer == f"NPU-Validation: {NEW} {real.id}; {RUNNER} {real.id}"
    assert "pending" not in result["summary"]


def test_dummy_weights_and_a_blocked_run_validate_nothing(upgrade, deliver):
    upgrade.served(label="NPU dummy")
    upgrade.served(verdict=Verdict.BLOCKED)
    upgrade.served(label="emulated dry-run", device="npu emulated")
    assert deliver()[0] == 0
    assert "NPU-Validation: pending" in upgrade.body()


def test_a_shell_in_the_title_is_text(upgrade, deliver):
    title = "[NPU] Upgrade $(touch owned) `touch owned` 'now' \"then\" #1"
    assert deliver("--title", title)[0] == 0
    assert upgrade.body().splitlines()[0] == title
    assert not (upgrade.repo / "owned").exists()


def test_hooks_run_on_the_reviewed_content_with_their_globs_working(upgrade, deliver):
    write(upgrade.repo, OTHER, "UNRELATED = 1\n")
    add_hook(upgrade.repo, "pre-commit", "git diff --cached --name-only -- '*.py' > .git/seen")
    assert deliver()[0] == 0
    assert (upgrade.repo / ".git/seen").read_text().split() == sorted([NEW, RUNNER])


def test_a_hook_that_refuses_is_a_fail_with_nothing_changed(upgrade, deliver):
    add_hook(upgrade.repo, "pre-commit", "echo line too long >&2; exit 1")
    before = snapshot(upgrade.repo)
    code, result = deliver()
    assert (code, result["verdict"]) == (1, "FAIL")
    assert "line too long" in result["hook_output"]
    assert snapshot(upgrade.repo) == before
    assert open_job(upgrade.workspace).attempt("deliver").ended.verdict == "FAIL"


@pytest.mark.parametrize("ending", ["exit 1", "git add -A; exit 1", "exit 0", "git add -A; exit 0"])
def test_a_hook_that_rewrites_is_a_fail_and_its_files_are_kept(upgrade, deliver, ending):
    add_hook(upgrade.repo, "pre-commit", f"echo 'STYLE = 1' >> {RUNNER}\n{ending}")
    before = snapshot(upgrade.repo)
    code, result = deliver()
    assert code == 1
    assert RUNNER in result["summary"]
    after = snapshot(upgrade.repo)
    assert (after["refs"], after["head"], after["index"]) == (before["refs"], before["head"], before["index"])
    assert (upgrade.repo / RUNNER).read_text() == "NAME = 'upgraded'\nSTYLE = 1\n"
    assert deliver()[1]["error"].startswith("gate plan judged other contents")


def test_a_hook_that_adds_a_file_to_the_commit_is_a_fail(upgrade, deliver):
    write(upgrade.repo, "secret.txt", "mine\n")
    add_hook(upgrade.repo, "pre-commit", "git add secret.txt")
    before = snapshot(upgrade.repo)
    assert deliver()[0] == 1
    assert snapshot(upgrade.repo) == before


def test_a_commit_message_hook_may_add_to_the_message(upgrade, deliver):
    add_hook(upgrade.repo, "commit-msg", 'grep -q Change-Id "$1" || echo "Change-Id: I123" >> "$1"')
    assert deliver()[0] == 0
    assert deliver()[0] == 0
    assert upgrade.body().count("Change-Id: I123") == 1
    assert upgrade.body().count("Signed-off-by:") == 1
    assert deliver()[1]["new"] is False


@pytest.fixture
def signing_key(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def _raw(upgrade: Upgrade) -> str:
    return git(upgrade.repo, "cat-file", "commit", "HEAD").split("\n\n", 1)[0]


def test_signs_by_itself_when_a_key_is_configured(upgrade, deliver, signing_key):
    git(upgrade.repo, "config", "gpg.format", "ssh")
    git(upgrade.repo, "config", "user.signingkey", str(signing_key))
    assert deliver()[0] == 0
    assert "BEGIN SSH SIGNATURE" in _raw(upgrade)


def test_no_key_no_signature(upgrade, deliver):
    assert deliver()[0] == 0
    assert "gpgsig" not in _raw(upgrade)


def test_no_sign_wins_over_the_configuration(upgrade, deliver, signing_key):
    git(upgrade.repo, "config", "gpg.format", "ssh")
    git(upgrade.repo, "config", "user.signingkey", str(signing_key))
    git(upgrade.repo, "config", "commit.gpgsign", "true")
    assert deliver("--no-sign")[0] == 0
    assert "gpgsig" not in _raw(upgrade)


def test_asking_for_a_signature_later_signs_the_same_delivery(upgrade, deliver, signing_key):
    assert deliver("--no-sign")[0] == 0
    git(upgrade.repo, "config", "gpg.format", "ssh")
    git(upgrade.repo, "config", "user.signingkey", str(signing_key))
    assert deliver("--sign")[1]["new"] is True
    assert "BEGIN SSH SIGNATURE" in _raw(upgrade)
    assert git(upgrade.repo, "rev-list", "--count", "main..HEAD").strip() == "1"


def test_a_failing_signature_blocks_with_gits_words_and_changes_nothing(upgrade, deliver, tmp_path):
    git(upgrade.repo, "config", "gpg.format", "ssh")
    git(upgrade.repo, "config", "user.signingkey", str(tmp_path / "no-such-key"))
    before = snapshot(upgrade.repo)
    code, result = deliver()
    assert (code, result["verdict"]) == (3, "BLOCKED")
    assert "no-such-key" in result["error"]
    assert "--no-sign" in result["try"]
    assert snapshot(upgrade.repo) == before


def test_a_locked_key_blocks_instead_of_asking(upgrade, deliver, tmp_path):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)], check=True)
    git(upgrade.repo, "config", "gpg.format", "ssh")
    git(upgrade.repo, "config", "user.signingkey", str(key))
    before = snapshot(upgrade.repo)
    assert deliver()[0] == 3
    assert snapshot(upgrade.repo) == before


def test_a_commit_made_meanwhile_is_not_amended(upgrade, deliver):
    assert deliver()[0] == 0
    upgrade.record("audit")
    delivery = prepare(upgrade.job, upgrade.repo, None)
    write(upgrade.repo, OTHER, "MORE = 1\n")
    git(upgrade.repo, "commit", "-qam", "[Core] More")
    before = snapshot(upgrade.repo)
    with pytest.raises(Blocked, match="moved while"):
        carry_out(upgrade.job, delivery, sign=None)
    assert snapshot(upgrade.repo) == before


def test_next_pushes_to_the_remote_there_is(upgrade, deliver, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "fork.git")
    git(upgrade.repo, "remote", "add", "fork", str(tmp_path / "fork.git"))
    assert deliver()[1]["next"] == f"git -C {upgrade.repo} push -u fork {BRANCH}"


def test_the_pull_request_of_an_upgrade(upgrade, deliver, gh, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "fork.git")
    git(upgrade.repo, "remote", "add", "origin", str(tmp_path / "fork.git"))
    template = "## Purpose\n## What changed\n## Test plan\n## User-facing change\n"
    write(upgrade.repo, ".github/PULL_REQUEST_TEMPLATE.md", template)
    code, result = deliver("--pr")
    assert (code, result["pull_request"]) == (0, "https://example.com/pr/7")
    ((_, body),) = gh.calls("pr", "create")
    parts = dict(part.split("\n\n", 1) for part in body.strip().split("## ")[1:])
    assert parts["What changed"].startswith("Versions:")
    assert "plan PASS" in parts["Test plan"]
    assert "validation on NPU hardware is pending" in parts["Test plan"]
    assert "newer vllm-ascend" in parts["User-facing change"]
    assert git(tmp_path / "fork.git", "rev-parse", BRANCH).strip() == result["commit"]


def test_works_in_a_linked_worktree(upgrade, deliver, tmp_path, capsys):
    linked = tmp_path / "linked"
    git(upgrade.repo, "stash", "-u", "-q")
    git(upgrade.repo, "switch", "-q", "main")
    git(upgrade.repo, "worktree", "add", "-q", str(linked), BRANCH)
    git(linked, "stash", "pop", "-q")
    argv = ["deliver", "--repo", str(linked), "--workspace", str(upgrade.workspace)]
    assert cli.main("upgrade.py", "", ["deliver"], argv) == 0
    assert git(linked, "status", "--porcelain") == ""


def test_the_result_of_a_fail_is_in_the_job_as_such(upgrade, deliver):
    add_hook(upgrade.repo, "commit-msg", "exit 1")
    assert deliver()[0] == 1
    assert open_job(upgrade.workspace).attempt("deliver").ended.verdict == Verdict.FAIL.value


def test_a_killed_delivery_leaves_everything_and_is_told_as_interrupted(upgrade, tmp_path):
    add_hook(upgrade.repo, "pre-commit", f"touch {tmp_path}/started; sleep 60")
    before = snapshot(upgrade.repo)
    argv = ["upgrade.py", "deliver", "--repo", str(upgrade.repo), "--workspace", str(upgrade.workspace)]
    code = f"import sys; sys.argv = {argv}; from npu_upgrade.cli.main import main; "
    code += "main('upgrade.py', '', ['deliver'])"
    scripts = Path(cli.__file__).parents[2]
    child = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(scripts)})
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    below = psutil.Process(child.pid).children(recursive=True)
    child.kill()
    for one in below:
        one.kill()
    child.wait()
    assert snapshot(upgrade.repo) == before
    stages = {stage.name: stage for stage in walk(open_job(upgrade.workspace)).stages}
    assert (stages["deliver"].state, stages["deliver"].command.argv) == ("interrupted", argv)


def test_a_file_is_taken_that_was_corrected_for_a_finding_and_none_that_was_waived(upgrade: Upgrade, deliver):
    upgrade.record_all()
    record = upgrade.record("audit", verdict=Verdict.FAIL)
    how = (CORRECTED, WAIVE)
    found = Ask("finding", "imports-0123456789", "a class is gone", OTHER, how=how, evidence=record.id)
    assert (
        "nothing was corrected"
        in by_word(upgrade.job, found, "accept", "the class is here now", "").problems[0]
    )
    write(upgrade.repo, OTHER, "NAME = 'corrected by hand'\n")
    upgrade.job.journal.add(Answer, id="imports-1", how="waive", stage="finding", path=OTHER)
    assert OTHER not in load_plan(upgrade.job).further
    assert by_word(upgrade.job, found, "accept", "the class is here now", "").problems == []
    upgrade.record_all()
    assert deliver()[0] == 0
    assert OTHER in git(upgrade.repo, "show", "--name-only", "--format=", "HEAD").split()
