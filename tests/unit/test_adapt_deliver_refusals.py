"""What stops the delivery of a model; the checkouts are left as they were."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import artifacts_kit
import pytest
from adapt_kit import OPS, PATCH_FILE, World, deliver, make_world
from artifacts_kit import NAME
from deliver_support import git, snapshot, write

from npu_upgrade.commands.adapt import artifacts
from npu_upgrade.evidence.judged import model_digest
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.evidence.store import workspace_store
from npu_upgrade.job.journal import Journal, Skipped

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def proven(world: World, capsys: pytest.CaptureFixture[str]) -> World:
    world.prove()
    world.generate(capsys)
    return world


@pytest.fixture
def refused(world: World, capsys: pytest.CaptureFixture[str]):
    """The error of a delivery that is refused and has changed nothing."""

    def call(*options: str) -> str:
        places = (world.repo, world.vllm, world.ascend)
        before = [snapshot(place) for place in places]
        code, result = deliver(world, capsys, *options)
        assert code == 2, result
        assert [snapshot(place) for place in places] == before
        return f"{result['error']} / {result['expected']} / {result['try']}"

    return call


def test_no_evidence(world: World, refused) -> None:
    assert "no evidence of" in refused()
    begun = workspace_store(world.workspace).begin("serve", Redactor())
    assert f"a run was not finished: {begun.folder.name}" in refused()


def test_dummy_weights_never_sign_off(world: World, refused) -> None:
    world.serve("NPU dummy")
    world.serve("CPU dummy")
    said = refused("--pending-npu", "--open", "serve")
    assert "no proof with real weights" in said
    assert "NPU dummy" in said


def test_evidence_of_other_code(proven: World, refused) -> None:
    write(proven.ascend, PATCH_FILE, "PATCHED = 'later'\n")
    assert "of other code" in refused()


def test_evidence_of_another_release_than_the_plan_is_for(world: World, refused, capsys) -> None:
    """Where nothing is changed in a checkout of it, only the release says which code it was."""
    plan = world.workspace / ".npu-upgrade/adapt" / NAME / "plan.json"
    plan.parent.mkdir(parents=True)
    tree = {"spec": "pypi:vllm-ascend==0.30.0rc2", "version": "0.30.0rc2"}
    plan.write_text(json.dumps({"steps": [], "trees": {"ascend": tree}}))
    for version in ("0.29.0", "0.30.0rc2"):
        world.prove(pins={"vllm-ascend": {"version": version}})
        world.generate(capsys)
        if version == "0.29.0":
            said = refused("--bare")
            assert "it ran vllm_ascend 0.29.0, the plan is for 0.30.0rc2" in said
    code, result = deliver(world, capsys, "--bare")
    assert code == 0, result


def test_a_failed_gate(proven: World, refused) -> None:
    proven.serve(verdict="FAIL", summary="chat answered 500", gate="features")
    said = refused()
    assert "gate features (NPU real) failed" in said
    assert "chat answered 500" in said


def test_real_weights_that_failed_after_they_passed(proven: World, refused) -> None:
    proven.serve(verdict="FAIL", summary="chat answered 500")
    assert "gate serve (NPU real) failed" in refused("--pending-npu")


def test_tampered_evidence(proven: World, refused) -> None:
    result = next(proven.workspace.glob(".npu-upgrade/evidence/runs/*serve*/result.json"))
    result.write_text(result.read_text().replace("31.0", "3.0"))
    assert "cannot be trusted" in refused()


def test_a_byte_of_the_weights_that_changed_after_the_runs(
    world: World, refused, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(world.folder / "hub"))
    model = world.folder / f"hub/models--{artifacts_kit.HF_ID.replace('/', '--')}/snapshots/1"
    model.mkdir(parents=True)
    shard = model / "model.safetensors"
    shard.write_bytes(bytes(3 << 20))
    os.utime(shard, (1, 1))
    world.prove(model_digest=model_digest(artifacts_kit.HF_ID))
    world.generate(capsys)
    with shard.open("r+b") as stream:
        stream.seek(-10, os.SEEK_END)
        stream.write(b"1")
    os.utime(shard, (1, 1))
    assert "served another checkpoint" in refused()


def test_an_edited_ledger(proven: World, refused) -> None:
    ledger = proven.workspace / ".npu-upgrade/evidence/evidence.jsonl"
    ledger.write_text(ledger.read_text().replace('"verdict":"PASS"', '"verdict":"FAIL"', 1))
    assert "cannot be trusted" in refused()


def test_a_half_written_record(proven: World, refused) -> None:
    with (proven.workspace / ".npu-upgrade/evidence/evidence.jsonl").open("a") as stream:
        stream.write('{"command":["adapt.py","serve"')
    assert "half-written" in refused()


def test_gaps_are_delivered_only_by_name(world: World, refused, capsys) -> None:
    artifacts_kit.analysed(world.workspace)
    more = {"features": artifacts_kit.FEATURES, "capacity": artifacts_kit.CAPACITY}
    more |= {"performance": artifacts_kit.LOADS}
    for gate in ("serve", *more):
        world.serve(gate=gate, **{key: value for key, value in more.items() if key == gate})
    world.generate(capsys)
    assert "--open accuracy" in refused()
    assert "there is no gap 'acuracy'" in refused("--open", "acuracy")
    page = world.repo / f"docs/source/tutorials/models/{NAME}.md"
    text = page.read_text("utf-8")
    page.write_text(text.replace("GAP (accuracy)", "Done"), "utf-8")
    assert "does not name the gap accuracy" in refused("--open", "accuracy")
    page.write_text(f"{text}\nMeasured on one card.\n", "utf-8")
    code, result = deliver(world, capsys, "--open", "accuracy")
    assert code == 0, result
    assert "Open gaps (1):\n- accuracy: no accuracy run" in world.body()
    assert "experimental" in world.body()
    given = ("--tree", str(world.repo), "--workspace", str(world.workspace), "--check")
    code, checked = artifacts_kit.run(capsys, "artifacts", artifacts_kit.HF_ID, *given)
    assert (code, "named in the commit: accuracy" in checked["summary"]) == (0, True)
    assert (result["commit"], sorted(result["files"])) == (world.head(), sorted(world.committed()))
    assert result["open_gaps"] == ["accuracy"]
    report = Path(result["report"])
    for told in (result["commit"], "no accuracy run", "evidence/runs/"):
        assert told in report.read_text("utf-8")
    runbook = report.with_name("runbook.zh.md").read_text("utf-8")
    assert ("vllm serve" in runbook, "curl" in runbook) == (True, True)


def test_a_gap_that_was_left_out_with_a_note_is_not_asked_for_again(world: World, capsys) -> None:
    artifacts_kit.analysed(world.workspace)
    more = {"features": artifacts_kit.FEATURES, "capacity": artifacts_kit.CAPACITY}
    more |= {"performance": artifacts_kit.LOADS}
    for gate in ("serve", *more):
        world.serve(gate=gate, **{key: value for key, value in more.items() if key == gate})
    Journal(world.workspace / f".npu-upgrade/adapt/{NAME}").add(Skipped, id="accuracy", note="no network")
    world.generate(capsys)
    code, result = deliver(world, capsys)
    assert code == 0, result
    message = " ".join(world.body().split())
    assert "Left out: - accuracy (no accuracy run with real weights passed): no network" in message
    assert "Open gaps" not in message


def test_the_reason_of_several_gaps_stands_once_in_the_message(world: World, capsys) -> None:
    artifacts_kit.analysed(world.workspace)
    for gate in ("serve", "features"):
        world.serve(gate=gate, **({"features": artifacts_kit.FEATURES} if gate == "features" else {}))
    journal = Journal(world.workspace / f".npu-upgrade/adapt/{NAME}")
    journal.add(Skipped, id="requirements", note="nobody asks for them")
    world.generate(capsys)
    code, result = deliver(world, capsys)
    assert code == 0, result
    message = " ".join(world.body().split())
    assert message.count("nobody asks for them") == 1
    assert re.search(r"Left out: - .*\bcapacity \(.*\), .*: nobody asks for them", message)


def test_every_run_that_a_row_of_the_features_is_from_stands_in_the_message(proven: World, capsys) -> None:
    """A later run may have tried one feature only."""
    row = {"feature": "lora", "status": "not proven", "why": "it served, and the answer is empty"}
    proven.serve(gate="features", verdict="INCONCLUSIVE", features=[row], summary="1 not proven")
    proven.generate(capsys)
    code, result = deliver(proven, capsys)
    assert code == 0, result
    lines = [line for line in proven.body().splitlines() if ": features " in line]
    assert [line.split()[3:5] for line in lines] == [["features", "PASS"], ["features", "INCONCLUSIVE"]]


def test_two_models_go_into_one_commit(proven: World, capsys) -> None:
    other = "Qwen/Qwen3-32B"
    artifacts_kit.add_all(proven.workspace, code=proven.code, model=other, model_name="Qwen3-32B")
    proven.generate(capsys)
    given = ("--tree", str(proven.repo), "--workspace", str(proven.workspace))
    code, result = artifacts_kit.run(capsys, "artifacts", other, *given)
    assert code == 0, result
    code, result = deliver(proven, capsys)
    assert (code, "changes that nobody named" in result["error"]) == (2, True)
    roots = ["--ascend", str(proven.ascend), "--vllm", str(proven.vllm)]
    named = ["--include", "vllm", "--include", "vllm_ascend", "--repo", str(proven.repo)]
    both = ("deliver", artifacts_kit.HF_ID, other, *roots, *named, "--workspace", str(proven.workspace))
    code, result = artifacts_kit.run(capsys, *both)
    assert code == 0, result
    body = proven.body()
    assert "- Qwen/Qwen3-8B (Qwen3ForCausalLM)\n- Qwen/Qwen3-32B (Qwen3ForCausalLM)" in body
    assert "- Qwen3-8B: NPU real: serve PASS" in body
    assert "- Qwen3-32B: NPU real: serve PASS" in body
    assert "Adapted-Model: Qwen3-8B, Qwen3-32B" in body
    pages = [f"docs/source/tutorials/models/{name}.md" for name in ("Qwen3-32B", "Qwen3-8B")]
    assert set(pages) <= set(proven.committed())
    folder = proven.workspace / ".npu-upgrade/adapt"
    assert all((folder / name / "delivered.json").is_file() for name in ("Qwen3-8B", "Qwen3-32B"))
    code, again = artifacts_kit.run(capsys, *both)
    assert (code, again["commit"]) == (0, result["commit"])


def test_two_models_are_entered_one_after_the_other(world: World, capsys, monkeypatch) -> None:
    world.prove()
    other, write_now = "Qwen/Qwen3-32B", artifacts.write_together
    artifacts_kit.add_all(world.workspace, code=world.code, model=other, model_name="Qwen3-32B")
    given = ("--tree", str(world.repo), "--workspace", str(world.workspace))
    second: list[subprocess.Popen[str]] = []

    def slowly(texts) -> None:
        if not second:  # the other one begins while this one has read what it changes, and not written it
            call = [sys.executable, str(ROOT / "scripts/adapt.py"), "artifacts", other, *given]
            second.append(subprocess.Popen(call, stdout=subprocess.PIPE, text=True))
            with pytest.raises(subprocess.TimeoutExpired):
                second[0].wait(2)
        write_now(texts)

    (world.workspace / ".npu-upgrade/adapt").mkdir(exist_ok=True)
    monkeypatch.setattr(artifacts, "write_together", slowly)
    world.generate(capsys)
    assert '"PASS"' in second[0].communicate()[0]
    for model in (artifacts_kit.HF_ID, other):
        assert artifacts_kit.run(capsys, "artifacts", model, *given, "--check")[1]["changed"] == []


def test_documents_that_are_not_there_or_not_up_to_date(world: World, refused, capsys) -> None:
    world.prove()
    assert "nothing was generated" in refused()
    world.generate(capsys)
    world.serve(ready_seconds=99.0)
    assert f"not as the evidence says: docs/source/tutorials/models/{NAME}.md" in refused()


@pytest.mark.parametrize("place", ["repo", "ascend", "vllm"])
def test_changes_that_nobody_named(proven: World, refused, capsys, place: str) -> None:
    root = getattr(proven, place)
    write(root, "notes.txt", "mine\n")
    assert "nobody named: notes.txt" in refused()
    code, result = deliver(proven, capsys, "--leave", "notes.txt")
    assert code == 0, result
    assert "notes.txt" not in proven.committed()
    assert (root / "notes.txt").read_text() == "mine\n"


def test_planned_files_need_no_naming(proven: World, capsys) -> None:
    plan = proven.workspace / ".npu-upgrade/adapt" / NAME / "plan.json"
    files = [{"root": "ascend", "path": "vllm_ascend/patch"}, {"root": "ascend", "path": OPS}]
    plan.write_text(json.dumps({"steps": [{"name": "backend", "files": files}]}))
    given = ("--repo", str(proven.repo), "--ascend", str(proven.ascend), "--workspace", str(proven.workspace))
    code, result = artifacts_kit.run(capsys, "deliver", artifacts_kit.HF_ID, *given)
    assert code == 0, result
    assert {PATCH_FILE, OPS} <= set(proven.committed())


def test_code_that_was_judged_cannot_stay_out(proven: World, refused) -> None:
    assert "the gates judged vllm-ascend with it" in refused("--leave", PATCH_FILE)


def test_code_that_no_gate_judged(proven: World, refused) -> None:
    write(proven.repo, "vllm_ascend/other.py", "OTHER = 1\n")
    assert "vllm_ascend/other.py is changed in" in refused()


def test_a_file_changed_in_both_places(proven: World, refused) -> None:
    write(proven.repo, OPS, (proven.repo / OPS).read_text() + "mine = 1\n")
    assert "has changes in" in refused()


def test_a_dirty_index(proven: World, refused) -> None:
    write(proven.repo, "other.txt", "x\n")
    git(proven.repo, "add", "other.txt")
    assert "other changes are staged" in refused("--leave", "other.txt")


def test_a_detached_head(proven: World, refused) -> None:
    git(proven.repo, "switch", "-q", "--detach")
    assert f"git switch -c adapt-{NAME}" in refused()


def test_the_default_branch(proven: World, refused) -> None:
    git(proven.repo, "switch", "-q", "main")
    assert "default branch main" in refused()


def test_nobody_who_commits(proven: World, refused) -> None:
    git(proven.repo, "config", "--unset", "user.email")
    assert "who commits" in refused()


def test_a_root_that_is_another_project(proven: World, capsys) -> None:
    given = ("--repo", str(proven.repo), "--ascend", str(proven.vllm), "--workspace", str(proven.workspace))
    code, result = artifacts_kit.run(capsys, "deliver", artifacts_kit.HF_ID, *given)
    assert code == 2
    assert "no checkout of vllm-ascend" in result["error"]
    assert "--ascend DIR" in result["try"]


def test_a_base_that_is_not_there(proven: World, refused) -> None:
    assert "has no commit nowhere" in refused("--ascend-base", "nowhere")


def test_work_that_is_committed_in_its_root(proven: World, refused, capsys) -> None:
    git(proven.ascend, "add", ".")
    git(proven.ascend, "commit", "-q", "-m", "work")
    code, result = deliver(proven, capsys, "--ascend-base", "HEAD^")
    assert code == 0, result
    assert {PATCH_FILE, OPS} <= set(proven.committed())


def test_a_broken_file(world: World, refused, capsys) -> None:
    write(world.ascend, PATCH_FILE, "def broken(:\n")
    world.prove()
    world.generate(capsys)
    assert "does not parse" in refused()
    write(world.ascend, PATCH_FILE, "<<<<<<< ours\n=======\n>>>>>>> theirs\n")
    world.prove()
    world.generate(capsys)
    assert "conflict marker" in refused()


def test_a_title_against_the_rule(proven: World, refused) -> None:
    said = refused("--title", "Support it")
    assert f"[Feature] Support {NAME}" in said


def test_a_patch_does_not_replace_a_file_of_somebody_else(proven: World, refused, capsys, tmp_path) -> None:
    mine = proven.repo.parent / f"{NAME}-vllm.patch"
    mine.write_text("my own notes\n")
    assert "not a patch that was exported" in refused()
    assert mine.read_text() == "my own notes\n"
    assert deliver(proven, capsys, "--patch-dir", str(tmp_path / "patches"))[0] == 0
    assert (tmp_path / "patches" / mine.name).is_file()
