"""Delivering a job again keeps it one commit, and rewrites nothing of others."""

from __future__ import annotations

from functools import partial

import pytest
from deliver_support import BRANCH, NEW, OTHER, RUNNER, Upgrade, git, write

from npu_upgrade.evidence.surroundings import utc_now
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job import journal
from npu_upgrade.job.job import open_job
from npu_upgrade.job.journal import Answer, Skipped
from npu_upgrade.job.stages import Stage, State
from npu_upgrade.job.upgrade import walk


def review_edit(upgrade: Upgrade, text: str = "NAME = 'reviewed'\n") -> None:
    write(upgrade.repo, RUNNER, text)
    upgrade.record_all()


def commits(upgrade: Upgrade) -> int:
    return int(git(upgrade.repo, "rev-list", "--count", "main..HEAD"))


def test_nothing_changed_means_nothing_is_made(upgrade, deliver):
    first = deliver()[1]
    code, second = deliver()
    assert code == 0
    assert second["new"] is False
    assert second["commit"] == first["commit"] == upgrade.head()


def test_review_edits_amend_to_one_commit(upgrade, deliver):
    first = deliver()[1]
    review_edit(upgrade)
    code, result = deliver()
    assert code == 0
    assert result["commit"] != first["commit"]
    assert commits(upgrade) == 1
    assert upgrade.committed() == sorted([NEW, RUNNER])
    assert git(upgrade.repo, "show", f"HEAD:{RUNNER}") == "NAME = 'reviewed'\n"
    assert upgrade.body().count("Signed-off-by:") == 1
    assert upgrade.body().count("Upgrade-Job:") == 1
    assert git(upgrade.repo, "status", "--porcelain") == ""
    assert open_job(upgrade.workspace).attempt("deliver").ended.outputs["commit"] == result["commit"]


def test_a_run_that_died_after_the_commit_is_completed(upgrade, deliver):
    first = deliver()[1]["commit"]
    git(upgrade.repo, "read-tree", "HEAD^")  # neither the index nor the job knows of the commit
    open_job(upgrade.workspace).begin("deliver")
    code, result = deliver()
    assert (code, result["commit"], result["new"]) == (0, first, False)
    assert git(upgrade.repo, "status", "--porcelain") == ""
    last = open_job(upgrade.workspace).attempt("deliver")
    assert (last.ended.verdict, last.running, last.interrupted) == ("PASS", False, False)


@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_the_author_and_a_persons_words_stay(upgrade, deliver, gap):
    deliver()
    body = upgrade.body().replace("[NPU] Upgrade to vllm-ascend 0.23.0.post1", "[NPU][Core] Keep up")
    body = body.replace("NPU-Validation", "Why this was hard:\nthe sampler moved.\n\nNPU-Validation")
    body = body.strip() + f"{gap}Reviewed-by: Grace Hopper <grace@example.com>\n"
    git(upgrade.repo, "commit", "-q", "--amend", "--author=Mary <mary@example.com>", "-m", body)
    review_edit(upgrade)
    assert deliver()[0] == 0
    new = upgrade.body()
    assert new.startswith("[NPU][Core] Keep up\n")
    assert "Why this was hard:\nthe sampler moved.\n" in new
    assert new.count("Reviewed-by: Grace Hopper <grace@example.com>") == 1
    assert new.count("Versions:") == new.count("Evidence for") == new.count("Signed-off-by: Ada") == 1
    assert git(upgrade.repo, "show", "-s", "--format=%an", "HEAD").strip() == "Mary"
    assert commits(upgrade) == 1
    assert deliver()[1]["new"] is False


def test_a_new_title_wins_over_the_old(upgrade, deliver):
    deliver()
    assert deliver("--title", "[NPU] Other words")[0] == 0
    assert upgrade.body().startswith("[NPU] Other words\n")
    assert commits(upgrade) == 1


def test_another_committer_signs_off_too(upgrade, deliver):
    deliver()
    git(upgrade.repo, "config", "user.name", "Grace Hopper")
    review_edit(upgrade)
    assert deliver()[0] == 0
    signed = [line for line in upgrade.body().splitlines() if line.startswith("Signed-off-by:")]
    assert signed == [
        "Signed-off-by: Ada Lovelace <ada@example.com>",
        "Signed-off-by: Grace Hopper <ada@example.com>",
    ]


def test_later_evidence_refreshes_the_message_alone(upgrade, deliver):
    deliver()
    tree = git(upgrade.repo, "rev-parse", "HEAD^{tree}")
    real = upgrade.served()
    assert deliver()[1]["new"] is True
    assert deliver()[1]["new"] is False
    assert git(upgrade.repo, "rev-parse", "HEAD^{tree}") == tree
    assert f"{RUNNER} {real.id}" in upgrade.body()
    assert upgrade.body().count(real.id) == 2
    assert "pending" not in upgrade.body()


def test_runs_that_ended_after_the_commit_are_to_be_written_into_it(upgrade, deliver):
    def stage() -> Stage:
        return next(one for one in walk(upgrade.job).stages if one.name == "deliver")

    upgrade.record("emulate", "emulated dry-run", data={"pending": ["graph ar", "eager talker"]})
    deliver()
    assert stage().state is State.DONE
    upgrade.record("emulate", "emulated dry-run", data={"pending": ["eager talker"]})
    assert stage().state is State.STALE
    assert deliver()[1]["new"] is True
    assert stage().state is State.DONE
    assert "graph ar" not in upgrade.body()


def test_answers_that_came_after_the_commit_are_to_be_written_into_it(upgrade, deliver, monkeypatch):
    def stage() -> Stage:
        return next(one for one in walk(upgrade.job).stages if one.name == "deliver")

    def answer(name: str, note: str) -> None:
        upgrade.job.journal.add(Answer, id=name, how="accept", stage="look", note=note)

    answer("flag-1", "it is the same")
    deliver()
    assert stage().state is State.DONE
    monkeypatch.setattr(journal, "utc_now", lambda: "2999-01-01T00:00:00Z")
    answer("flag-2", "")
    assert stage().state is State.DONE, "it says nothing for the commit"
    answer("flag-2", "it is otherwise")
    assert (stage().state, stage().said) == (
        State.STALE,
        "1 answer came after the commit; write what they say into it",
    )
    deliver()
    assert stage().state is State.DONE


def test_what_to_wait_for_and_what_nothing_showed_is_said_with_the_commit(upgrade, deliver):
    silent = "pipelines speech: LAG, its sound has another length"
    upgrade.record("emulate", "emulated dry-run", data={"pending": ["graph ar", silent]})
    said = deliver()[1]
    assert said["summary"].endswith("; 1 emulated run is pending: wait for them")
    assert (said["next"].split()[:3], said["not_shown"]) == (["upgrade.py", "emulate", "--rest"], [silent])
    upgrade.record("emulate", "emulated dry-run", data={"pending": []})
    said = deliver()[1]
    assert ("not_shown" in said, "emulate" in said["next"]) == (False, False)


def test_a_failed_run_passes_on_the_word_of_a_person_who_knew_of_it(upgrade, deliver):
    failed = partial(upgrade.record, "emulate", "emulated dry-run", Verdict.FAIL, {"failing": ["eager ar"]})
    upgrade.job.journal.add(Skipped, id="emulate", note="no time")
    failed(started=utc_now(), seconds=60)
    code, said = deliver()
    assert code == 2
    assert "next --skip emulate --note WHY" in said["try"]
    failed()
    upgrade.job.journal.add(Skipped, id="emulate", note="the reference is wrong")
    assert deliver()[0] == 0
    title, _, rest = upgrade.body().partition("Failed on the emulated NPU, and ruled wrong by a person")
    assert "- eager ar: the reference is wrong" in rest
    assert "emulate FAIL" in rest
    assert "Left out" not in title + rest


def test_no_other_failed_gate_passes_on_the_word_of_a_person(upgrade, deliver):
    upgrade.record("audit", verdict=Verdict.FAIL)
    upgrade.job.journal.add(Skipped, id="emulate", note="the reference is wrong")
    assert deliver()[0] == 2


def test_it_says_how_the_commit_is_signed(upgrade, deliver):
    result = deliver()[1]
    assert (result["signed_off"], result["gpg_signed"]) == (True, False)


def test_validation_of_the_old_content_is_pending_again(upgrade, deliver):
    upgrade.served()
    deliver()
    review_edit(upgrade)
    assert deliver()[0] == 0
    assert "NPU-Validation: pending" in upgrade.body()


def test_a_file_taken_back_leaves_the_commit(upgrade, deliver):
    deliver()
    review_edit(upgrade, f"NAME = {RUNNER!r}\n")
    assert deliver()[0] == 0
    assert upgrade.committed() == [NEW]


def test_pushed_is_said_and_still_done(upgrade, deliver, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "origin.git")
    git(upgrade.repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    deliver()
    git(upgrade.repo, "push", "-q", "-u", "origin", BRANCH)
    assert deliver()[1]["new"] is False
    review_edit(upgrade)
    code, result = deliver()
    assert code == 0
    assert result["pushed_before"] == [f"origin/{BRANCH}"]
    assert "--force-with-lease" in result["summary"]
    assert result["next"] == f"git -C {upgrade.repo} push --force-with-lease origin {BRANCH}"
    git(upgrade.repo, "push", "-q", "--force-with-lease", "origin", BRANCH)
    assert commits(upgrade) == 1


def test_commits_on_top(upgrade, deliver, refused):
    sha = deliver()[1]["commit"]
    write(upgrade.repo, OTHER, "MORE = 1\n")
    git(upgrade.repo, "commit", "-qam", "[Core] More")
    review_edit(upgrade)
    assert f"commits were made on top of {sha[:12]}" in refused()


@pytest.mark.parametrize("where", ["refs/heads/main", "refs/heads/backup", "refs/remotes/origin/main"])
def test_merged_elsewhere(upgrade, deliver, refused, where):
    deliver()
    git(upgrade.repo, "update-ref", where, "HEAD")
    review_edit(upgrade)
    assert f"is already in {where.split('/', 2)[2]}" in refused()


def test_foreign_files_amended_into_the_delivery(upgrade, deliver, refused):
    deliver()
    write(upgrade.repo, OTHER, "MORE = 1\n")
    git(upgrade.repo, "commit", "-qa", "--amend", "--no-edit")
    review_edit(upgrade)
    assert f"also changes {OTHER}" in refused()


def test_a_commit_that_only_mentions_the_job_is_not_the_delivery(upgrade, deliver):
    write(upgrade.repo, OTHER, "MORE = 1\n")
    message = f"[Core] Prepare\n\nUpgrade-Job: {upgrade.job.id} comes next.\n\nNothing else."
    git(upgrade.repo, "commit", "-qm", message, OTHER)
    assert deliver()[0] == 0
    assert commits(upgrade) == 2


def test_another_jobs_delivery_below_is_left_alone(upgrade, deliver):
    write(upgrade.repo, OTHER, "MORE = 1\n")
    git(upgrade.repo, "commit", "-qm", f"[NPU] Earlier\n\nUpgrade-Job: {upgrade.job.id}-2", OTHER)
    below = upgrade.head()
    assert deliver()[0] == 0
    assert git(upgrade.repo, "rev-parse", "HEAD^").strip() == below
