"""A job's state: found again, saved whole, and honest about a step whose process died."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from deliver_support import ASCEND, BRANCH, NEW, OMNI, RUNNER, Upgrade, git, make_upgrade, run_deliver, write

from npu_upgrade.cli import main as cli
from npu_upgrade.commands.gate_job import begin
from npu_upgrade.commands.serving_arguments import served_job
from npu_upgrade.evidence.chain import OfJob
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.job import Job, find_workspace, open_job, start_job
from npu_upgrade.job.journal import Begun, Skipped
from npu_upgrade.job.plan_file import load_plan


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return start_job(tmp_path, omni=OMNI, ascend=ASCEND, out=tmp_path / "out")


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    return make_upgrade(tmp_path, monkeypatch)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]):
    def call(name: str, workspace: Path, *options: str) -> dict:
        capsys.readouterr()
        words = [name, "--workspace", str(workspace), "--format", "json", *options]
        code = cli.main("upgrade.py", "", [name], words)
        return json.loads(capsys.readouterr().out) | {"code": code}

    return call


def test_the_id_says_the_versions(job):
    assert job.id == "upgrade-omni-0.22.0-ascend-0.23.0.post1"
    by_sha = {"spec": "git:/x/y@" + "c" * 40, "identity": {"sha": "c" * 40, "version": None}}
    assert start_job(job.workspace, omni=OMNI, ascend=by_sha).id == "upgrade-omni-0.22.0-ascend-cccccccccccc"
    folder = {"spec": "dir:/some where/My Omni", "identity": {"version": None}}
    assert start_job(job.workspace, omni=folder, ascend=ASCEND).id.startswith("upgrade-omni-my-omni-")


def test_the_same_inputs_are_the_same_job(job):
    job.begin("merge")
    job.finish("merge", Verdict.PASS, "merged")
    again = {**ASCEND, "identity": ASCEND["identity"] | {"requested": "another spelling"}}
    found = start_job(job.workspace, omni=OMNI, ascend=again)
    assert (found.id, found.attempt("merge").ended.summary, found.out) == (job.id, "merged", job.out)


def test_other_inputs_with_the_same_versions_are_another_job(job):
    base = {"spec": "pypi:vllm-ascend==0.22.1rc1", "identity": {"version": "0.22.1rc1"}}
    other = start_job(job.workspace, omni=OMNI, ascend=ASCEND, base=base)
    assert other.id.startswith(job.id + "-")
    assert start_job(job.workspace, omni=OMNI, ascend=ASCEND, base=base).id == other.id
    assert open_job(job.workspace).id == other.id
    assert open_job(job.workspace, job.id).id == job.id


def test_a_stage_is_noted_as_it_begins_and_ends(job):
    job.begin("merge", ["upgrade.py", "merge"])
    attempt = open_job(job.workspace).attempt("merge")
    assert (attempt.running, attempt.interrupted, attempt.begun.pid) == (True, False, os.getpid())
    job.finish("merge", Verdict.FAIL, "3 conflicts", {"plan": Path("/x").name})
    attempt = open_job(job.workspace).attempt("merge")
    assert (attempt.running, attempt.ended.verdict, attempt.ended.summary) == (False, "FAIL", "3 conflicts")
    assert (attempt.begun.command, attempt.tries) == (["upgrade.py", "merge"], 0)


def test_changed_outputs_undo_the_later_stages_same_outputs_do_not(job):
    for name in ("merge", "plan", "deliver"):
        job.finish(name, Verdict.PASS, "ok", {"tree": 1})
    job.finish("merge", Verdict.PASS, "ok", {"tree": 1})
    assert open_job(job.workspace).attempt("plan").ended
    job.finish("merge", Verdict.PASS, "ok", {"tree": 2})
    again = open_job(job.workspace)
    assert [bool(again.attempt(name).ended) for name in ("merge", "plan", "deliver")] == [True, False, False]


def test_two_handles_do_not_undo_each_other(job):
    other = open_job(job.workspace)
    job.place(repo=job.workspace)
    job.finish("merge", Verdict.PASS, "by one")
    other.place(branch="b")
    found = open_job(job.workspace)
    assert (found.repo, found.branch) == (str(job.workspace), "b")
    assert found.attempt("merge").ended


def _die_in_merge(job: Job) -> None:
    job.begin("merge", ["upgrade.py", "merge", "--out", "a folder"])
    os._exit(9)


def test_a_step_of_a_dead_process_is_interrupted(job, ask):
    child = multiprocessing.get_context("fork").Process(target=_die_in_merge, args=(job,))
    child.start()
    child.join()
    assert open_job(job.workspace).attempt("merge").interrupted
    states = {one["name"]: one["state"] for one in ask("status", job.workspace)["stages"]}
    assert states["merge"] == "interrupted"
    answer = ask("next", job.workspace)
    assert answer["next"] == "upgrade.py merge --out 'a folder'"
    assert "interrupted" in answer["why"]
    job.begin("merge")
    assert not open_job(job.workspace).attempt("merge").interrupted


def begun_by(job: Job, pid: int, born: float) -> None:
    job.journal.add(Begun, stage="merge", command=["upgrade.py", "merge"], pid=pid, born=born)


def test_a_reused_process_number_is_not_the_process(job):
    begun_by(job, os.getpid(), psutil.Process().create_time() - 100)
    assert open_job(job.workspace).attempt("merge").interrupted


def test_a_running_stage_is_not_begun_twice(job, ask):
    parent = psutil.Process(os.getppid())
    begun_by(job, parent.pid, parent.create_time())
    with pytest.raises(BadInput, match=f"already running in process {parent.pid}"):
        job.begin("merge")
    assert "is running in process" in ask("next", job.workspace)["why"]


def test_a_job_of_an_older_version_is_refused_and_kept(job, ask):
    """As version 1 wrote it: the state of each step beside its own ledger."""
    step = {"status": "done", "at": "2026-01-01T00:00:00Z", "verdict": "PASS", "summary": "merged"}
    step |= {"outputs": {}, "command": ["upgrade.py", "merge"], "pid": None, "pid_started": None, "begun": 0}
    state = {"schema": "npu-upgrade/job/1", "id": job.id, "created": "2026-01-01T00:00:00Z"}
    state |= {"inputs": {"omni": OMNI, "ascend": ASCEND, "base": None}, "out": None, "repo": None}
    state |= {"branch": None, "kind": "upgrade", "skipped": {}, "steps": {"merge": step}}
    (job.folder / "job.json").write_text(json.dumps(state))
    (job.folder / "evidence.jsonl").write_text('{"schema":"npu-upgrade/evidence/1"}\n')
    before = {path: path.read_bytes() for path in job.folder.rglob("*") if path.is_file()}
    for name in ("next", "status"):
        answer = ask(name, job.workspace)
        assert (answer["code"], "older version" in answer["error"]) == (2, True)
        assert f"mv {job.folder} {job.folder}.old" in answer["try"]
    with pytest.raises(BadInput, match="older version"):
        start_job(job.workspace, omni=OMNI, ascend=ASCEND)
    assert {path: path.read_bytes() for path in job.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "npu-upgrade/job/2"}', '{"schema": "other"}'])
def test_a_damaged_job_is_told(job, text):
    (job.folder / "job.json").write_text(text)
    with pytest.raises(BadInput, match="cannot read the job"):
        open_job(job.workspace)
    assert (job.folder / "job.json").read_text() == text


def test_the_workspace_is_found_from_below(job, tmp_path):
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    assert find_workspace(below) == tmp_path
    assert (tmp_path / ".npu-upgrade/.gitignore").read_text() == "*\n"


def test_nothing_outside_the_job_folder_is_written(tmp_path):
    start_job(tmp_path, omni=OMNI, ascend=ASCEND, out=tmp_path / "out", repo=tmp_path / "repo")
    assert [p.name for p in tmp_path.iterdir()] == [".npu-upgrade"]


@pytest.mark.parametrize("name", ["status", "next"])
def test_without_a_job(ask, tmp_path, name):
    answer = ask(name, tmp_path)
    assert answer["code"] == 2
    assert "upgrade.py discover" in answer["try"]
    assert not list(tmp_path.iterdir())


def test_next_before_the_merge(job, ask):
    specs = f"--omni {OMNI['spec']} --ascend {ASCEND['spec']}"
    assert ask("next", job.workspace)["next"] == f"upgrade.py merge {specs} --out {shlex.quote(job.out)}"
    job.begin("merge", ["upgrade.py", "merge", "--again"])
    job.finish("merge", Verdict.BLOCKED, "no network")
    answer = ask("next", job.workspace)
    assert (answer["next"], answer["why"]) == (
        "upgrade.py merge --again",
        "merge: it did not finish (BLOCKED: no network)",
    )


def test_next_through_a_whole_upgrade(upgrade, ask, capsys):
    job, workspace = upgrade.job, upgrade.workspace
    for name in ("look", "port"):
        job.journal.add(Skipped, id=name, note="looked at before")
    for name in ("evidence.jsonl", "evidence.head"):
        (job.store.folder / name).unlink()
    job.finish("merge", Verdict.FAIL, "1 conflict")
    upgrade.write_plan(conflicts_open=1)
    answer = ask("next", workspace)
    plan = f"upgrade.py plan --workspace {workspace}"
    assert answer["next"] == plan
    assert "1 conflicts are open" in answer["why"]
    upgrade.write_plan(conflicts_open=0)
    upgrade.record_all()
    deliver = f"upgrade.py deliver --repo {upgrade.repo} --workspace {workspace}"
    emulate = f"upgrade.py emulate --workspace {workspace}"
    assert ask("next", workspace)["next"] == emulate
    upgrade.record("emulate", "emulated dry-run", verdict=Verdict.BLOCKED)
    assert ask("next", workspace)["next"] == deliver
    upgrade.record("audit", verdict=Verdict.FAIL)
    assert ask("next", workspace)["next"] == "upgrade.py audit"
    upgrade.record("audit")
    assert run_deliver(upgrade, capsys)[0] == 0
    shown = f"git -C {upgrade.repo} show --stat {git(upgrade.repo, 'rev-parse', 'HEAD').strip()}"
    answer = ask("next", workspace)
    assert answer["next"] == shown
    assert "validation on NPU hardware is pending" in answer["why"]
    write(upgrade.repo, RUNNER, "NAME = 'reviewed'\n")
    answer = ask("next", workspace)
    assert (answer["next"], answer["why"]) == (
        plan,
        "plan: the files changed since it judged them",
    )
    upgrade.record_all()
    assert ask("next", workspace)["next"] == emulate
    upgrade.record("emulate", "emulated dry-run", verdict=Verdict.BLOCKED)
    assert ask("next", workspace)["next"] == deliver
    assert run_deliver(upgrade, capsys)[0] == 0
    upgrade.served()
    assert ask("next", workspace)["next"] == deliver
    assert run_deliver(upgrade, capsys)[0] == 0
    assert "validated on NPU hardware" in ask("next", workspace)["why"]


def test_next_publishes_the_commit_once(upgrade, ask, capsys, tmp_path):
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    upgrade.record_all()
    git(tmp_path, "init", "-q", "--bare", "origin.git")
    git(upgrade.repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    assert run_deliver(upgrade, capsys)[0] == 0
    answer = ask("next", upgrade.workspace)
    assert answer["next"] == f"git -C {upgrade.repo} push -u origin {BRANCH}"
    subprocess.run(answer["next"], shell=True, check=True, capture_output=True)
    answer = ask("next", upgrade.workspace)
    assert "show --stat" in answer["next"]
    assert "nothing is left to do here" in answer["why"]


def test_status_tells_present_from_stale_evidence(upgrade, ask):
    first = [record.id for record in upgrade.job.ledger().records]
    write(upgrade.repo, NEW, "FRESH = 2\n")
    upgrade.record("audit")
    answer = ask("status", upgrade.workspace)
    assert [record["gate"] for record in answer["evidence"]] == ["audit"]
    assert [record["id"] for record in answer["other_evidence"]] == first
    assert (answer["open_items"], answer["conflicts_open"]) == (1, 0)


def test_status_for_people(upgrade, capsys):
    argv = ["status", "--workspace", str(upgrade.workspace), "--format", "text"]
    assert cli.main("upgrade.py", "", ["status"], argv) == 0
    out = capsys.readouterr().out
    assert "static: plan PASS" in out
    assert "items open 1, waived 1; conflicts open 0" in out
    assert "0.23.0.post1 (aaaaaaaaaaaa)  pypi:vllm-ascend==0.23.0.post1" in out


def test_status_and_next_survive_a_broken_ledger(upgrade, ask):
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    path = upgrade.job.store.folder / "evidence.jsonl"
    path.write_text(path.read_text().replace("PASS", "FAIL"))
    broken = path.read_bytes()
    assert "was changed" in ask("status", upgrade.workspace)["evidence_problem"]
    answer = ask("next", upgrade.workspace)
    assert "cannot be trusted" in answer["why"]
    subprocess.run(answer["next"], shell=True, check=True)
    [kept] = upgrade.job.store.folder.glob("untrusted-*/evidence.jsonl")
    assert kept.read_bytes() == broken
    assert ask("next", upgrade.workspace)["next"].startswith("upgrade.py plan")


def test_next_after_a_torn_record(upgrade, ask, monkeypatch):
    monkeypatch.chdir(upgrade.workspace)  # the job is found from here without --workspace
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    with (upgrade.job.store.folder / "evidence.jsonl").open("a") as stream:
        stream.write('{"half')
    assert "half-written" in ask("status", upgrade.workspace)["evidence_problem"]
    assert ask("next", upgrade.workspace)["next"] == "upgrade.py plan"


def states(ask, workspace: Path) -> dict[str, str]:
    return {one["name"]: one["state"] for one in ask("status", workspace)["stages"]}


def test_the_state_of_a_stage_follows_the_files(upgrade, ask):
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    found = states(ask, upgrade.workspace)
    assert (found["merge"], found["plan"], found["audit"], found["emulate"]) == (
        "done",
        "done",
        "done",
        "todo",
    )
    before = (upgrade.repo / RUNNER).read_text()
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    found = states(ask, upgrade.workspace)
    assert (found["plan"], found["audit"]) == ("stale", "stale")
    upgrade.record(verdict=Verdict.FAIL)
    assert states(ask, upgrade.workspace)["plan"] == "failed"
    write(upgrade.repo, RUNNER, before)
    assert states(ask, upgrade.workspace)["plan"] == "done"


def test_what_a_gate_could_not_judge_stops_nothing_but_a_failed_server_does(upgrade, ask):
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    upgrade.record("audit", verdict=Verdict.INCONCLUSIVE)
    upgrade.record("emulate", "emulated dry-run", verdict=Verdict.BLOCKED)
    found = states(ask, upgrade.workspace)
    assert (found["audit"], found["emulate"], found["serve"]) == ("done", "done", "skipped")
    upgrade.record("serve", "NPU dummy", Verdict.FAIL)
    assert states(ask, upgrade.workspace)["serve"] == "failed"
    upgrade.record("serve", "NPU dummy")
    upgrade.served()
    assert states(ask, upgrade.workspace)["serve"] == "done"


def test_looking_at_a_job_writes_nothing(job, ask):
    before = {*job.workspace.rglob("*")}
    ask("status", job.workspace)
    ask("next", job.workspace)
    assert {path.name for path in {*job.workspace.rglob("*")} - before} == {"calls.jsonl"}


def test_a_run_is_of_the_job_whose_checkout_it_served(upgrade, tmp_path):
    def served(folder: Path | None) -> OfJob | None:
        return served_job(upgrade.workspace, SimpleNamespace(folder=lambda _: folder))

    tree = load_plan(upgrade.job).subject(upgrade.repo).tree
    assert served(upgrade.repo / "vllm_omni") == upgrade.job.of(tree)
    assert (served(tmp_path), served(None)) == (None, None)
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    assert served(upgrade.repo / "vllm_omni") != upgrade.job.of(tree)
    (upgrade.job.folder / "job.json").write_text('{"schema": "npu-upgrade/job/1"}')
    assert served(upgrade.repo / "vllm_omni") is None  # the run is recorded, whatever ails the job


@pytest.mark.parametrize("whole", [True, False])
def test_only_a_whole_run_of_a_gate_is_noted_as_begun(tmp_path, monkeypatch, whole):
    upgrade = make_upgrade(tmp_path, monkeypatch)
    options = argparse.Namespace(workspace=upgrade.workspace, job=None)
    begin(options, "emulate", "emulated dry-run", whole=whole)
    assert bool(open_job(upgrade.workspace).attempt("emulate").begun) is whole
