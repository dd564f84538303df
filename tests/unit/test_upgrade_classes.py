"""An upgrade is validated class by class, by engines that built them from exactly the delivered files."""

from __future__ import annotations

import json

import msgspec
import pytest
from deliver_support import NEW, OTHER, RUNNER, WORKER, Upgrade, git, write

from npu_upgrade.cli import main as cli
from npu_upgrade.commands import gains
from npu_upgrade.delivery.upgrade import _not_ported
from npu_upgrade.evidence.observed import Exercised
from npu_upgrade.evidence.redaction import Redactor
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job.answer import by_word
from npu_upgrade.job.ask import CORRECTED, Ask
from npu_upgrade.job.job import open_job
from npu_upgrade.job.journal import Answer
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.job.upgrade import read, walk

AR, GENERATION, BASE = "TideARRunner", "TideGenerationRunner", "TideRunner"
TEXT = "class {0}:\n    def step(self):\n        return {1}\n\n\n"
PENDING = "NPU-Validation: pending\n"


@pytest.fixture
def classes(upgrade: Upgrade) -> Upgrade:
    """The upgrade changes a base and two runners in one file, and one function of a worker in another."""
    names = (BASE, AR, GENERATION)
    write(upgrade.repo, RUNNER, "".join(TEXT.format(name, 1) for name in (*names, "Untouched")))
    write(upgrade.repo, WORKER, "import os\n\n\nclass TideWorker:\n    def start(self):\n        pass\n")
    git(upgrade.repo, "add", RUNNER, WORKER)
    git(upgrade.repo, "commit", "-qm", "[Misc] Runners")
    changed = "# a remark\n" + "".join(TEXT.format(name, 2) for name in names) + TEXT.format("Untouched", 1)
    write(upgrade.repo, RUNNER, changed)
    worker = "import os\n\n\nclass TideWorker:\n    def start(self):\n        os.sync()\n"
    write(upgrade.repo, WORKER, worker)
    (upgrade.repo / NEW).unlink()
    files = [entry for entry in upgrade.plan["files"] if entry["path"] != NEW]
    runners = {name: {"path": RUNNER, "class": name} for name in names}
    upgrade.write_plan(files=files, runners=runners)
    upgrade.record_all()
    return upgrade


def said(upgrade: Upgrade) -> str:
    return git(upgrade.repo, "log", "-1", "--format=%(trailers:key=NPU-Validation,unfold)").strip()


def test_a_run_validates_what_it_built_and_its_bases(classes, deliver) -> None:
    run = classes.served((RUNNER, AR), (RUNNER, BASE))
    assert deliver()[0] == 0
    assert said(classes) == (
        f"NPU-Validation: {BASE} {run.id}; {AR} {run.id}; {GENERATION} pending; TideWorker pending"
    )
    later = classes.served((RUNNER, GENERATION), (RUNNER, BASE), functions=["TideWorker.start"])
    code, result = deliver()
    assert (code, result["new"]) == (0, True)
    by = {AR: run.id, BASE: later.id, GENERATION: later.id, "TideWorker": later.id}
    every = "; ".join(f"{name} {by[name]}" for name in (BASE, AR, GENERATION, "TideWorker"))
    assert said(classes) == f"NPU-Validation: {every}"
    assert deliver()[1]["new"] is False
    assert "pending" not in classes.body()


@pytest.mark.parametrize(
    ("built", "how", "why"),
    [
        ((), {}, f"no {BASE} was built"),
        (((RUNNER, AR), (RUNNER, BASE)), {"steps": 0}, f"{BASE} executed no step"),
        (((RUNNER, AR), (RUNNER, BASE)), {"device": "cpu"}, "its tensors lived on cpu"),
        (((RUNNER, AR), (RUNNER, BASE)), {"device": "npu emulated"}, "its tensors lived on npu emulated"),
        (((RUNNER, AR), (RUNNER, BASE)), {"load_format": "dummy"}, "it loaded dummy weights"),
        (((RUNNER, AR), (RUNNER, BASE)), {"others": {RUNNER: "a" * 64}}, f"it ran another {RUNNER}"),
        (((RUNNER, AR), (RUNNER, BASE)), {"others": {OTHER: "a" * 64}}, f"it ran another {OTHER}"),
        (((RUNNER, AR), (RUNNER, BASE)), {"pythonpath": ["/patched"]}, "PYTHONPATH laid /patched over"),
        (((RUNNER, AR), (RUNNER, BASE)), {"verdict": Verdict.INCONCLUSIVE}, ""),
        (((RUNNER, AR), (RUNNER, BASE)), {"label": "NPU dummy"}, ""),
        (((RUNNER, AR), (RUNNER, BASE)), {"label": "CPU real", "device": "cpu"}, ""),
        (((RUNNER, AR), (RUNNER, BASE)), {"label": "emulated dry-run"}, ""),
    ],
)
def test_anything_else_validates_nothing(classes, deliver, built, how, why) -> None:
    classes.served(*built, **how)
    code, result = deliver()
    assert code == 0
    assert PENDING in classes.body()
    assert result["npu_validation"] == "pending"
    assert why in result["summary"]


def test_the_vllm_ascend_that_ran_is_the_one_that_is_upgraded_to(classes, deliver, tmp_path) -> None:
    """Its files count, by content: a version may be told of a patched one; a build adds files of its own."""
    name, text = "vllm_ascend/worker/model_runner_v1.py", "class Tide:\n    pass\n"
    write(tmp_path / "ascend", name, text)
    spec = json.loads((classes.job.folder / "job.json").read_text())
    spec["inputs"]["ascend"]["spec"] = f"dir:{tmp_path / 'ascend'}"
    (classes.job.folder / "job.json").write_text(json.dumps(spec))
    loaded = {name: sha256(text.encode()), "vllm_ascend/_build_info.py": "b" * 64}
    classes.served((RUNNER, AR), (RUNNER, BASE), others=loaded | {name: "a" * 64})
    code, result = deliver()
    assert (code, PENDING in classes.body()) == (0, True)
    assert f"it ran another {name} than dir:" in result["summary"]
    run = classes.served((RUNNER, AR), (RUNNER, BASE), others=loaded)
    assert deliver()[0] == 0
    assert f"{AR} {run.id}" in said(classes)
    (tmp_path / "ascend" / name).unlink()
    (tmp_path / "ascend/vllm_ascend/other.py").write_text("")
    assert "it ran another vllm_ascend/ than" in " ".join(
        read(open_job(classes.workspace)).validation.why.values()
    )


def test_a_run_that_does_not_tell_what_it_built_validates_nothing(classes, deliver) -> None:
    run = classes.served((RUNNER, AR))
    (classes.job.store.runs / str(run.run) / "observed.json").unlink()
    assert deliver()[0] == 0
    assert PENDING in classes.body()


def test_a_run_that_was_not_finished_is_named(classes, deliver) -> None:
    begun = classes.job.store.begin("serve", Redactor())
    code, result = deliver()
    assert (code, PENDING in classes.body()) == (0, True)
    assert f"run {begun.folder.name} was not finished" in result["summary"]


def test_edited_evidence_validates_nothing(classes, deliver) -> None:
    run = classes.served((RUNNER, AR))
    path = classes.job.store.runs / str(run.run) / "observed.json"
    path.write_text(path.read_text().replace(AR, GENERATION))
    code, result = deliver()
    assert (code, PENDING in classes.body()) == (0, True)
    assert "not as it was recorded" in result["summary"]


def test_an_edit_after_the_run_needs_another_run(classes, deliver) -> None:
    classes.served((RUNNER, AR), (RUNNER, BASE))
    write(classes.repo, WORKER, "class TideWorker:\n    pass\n")
    classes.record_all()
    assert deliver()[0] == 0
    assert PENDING in classes.body()


def test_an_edited_file_that_is_left_out_was_no_part_of_what_is_delivered(classes, deliver) -> None:
    write(classes.repo, OTHER, "MINE = 1\n")
    text = (classes.repo / OTHER).read_bytes()
    classes.served((RUNNER, AR), (RUNNER, BASE), others={OTHER: sha256(text)})
    code, result = deliver()
    assert (code, result["left"]) == (0, [OTHER])
    assert f"it ran another {OTHER} than is delivered" in result["summary"]


def test_a_class_of_another_file_of_that_name_is_another_class(classes, deliver) -> None:
    classes.served((WORKER, AR), (WORKER, BASE))
    assert deliver()[0] == 0
    assert PENDING in classes.body()


def test_what_an_emulated_run_executed_is_evidence_and_no_validation(classes, deliver) -> None:
    runs = [
        Exercised(tier, "plain", state, "", "", {RUNNER: [name]})
        for tier, state, name in (
            ("eager", "PASS", AR),
            ("graph", "PASS", AR),
            ("serve", "FAIL", AR),
            ("eager", "INCONCLUSIVE", GENERATION),
        )
    ]
    classes.record("emulate", "emulated dry-run", data={"ran": msgspec.to_builtins(runs)})
    assert deliver()[0] == 0
    assert f"- emulated: {AR} executed in eager, graph\n" in classes.body()
    assert GENERATION not in classes.body().partition("NPU-Validation")[0]
    assert PENDING in classes.body()
    whole = (classes.repo / WORKER).read_text()
    write(classes.repo, WORKER, whole + "# later\n")
    assert read(classes.job).validation.emulated == {}
    write(classes.repo, WORKER, whole)
    assert read(classes.job).validation.emulated
    classes.record("emulate", "emulated dry-run")
    assert read(classes.job).validation.emulated == {}


def test_what_a_server_on_the_emulated_npu_executed_is_named(classes, deliver) -> None:
    classes.served((RUNNER, AR), label="emulated dry-run", device="npu emulated")
    assert deliver()[0] == 0
    assert f"- emulated: {AR} executed in serve\n" in classes.body()
    assert f"{GENERATION} executed" not in classes.body()
    assert PENDING in classes.body()


def test_a_pass_on_a_device_without_a_run_is_no_evidence(classes, deliver) -> None:
    classes.record("serve", "NPU real")
    assert deliver()[0] == 0
    assert "NPU real" not in classes.body()


def test_what_no_run_can_show_stays_pending(classes, deliver) -> None:
    """A deploy file that was edited and a file that was deleted; a text for readers changes no run."""
    deploy, readme, old = "vllm_omni/deploy/tide.yaml", "vllm_omni/npu/README.md", "vllm_omni/npu/old.py"
    for path in (deploy, readme, old):
        write(classes.repo, path, "one = 1\n")
        git(classes.repo, "add", path)
    git(classes.repo, "commit", "-qm", "[Misc] Deploy")
    (classes.repo / old).unlink()
    for path in (deploy, readme):
        write(classes.repo, path, "two = 2\n")
    classes.write_plan(
        files=[*classes.plan["files"], {"path": deploy, "sha256_merged": "", "sha256_ours": ""}]
    )
    classes.record_all()
    every = ((RUNNER, AR), (RUNNER, BASE), (RUNNER, GENERATION))
    run = classes.served(*every, functions=["TideWorker.start"])
    assert deliver()[0] == 0
    assert {deploy, readme, old} <= set(classes.committed())
    names = (BASE, AR, GENERATION, "TideWorker")
    done = "; ".join(f"{name} {run.id}" for name in names)
    assert said(classes) == f"NPU-Validation: {deploy} pending; {old} pending; {done}"
    heading = "\n".join(walk(classes.job).heading)
    assert f"{deploy} is pending (run {run.run}: no run tells whether it was read)" in heading
    assert "no run shows that nothing needs it" in heading


def test_status_and_next_say_the_same(classes, deliver) -> None:
    run = classes.served((RUNNER, AR), (RUNNER, BASE))
    facts = walk(classes.job).facts
    assert (
        facts["npu_validation"] == f"{BASE} {run.id}; {AR} {run.id}; {GENERATION} pending; TideWorker pending"
    )
    heading = "\n".join(walk(classes.job).heading)
    assert f"validated on NPU hardware: {BASE}, {AR}; {GENERATION} is pending" in heading


def test_what_is_edited_beside_the_merged_files_is_delivered_and_judged(upgrade, deliver, refused) -> None:
    write(upgrade.repo, "vllm_omni/npu/more.py", "MORE = 1\n")
    write(upgrade.repo, "vllm_omni/npu/notes.txt", "mine\n")
    assert "gate plan judged other contents" in refused()
    upgrade.record_all()
    code, result = deliver()
    assert (code, result["left"]) == (0, ["vllm_omni/npu/notes.txt"])
    assert upgrade.committed() == sorted([NEW, RUNNER, "vllm_omni/npu/more.py"])
    assert "Edited beside the merge (1):\n- vllm_omni/npu/more.py" in upgrade.body()
    assert deliver()[1]["new"] is False


def test_a_new_file_of_the_npu_side_is_delivered_and_corrects_what_failed(upgrade, deliver) -> None:
    failed = upgrade.record("emulate", verdict=Verdict.FAIL)
    found = Ask("finding", "emulate-eager-ar", "it fails", how=(CORRECTED,), evidence=failed.id)
    assert "nothing was corrected" in by_word(upgrade.job, found, "accept", "patched", "").problems[0]
    new = ["vllm_omni/platforms/npu/scheduling.py", "vllm_omni/platforms/npu/deeper/fence.py"]
    for path in new:
        write(upgrade.repo, path, "FENCE = 1\n")
    write(upgrade.repo, OTHER, "MINE = 1\n")
    assert by_word(upgrade.job, found, "accept", "patched", "").problems == []
    upgrade.record_all()
    assert deliver()[1]["left"] == [OTHER]
    assert {*new} < {*upgrade.committed()}


def test_other_edits_are_named_and_included_on_demand(upgrade, deliver, refused) -> None:
    write(upgrade.repo, OTHER, "MINE = 1\n")
    assert deliver("--dry-run")[1]["left"] == [OTHER]
    code, said = deliver("--dry-run", "--include", OTHER)
    assert code == 2
    assert f"--include {OTHER}, which keeps what it includes" in said["try"]
    assert "next --run" in said["try"]
    assert not load_plan(upgrade.job).further
    assert "gate plan judged other contents" in refused("--include", OTHER)
    assert "no file nowhere.py" in refused("--include", "nowhere.py")
    upgrade.job = open_job(upgrade.workspace)
    upgrade.record_all()
    assert deliver()[0] == 0
    assert OTHER in upgrade.committed()


def test_what_was_included_and_put_back_since_is_no_part_of_it(upgrade, deliver, refused) -> None:
    """As it was before the upgrade again, the files are those that the gates judged."""
    before = (upgrade.repo / OTHER).read_text()
    write(upgrade.repo, OTHER, "MINE = 1\n")
    assert "gate plan judged other contents" in refused("--include", OTHER)
    write(upgrade.repo, OTHER, before)
    assert deliver()[0] == 0
    assert OTHER not in upgrade.committed()


def test_what_was_not_ported_is_counted_by_feature(upgrade, deliver) -> None:
    hunks = [
        {"id": f"h{number}", "tier": tier, "path": RUNNER, "unit": "TideRunner.step", "group": group}
        for number, (tier, group) in enumerate(((1, "steps"), (2, "steps"), (3, "audio")))
    ]
    (upgrade.job.folder / "port.json").write_text(json.dumps({"hunks": hunks, "refused": []}))
    assert deliver()[0] == 0
    assert "\nPorted from the GPU side" not in upgrade.body()
    answer = {"stage": "port", "path": RUNNER, "unit": "TideRunner.step"}
    upgrade.job.journal.add(Answer, id="h0", how="leave", note="later", **answer)
    upgrade.job.journal.add(Answer, id="h2", how="waive", note="no audio", **answer)
    upgrade.job.journal.add(Answer, id="h1", how="by-hand", note="in _tide, without events", **answer)
    message = deliver("--dry-run")[1]["message"]
    assert "Not ported from the GPU side (1 hunk of 1 feature):\n- steps: 1 hunk\n" in message
    assert "Written by hand for the NPU side (1):\n- TideRunner.step: in _tide, without events\n" in message
    assert "(3 hunks of 2 features):\n- steps: 2 hunks\n- audio: 1 hunk\n" in upgrade.body()


def test_of_methods_written_by_hand_it_is_not_said_that_all_of_it_was_ported(upgrade) -> None:
    units = {"h0": "TideRunner.step", "h1": "TideRunner.step", "h2": "TideRunner.other"}
    units |= {"h3": "TideRunner.old", "h4": "TideRunner.older"}
    passed = {"h3": ["passed over before: vllm-omni 0.27.0rc1 has it already"]}
    passed["h4"] = [f"needs h3: {passed['h3'][0]}"]
    hunks = [
        {"id": name, "tier": 3, "path": RUNNER, "unit": unit, "group": unit.lower()}
        | {"reasons": passed.get(name, [])}
        for name, unit in units.items()
    ]
    (upgrade.job.folder / "port.json").write_text(json.dumps({"hunks": hunks, "refused": []}))
    answer = {"stage": "port", "path": RUNNER, "unit": "TideRunner.step"}
    upgrade.job.journal.add(Answer, id="h1", how="leave", note="for CUDA", **answer)
    told = {one.heading: one.items for one in _not_ported(upgrade.job, ["TideRunner.step"])}
    assert told == {
        "Not ported from the GPU side": ["tiderunner.step: 1 hunk", "tiderunner.other: 1 hunk"],
        "In methods written by hand, in another form or not ported": ["tiderunner.step: 1 hunk"],
        "Not ported, as by the upgrades before": ["tiderunner.old, tiderunner.older"],
    }


def test_what_was_ported_is_named_by_feature_while_it_is_there(upgrade, deliver) -> None:
    back = {"id": "h3", "tier": 1, "path": RUNNER, "unit": "TideRunner.step", "group": "audio"}
    ported = {"h0": "steps", "h1": "steps", "h2": "tide", "h3": "audio"}
    survey = {"hunks": [back], "refused": [], "ported": ported}
    (upgrade.job.folder / "port.json").write_text(json.dumps(survey))
    assert deliver()[0] == 0
    said = "\nPorted from the GPU side (3 hunks of 2 features):\n- steps: 2 hunks\n- tide: 1 hunk\n"
    assert said in upgrade.body()


def test_what_was_not_ported_is_listed_anew_when_the_files_are_others(upgrade, deliver, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(gains, "answered", lambda command, **_: (0, asked.append(command.name) or {}))
    place = upgrade.job.folder / "port.json"
    for tree, times in ((load_plan(upgrade.job).subject(upgrade.repo).tree, 0), ("others", 1)):
        place.write_text(json.dumps({"hunks": [], "refused": [], "tree": tree}))
        assert deliver("--dry-run")[0] == 0
        with gains.listing_beside(upgrade.job):
            pass  # a longer run; the list is waited for
        assert asked == ["port"] * times * 2


@pytest.mark.parametrize("asked", [True, False])
def test_what_an_audit_asked_to_correct_is_part_of_the_upgrade(upgrade, asked) -> None:
    upgrade.record("audit", data={"failing": ["imports-0"], "failing_in": [OTHER] if asked else []})
    write(upgrade.repo, OTHER, "CORRECTED = True\n")
    assert (OTHER in load_plan(upgrade.job).further) is asked


def known_hunk(upgrade, new: str = "a = 2") -> None:
    """A hunk that nobody asked about: only the ledger of hunks knows where it belongs."""
    hunk = {"kind": "change", "state": "open", "note": "", "since": {}, "at": "2026-11-20T12:00:00Z"}
    hunk |= {"runner": "ar", "unit": "TideRunner.step", "old": "a = 1", "new": new}
    ledger = {"schema": "npu-upgrade/port/1", "hunks": {"port-0123abcd": hunk}}
    write(upgrade.workspace, ".npu-upgrade/port.json", json.dumps(ledger))


def test_what_is_in_no_file_was_not_written_by_hand(upgrade, capsys) -> None:
    known_hunk(upgrade, "self.tide_gauge = a")
    words = ["--format", "json", "--workspace", str(upgrade.workspace)]
    words = ["resolve", "port-0123abcd", "--by-hand", "--note", "in step", *words]
    assert cli.main("upgrade.py", "", ["resolve"], words) == 1
    assert "none of what it brings is in the files: tide_gauge" in capsys.readouterr().out
    path = upgrade.repo / next(iter(load_plan(upgrade.job).hashes))
    path.write_text(f"{path.read_text()}TIDE = 'tide_gauge'\n")
    assert cli.main("upgrade.py", "", ["resolve"], words) == 0


@pytest.mark.parametrize("alone", [True, False])
def test_a_hunk_written_by_hand_is_named_by_its_method(upgrade, deliver, alone) -> None:
    known_hunk(upgrade)
    given = [{"id": "port-0123abcd", "answer": "by-hand", "note": "it has its own"}]
    write(upgrade.workspace, "answers.json", json.dumps(given))
    words = ["resolve", "port-0123abcd", "--by-hand", "--note", "it has its own"]
    words = words if alone else ["resolve", "--from", str(upgrade.workspace / "answers.json")]
    assert cli.main("upgrade.py", "", ["resolve"], [*words, "--workspace", str(upgrade.workspace)]) == 0
    assert deliver()[0] == 0
    assert "Written by hand for the NPU side (1):\n- TideRunner.step: it has its own" in upgrade.body()


def test_a_failed_real_run_stops_the_delivery(classes, refused) -> None:
    classes.served((RUNNER, AR))
    classes.record("serve", "NPU real", Verdict.FAIL)
    assert "gate serve (NPU real) failed" in refused()
