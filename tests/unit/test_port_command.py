"""The port command: what it lists, takes and refuses, and what it remembers."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from lineage_kit import GPU_WORKER, NPU_WORKER, commit_at, git_at
from merge_kit import upgrade
from port_kit import ASCEND, GPU_AR_NEW, GPU_AR_OLD, GPU_BASE, NPU_AR, PortWorld, omni_files, write_tree

from npu_upgrade.code.names import undefined_names
from npu_upgrade.commands import port_inputs
from npu_upgrade.ground.files import sha256, write_json
from npu_upgrade.job.conflicts import FROM_PORT, conflicts_in, without
from npu_upgrade.job.job import Job, start_job
from npu_upgrade.lineage.marker_places import NOTE
from npu_upgrade.lineage.marking import MARKER

AR = f"{NPU_WORKER}/npu_ar_model_runner.py"
GPU_AR = f"{GPU_WORKER}/gpu_ar_model_runner.py"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortWorld:
    made = PortWorld(tmp_path)
    monkeypatch.chdir(made.workspace)
    return made


def ledger(world: PortWorld) -> dict[str, dict[str, Any]]:
    return json.loads((world.workspace / ".npu-upgrade" / "port.json").read_text())["hunks"]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_list_holds_what_the_gpu_side_gained(world: PortWorld) -> None:
    before = everything(world.omni)
    code, data, _ = world.port()
    found = {hunk["group"]: hunk["tier"] for hunk in data["hunks"]}
    assert code == 0, data
    assert found == {"ar.__init__": 1, "ar.run": 1, "ar.needs_payload": 1, "ar.pick": 3}
    assert data["counts"] | {"tier 1": 3, "tier 2": 0, "tier 3": 1} == data["counts"]
    assert data["next"].endswith("--top")
    assert everything(world.omni) == before


def test_the_same_list_is_not_made_twice(world: PortWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.port()[1]
    again = world.port()[1]  # the ledger has them since
    looked: list[object] = []
    read = port_inputs.read
    monkeypatch.setattr(port_inputs, "read", lambda args: (looked.append(args), read(args))[1])
    assert (world.port()[1], first["hunks"], looked) == (again, again["hunks"], [])
    for edited in (world.omni / GPU_AR, world.old / GPU_AR):
        edited.write_text(f"{edited.read_text()}\n# moved\n")
        world.port()
    assert len(looked) == 2


@pytest.mark.parametrize(
    ("talk", "listed"),
    [
        ("super().talk(batch)", False),
        ("if batch:\n            super().talk(batch)", True),
        ("self.said = batch", True),
    ],
)
def test_what_the_npu_side_has_by_going_on_to_the_gpu_side_is_not_listed(
    tmp_path: Path, talk: str, listed: bool
) -> None:
    new = f"{GPU_BASE}        self.heard = self.count(batch)\n"
    files = omni_files(GPU_AR_OLD, gpu_base=new)
    base = f"{NPU_WORKER}/npu_model_runner.py"
    files[base] = (
        f"{files[base].rstrip()}\n\n    def talk(self, batch):\n        {talk}\n        self.hold(batch)\n"
    )
    assert ("base.talk" in PortWorld(tmp_path, files=files).hunks()) is listed


def test_what_only_follows_vllm_is_left_out(world: PortWorld) -> None:
    _, data, _ = world.port()
    assert not any("StepStats" in (hunk["text"] or "") for hunk in data["hunks"])


def test_without_vllms_change_the_same_statement_is_omnis(tmp_path: Path) -> None:
    world = PortWorld(tmp_path, vllm_new="class GPUModelRunner:\n    def run(self, batch):\n        pass\n")
    assert any("StepStats" in hunk["text"] for hunk in world.port()[1]["hunks"])


def unmarked(world: PortWorld) -> str:
    """The AR runner's file without the markers that the port put there."""
    lines = world.ar.read_text().splitlines(True)
    return "".join(line for line in lines if line.strip() not in (MARKER, NOTE))


def test_a_hunk_comes_with_what_it_needs_and_its_imports(world: PortWorld) -> None:
    hunk = world.hunks()["ar.run"]
    code, data, _ = world.port("--apply", hunk["id"])
    text = unmarked(world)
    assert code == 0, data
    assert "            payload = flatten_payload(payload)\n        self.send(payload)\n" in text
    assert "from vllm_omni.keys import flatten_payload\n" in text
    assert "    def needs_payload(self, batch):\n" in text
    assert "        self.downstream_cache = {}\n" in text
    assert undefined_names(text) == set()
    assert len(data["taken"]) == 3
    assert "3 hunks taken, 2 as others need them" in data["summary"]
    assert {one["group"]: one["needed_by"] for one in data["along"]}["ar.needs_payload"] == [hunk["id"]]


@pytest.mark.parametrize("owner", ["self", "GPUARModelRunner", "cls"])
def test_a_helper_comes_along_however_its_class_is_named(tmp_path: Path, owner: str) -> None:
    helper = "\n    @staticmethod\n    def _is_marked(key):\n        return bool(key)\n"
    decorator = (
        "    @classmethod\n    def needs_payload(cls" if owner == "cls" else "    def needs_payload(self"
    )
    new = GPU_AR_NEW.replace("    def needs_payload(self", decorator) + helper
    new = new.replace("self.downstream_cache.get(key, True)", f"{owner}._is_marked(key)")
    world = PortWorld(tmp_path, files=omni_files(new))
    hunks = world.hunks()
    assert hunks["ar._is_marked"]["tier"] == 1
    code, data, _ = world.port("--apply", hunks["ar.run"]["id"])
    assert code == 0, data
    assert "def _is_marked(key):" in world.ar.read_text()


def test_in_the_checkout_of_a_job_its_own_next_step_comes_next(world: PortWorld) -> None:
    identity = {"version": "1.0"}
    source = {"spec": "pypi:vllm-omni==1.0", "identity": identity}
    start_job(world.omni, omni=source, ascend=source, repo=world.omni)
    _, data, _ = world.port("--top")
    assert data["next"].startswith("upgrade.py merge")


def in_job(world: PortWorld, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job of the checkout, which is the current folder."""
    target = {"spec": f"git:{world.ascend}@HEAD", "identity": {"version": "1.0"}}
    omni = {"spec": "pypi:vllm-omni==1.0", "identity": {}}
    monkeypatch.chdir(world.omni)
    return start_job(world.omni, omni=omni, ascend=target, repo=world.omni)


def test_in_a_job_its_checkout_and_its_target_are_meant(
    world: PortWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_job(world, monkeypatch)
    sides = ("--vllm", f"dir:{world.vllm}", "--since", f"dir:{world.old}")
    code, data, _ = upgrade("port", *sides, "--top")
    assert (code, len(data["taken"])) == (0, 3)
    assert "def needs_payload" in world.ar.read_text()
    code, data, _ = upgrade("port", "--omni", f"dir:{world.omni}", *sides)
    assert (code, data["try"]) == (2, "--omni SPEC --ascend SPEC")


def test_a_second_look_in_a_job_knows_what_was_passed_over_before(
    world: PortWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = in_job(world, monkeypatch)
    for before, tier in ((f"dir:{world.old}", 1), (f"dir:{world.omni}", 3)):
        write_json(job.folder / "port.json", {"since": {"spec": f"dir:{world.old}", "before": before}})
        _, data, _ = upgrade("port", "--vllm", f"dir:{world.vllm}")
        method = next(one for one in data["hunks"] if one["unit"].endswith(".needs_payload"))
        assert (method["tier"], data["since"]["before"]) == (tier, before)


def test_what_is_named_from_the_list_of_a_job_is_taken_as_without_a_list(
    world: PortWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = in_job(world, monkeypatch)
    sides = ("--vllm", f"dir:{world.vllm}", "--since", f"dir:{world.old}")
    code, all_, _ = upgrade("port", *sides)
    rows = {row["group"]: row for row in all_["hunks"]}
    names = ("ar.needs_payload", "ar.__init__")
    untouched, results = world.ar.read_text(), []
    for listed in (True, False):
        world.ar.write_text(untouched)
        if not listed:
            (job.folder / "port.json").unlink()
            (world.omni / ".npu-upgrade" / "port.json").unlink()
        code, data, _ = upgrade("port", *sides, "--group", *names, "--callers-by-hand")
        assert code == 0
        left = sorted(row["id"] for row in data["hunks"])
        results.append((world.ar.read_text(), sorted(data["taken"]), left))
    assert results[0] == results[1]
    assert results[0][1] == sorted(rows[name]["id"] for name in names)


def test_without_a_job_what_is_left_is_listed_next(world: PortWorld) -> None:
    assert " port --omni " in world.port("--top")[1]["next"]


def test_everything_else_stays_byte_for_byte(world: PortWorld) -> None:
    before = world.ar.read_text().split("\n")
    world.port("--top")
    after = world.ar.read_text().split("\n")
    left = iter(after)
    assert all(line in left for line in before), "a line of ours went or moved"


def test_what_was_taken_is_ported_in_the_next_list(world: PortWorld) -> None:
    world.port("--top")
    _, data, _ = world.port()
    assert {hunk["group"] for hunk in data["hunks"]} == {"ar.pick"}
    states = {entry["unit"].partition(".")[2]: entry["state"] for entry in ledger(world).values()}
    assert states == {"__init__": "ported", "run": "ported", "needs_payload": "ported", "pick": "open"}


def test_what_a_person_ported_is_seen(world: PortWorld) -> None:
    world.port()
    text = world.ar.read_text().replace("  # ours\n", "\n        self.downstream_cache = dict()\n")
    tail = "\n    def needs_payload(self, batch):\n        return True\n"
    world.ar.write_text(text.replace("= dict()", "= {}") + tail)
    world.port()
    states = {entry["unit"].partition(".")[2]: entry["state"] for entry in ledger(world).values()}
    assert states == {"__init__": "ported", "run": "open", "needs_payload": "ported", "pick": "open"}


def test_a_group_is_taken_together(world: PortWorld) -> None:
    code, data, _ = world.port("--group", "ar.__init__")
    assert (code, len(data["taken"])) == (0, 1)
    assert "downstream_cache" in world.ar.read_text()


def test_a_hunk_with_an_unknown_name_is_refused_with_its_text(world: PortWorld) -> None:
    wanted = world.hunks()
    before = everything(world.omni)
    code, data, _ = world.port("--apply", wanted["ar.pick"]["id"])
    refused = data["refused"][0]
    assert code == 1
    assert "self.model" in refused["reason"]
    assert "def pick" in refused["text"]
    assert everything(world.omni) == before


def test_an_import_inside_a_hunk_of_what_the_npu_side_calls_otherwise_is_refused(tmp_path: Path) -> None:
    """The name is translated, and stands in another module there."""
    vllm = "from vllm.graph import CUDAGraphWrapper"
    for number, (module, refused) in enumerate((("CUDAGraphWrapper", True), ("Other", False))):
        late = f"{vllm.replace('CUDAGraphWrapper', module)}\n        {module}.clear()\n"
        gained = f"    def shutdown(self):\n        {late}"
        root = tmp_path / str(number)
        root.mkdir()
        world = PortWorld(root, omni_files(f"{GPU_AR_OLD}\n{gained}"))
        write_tree(world.vllm, {"vllm/graph.py": "class CUDAGraphWrapper: ...\n\n\nclass Other: ...\n"})
        hunk = world.hunks()["ar.shutdown"]
        assert ("ACLGraphWrapper of vllm.graph" in "".join(hunk["reasons"])) is refused
        code, data, _ = world.port("--apply", hunk["id"])
        assert (code, bool(data["refused"])) == (int(refused), refused)


def test_the_rest_is_taken_when_one_is_refused(world: PortWorld) -> None:
    hunks = world.hunks()
    code, data, _ = world.port("--apply", hunks["ar.pick"]["id"], hunks["ar.__init__"]["id"])
    assert code == 1
    assert data["taken"] == [hunks["ar.__init__"]["id"]]
    assert "downstream_cache" in world.ar.read_text()


def test_a_hunk_without_a_place_is_refused(tmp_path: Path) -> None:
    changed = GPU_AR_OLD.replace(
        "payload = self.pack(states)", "payload = self.pack(states, self.stage_name)"
    )
    npu = NPU_AR.replace("payload = self.pack(states)", "payload = self.encode(states.cpu())")
    world = PortWorld(tmp_path, omni_files(changed, npu))
    hunk = world.hunks()["ar.run"]
    code, data, _ = world.port("--apply", hunk["id"])
    assert (hunk["tier"], code) == (3, 1)
    assert data["refused"][0]["reason"]


def test_what_does_not_combine_is_left_as_a_conflict_of_a_method_that_is_taken_whole(tmp_path: Path) -> None:
    steps = "        payload = self.pack(states)\n        self.send(payload)\n"
    theirs = (
        "        parcel = self.pack(states, True)\n        self.ship(parcel)\n        payload = parcel.load\n"
    )
    ours = "        payload = self.encode(states.cpu())\n        self.push(payload)\n"
    counted = (
        "        tokens = self.count(batch)\n",
        "        tokens = self.count(batch)\n        self.mark(tokens)\n",
    )
    changed, npu = GPU_AR_OLD.replace(steps, theirs).replace(*counted), NPU_AR.replace(steps, ours)
    world = PortWorld(tmp_path, omni_files(changed, npu))
    assert world.port()[1]["drafts"][0]["conflicts"] == 1
    code, data, _ = world.port("--group", "ar.run", "--conflicts")
    assert (code, [one["unit"] for one in data["methods"]]) == (0, ["NPUARModelRunner.run"]), data
    text = world.ar.read_text()
    (conflict,) = conflicts_in(text, AR, {})
    assert conflict.reason == FROM_PORT
    assert [f"{side}\n" for side in conflict.texts] == [steps, ours, theirs]
    gained = f"        {NOTE}\n        self.mark(tokens)\n"
    marked = ("            tokens += 1\n", f"            tokens += 1\n{gained}")
    assert without(text, conflict, ours) == npu.replace(*marked)


def test_conflicts_come_with_the_imports_that_an_answer_needs(tmp_path: Path) -> None:
    steps = "        payload = self.pack(states)\n        self.send(payload)\n"
    theirs = "        parcel = flatten_payload(states)\n        self.ship(parcel)\n        payload = parcel\n"
    ours = "        payload = self.encode(states.cpu())\n        self.push(payload)\n"
    line = "from vllm_omni.keys import flatten_payload\n"
    changed = GPU_AR_OLD.replace("from vllm_omni.worker", f"{line}from vllm_omni.worker", 1)
    world = PortWorld(tmp_path, omni_files(changed.replace(steps, theirs), NPU_AR.replace(steps, ours)))
    code, data, _ = world.port("--group", "ar.run", "--conflicts")
    text = world.ar.read_text()
    assert code == 0, data
    (conflict,) = conflicts_in(text, AR, {})
    assert text.count(line) == 1
    assert undefined_names(without(text, conflict, theirs)) == set()


def test_a_method_and_what_it_calls_are_put_in_together(tmp_path: Path) -> None:
    steps = "        payload = self.pack(states)\n        self.send(payload)\n"
    theirs = "        parcel = self.wrap(states)\n        self.ship(parcel)\n        payload = parcel.load\n"
    ours = "        payload = self.encode(states.cpu())\n        self.push(payload)\n"
    wrap = "\n    def wrap(self, states):\n        return self.stage_name, states\n"
    changed, npu = GPU_AR_OLD.replace(steps, theirs) + wrap, NPU_AR.replace(steps, ours)
    world = PortWorld(tmp_path, omni_files(changed, npu))
    names = ("--group", "ar.wrap", "ar.run", "--conflicts", "--callers-by-hand")
    code, data, _ = world.port(*names)
    assert (code, [*data["ported"].values()]) == (0, ["ar.wrap"]), data
    assert [one["unit"] for one in data["methods"]] == ["NPUARModelRunner.run"]
    assert (data["hunks"], data["drafts"]) == ([], [])
    text = world.ar.read_text()
    assert data["left"][AR] == sha256(text)
    (conflict,) = conflicts_in(text, AR, {})
    assert [f"{side}\n" for side in conflict.texts] == [steps, ours, theirs]
    assert wrap in text


def test_a_base_class_comes_with_the_method_that_sets_it_up(tmp_path: Path) -> None:
    """Each needs the other, and the method does not fit by itself: it is put in as a whole."""
    head, name = (
        "class GPUARModelRunner(OmniGPUModelRunner):",
        "        self.stage_name = config.stage_name\n",
    )
    fields = "        self.ledger = None\n        self.ledger_open = False\n"
    mixin = "class LedgerMixin:\n    def open_ledger(self):\n        self.ledger = None\n\n"
    mixin += "    def write_ledger(self, batch):\n        self.ledger = batch\n"
    used = "        speech = self.talk(batch)\n", "        self.write_ledger(batch)\n"
    old = GPU_AR_OLD.replace(name, name + fields)
    new = GPU_AR_OLD.replace(name, f"{name}        self.open_ledger()\n").replace(used[0], "".join(used))
    new = new.replace(head, head.replace("):", ", LedgerMixin):"))
    new = new.replace(
        "from vllm_omni.worker", "from vllm_omni.ledger import LedgerMixin\nfrom vllm_omni.worker", 1
    )
    ours = "        self.ledger = config.ledger\n        self.ledger_open = config.opens\n"
    npu = NPU_AR.replace("config.stage_name  # ours\n", f"config.stage_name  # ours\n{ours}")
    files = {"vllm_omni/ledger.py": mixin}
    world = PortWorld(tmp_path, omni_files(new, npu) | files, omni_files(old) | files)
    hunks = {one["group"]: one for one in world.port()[1]["hunks"]}
    assert hunks["ar.__init__"]["id"] in hunks["ar.NPUARModelRunner"]["needs"]
    data = world.port("--group", "ar.NPUARModelRunner", "ar.__init__", "--conflicts", "--callers-by-hand")[1]
    text = world.ar.read_text()
    assert "class NPUARModelRunner(OmniNPUModelRunner, LedgerMixin):" in text, data
    assert "self.open_ledger()" in text
    assert [one["unit"] for one in data["methods"]] == ["NPUARModelRunner.__init__"]


def test_what_it_brings_into_a_copied_method_stands_between_markers(tmp_path: Path) -> None:
    """Of a method of omni's own nothing is marked, nor what stood without markers before."""
    calls = "        tokens = self.count(batch)\n"
    changed = GPU_AR_OLD.replace(calls, f"{calls}        self.mark(tokens)\n        self.note(tokens)\n")
    changed = changed.replace('{"hidden": states}', '{"hidden": states, "mark": self.marks}')
    helpers = "\n    def mark(self, tokens):\n        self.marks = tokens\n"
    helpers += "\n    def note(self, tokens):\n        pass\n"
    world = PortWorld(tmp_path, omni_files(changed + helpers, NPU_AR))
    groups = ("ar.run", "ar.pack", "ar.mark", "ar.note")
    code, data, _ = world.port("--group", *groups)
    assert code == 0, data
    text = world.ar.read_text()
    assert text.count(MARKER) == 2
    assert text.split(MARKER)[1].strip() == "self.mark(tokens)\n        self.note(tokens)"


def test_where_all_that_is_named_fits_there_is_nothing_to_combine(tmp_path: Path) -> None:
    wrap = "\n    def wrap(self, states):\n        return self.stage_name, states\n"
    world = PortWorld(tmp_path, omni_files(GPU_AR_OLD + wrap, NPU_AR))
    code, data, _ = world.port("--group", "ar.wrap", "--conflicts", "--callers-by-hand")
    assert (code, [*data["ported"].values()]) == (0, ["ar.wrap"]), data
    assert wrap in world.ar.read_text()


@pytest.mark.parametrize(
    "given", [("--conflicts",), ("--top", "--conflicts"), ("--group", "ar.pack", "--conflicts")]
)
def test_a_method_that_is_taken_whole_has_to_be_named_and_to_lack_something(
    world: PortWorld, given: tuple[str, ...]
) -> None:
    before = everything(world.omni)
    assert world.port(*given)[0] == 2
    assert everything(world.omni) == before


def test_a_method_of_which_nearly_all_would_be_one_conflict_is_not_taken_whole(tmp_path: Path) -> None:
    changed = GPU_AR_OLD.replace(
        "        self.sent = payload\n", "        self.sent = self.out.put(payload)\n"
    )
    npu = NPU_AR.replace("        self.sent = payload\n", "        self.kept.add(payload)\n")
    assert PortWorld(tmp_path, omni_files(changed, npu)).port()[1]["drafts"] == []


def test_where_the_npu_side_went_another_way_is_not_the_first_tier(tmp_path: Path) -> None:
    steps = "".join(f"        self.gpu_step_{n}(batch, tokens)\n" for n in range(8))
    before = GPU_AR_OLD.replace(
        "        payload = self.pack(states)\n", f"{steps}        payload = self.pack(states)\n"
    )
    gained = "        self.talk(tokens)\n"
    after = before.replace("        self.send(payload)\n", f"{gained}        self.send(payload)\n")
    world = PortWorld(tmp_path, omni_files(after), omni_files(before))
    hunk = world.hunks()["ar.run"]
    assert (hunk["tier"], hunk["reasons"]) == (2, ["the NPU side does not follow the GPU side here"])
    followed = NPU_AR.replace(
        "        payload = self.pack(states)\n", f"{steps}        payload = self.pack(states)\n"
    )
    world.ar.write_text(followed)
    assert world.hunks()["ar.run"]["tier"] == 1


@pytest.mark.parametrize(
    ("gains", "reads", "tier"),
    [("", "batch.marked", 3), ("        self.talk(tokens)\n", "batch.marked", 1), ("", "batch.other", 1)],
)
def test_what_vllm_ascend_sets_and_reads_is_not_only_dropped(
    tmp_path: Path, gains: str, reads: str, tier: int
) -> None:
    """The GPU side dropped a statement that vllm-ascend's own runner has, for its worker."""
    marked, send = "        batch.marked = self.count(batch)\n", "        self.send(payload)\n"
    before, after = (GPU_AR_OLD.replace(send, f"{more}{send}") for more in (marked, gains))
    end = "        return self.forward(batch, tokens)\n"
    world = PortWorld(
        tmp_path,
        omni_files(after, NPU_AR.replace(send, f"{marked}{send}")),
        omni_files(before, NPU_AR.replace(send, f"{marked}{send}")),
        ascend_new=ASCEND.replace(end, f"{marked}{end}"),
    )
    worker = f"def run(batch):\n    return {reads}\n"
    commit_at(world.ascend, "2026-01-02", {"vllm_ascend/worker/worker.py": worker})
    hunk = world.hunks()["ar.run"]
    assert hunk["tier"] == tier, hunk
    said = ["only drops what vllm-ascend sets and reads: batch.marked = self.count(batch)"]
    assert hunk["reasons"] == (said if tier == 3 else [])


IDLE = """import torch


def flatten_payload(payload):
    if payload is None or not torch.cuda.is_available():
        return payload
    return payload.cuda()
"""


@pytest.mark.parametrize(
    ("keys", "tier"),
    [
        (IDLE, 3),
        (IDLE.replace("is None or", "is None and"), 1),
        (IDLE.replace("return payload\n    return", "payload = [payload]\n    return"), 1),
    ],
)
def test_what_does_nothing_without_cuda_is_no_gain_for_the_npu_side(
    tmp_path: Path, keys: str, tier: int
) -> None:
    world = PortWorld(tmp_path, omni_files(GPU_AR_NEW) | {"vllm_omni/keys.py": keys})
    hunk = next(one for one in world.hunks().values() if "flatten_payload" in one["text"])
    assert hunk["tier"] == tier
    said = ["calls flatten_payload, which does nothing without torch.cuda"]
    assert hunk["reasons"] == (said if tier == 3 else [])


@pytest.mark.parametrize(
    ("call", "npu_init", "tier"),
    [
        ("        self.init_duplex(config)\n", "", 1),
        ("        self.init_duplex(config)\n", "        self.init_duplex(config.own)\n", 1),
        ("        self.init_duplex(config, self.absent)\n", "", 3),
        ("", "", 1),
    ],
)
def test_a_base_class_is_worth_no_more_than_the_call_that_sets_it_up(
    tmp_path: Path, call: str, npu_init: str, tier: int
) -> None:
    named = "        self.stage_name = config.stage_name"
    gpu = GPU_AR_OLD.replace("(OmniGPUModelRunner)", "(OmniGPUModelRunner, Duplex)").replace(
        f"{named}\n", f"{named}\n{call}"
    )
    gpu = "from vllm_omni.duplex import Duplex\n" + gpu
    mixin = "class Duplex:\n    def init_duplex(self, config):\n        self.duplex = config\n"
    npu = NPU_AR.replace(f"{named}  # ours\n", f"{named}  # ours\n{npu_init}")
    world = PortWorld(tmp_path, files=omni_files(gpu, npu) | {"vllm_omni/duplex.py": mixin})
    hunks = world.hunks()
    base = hunks["ar.NPUARModelRunner"]
    assert base["tier"] == tier
    if call and not npu_init:
        assert base["needs"] == [hunks["ar.__init__"]["id"]]
    if tier == 1:
        world.port("--apply", base["id"])
        assert "(OmniNPUModelRunner, Duplex)" in world.ar.read_text()
        assert ("self.init_duplex(" in world.ar.read_text()) is bool(call)


@pytest.mark.parametrize(("npu_has", "tier"), [(False, 2), (True, 1)])
def test_a_base_class_that_the_gpu_side_has_long_used_is_half_of_a_feature(
    tmp_path: Path, npu_has: bool, tier: int
) -> None:
    mixin = "class Duplex:\n    def listen(self, batch):\n        self.heard = batch\n"
    used = ("        self.send(payload)\n", "        self.listen(batch)\n        self.send(payload)\n")
    duplex = {"vllm_omni/duplex.py": mixin}
    gpu = GPU_AR_OLD.replace("(OmniGPUModelRunner)", "(OmniGPUModelRunner, Duplex)").replace(*used)
    gpu = "from vllm_omni.duplex import Duplex\n" + gpu
    npu = NPU_AR.replace(*used) if npu_has else NPU_AR
    world = PortWorld(tmp_path, omni_files(gpu, npu) | duplex, omni_files(gpu, npu) | duplex)
    base = world.hunks()["ar.NPUARModelRunner"]
    assert base["tier"] == tier
    said = ["half of a feature: the GPU side has long used listen of it too"]
    assert base["reasons"] == (said if tier == 2 else [])


def test_out_leaves_the_checkout_alone(world: PortWorld) -> None:
    before = everything(world.omni)
    out = world.root / "out"
    code, data, _ = world.port("--top", "--out", str(out))
    assert code == 0, data
    assert everything(world.omni) == before
    assert [Path(path) for path in data["files"]] == [out / AR]
    ast.parse((out / AR).read_text())
    assert (
        world.port("--group", "ar.__init__", "--out", str(out))[0] == 0
    )  # what a port wrote may be replaced


def test_what_is_taken_has_the_style_of_the_project(world: PortWorld) -> None:
    plain, styled = (world.root / name for name in ("plain", "styled"))
    world.port("--top", "--out", str(plain))
    (world.omni / "pyproject.toml").write_text("[tool.ruff]\nline-length = 40\n[tool.ruff.format]\n")
    world.port("--top", "--out", str(styled))
    before, after = ((folder / AR).read_text() for folder in (plain, styled))
    assert before != after
    assert ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))


def test_a_file_edited_in_out_is_not_overwritten(world: PortWorld) -> None:
    out = world.root / "out"
    world.port("--top", "--out", str(out))
    (out / AR).write_text((out / AR).read_text() + "# mine\n")
    code, data, _ = world.port("--top", "--out", str(out))
    assert (code, "edited" in data["error"]) == (2, True)
    assert (out / AR).read_text().endswith("# mine\n")


def test_a_checkout_that_is_not_at_the_ref_is_not_overwritten(world: PortWorld) -> None:
    git_at(world.omni, "2026-02-01", "init", "-q", "-b", "main")
    commit_at(world.omni, "2026-02-01", {"README.md": "omni\n"})
    world.ar.write_text(world.ar.read_text() + "# mine\n")
    code, data, _ = world.port("--top", omni=f"git:{world.omni}@main")
    assert (code, "edited since" in data["error"]) == (2, True)
    assert world.ar.read_text().endswith("# mine\n")


def test_a_git_checkout_at_the_ref_is_changed_in_place(world: PortWorld) -> None:
    git_at(world.omni, "2026-02-01", "init", "-q", "-b", "main")
    commit_at(world.omni, "2026-02-01", {"README.md": "omni\n"})
    assert world.port("--top", omni=f"git:{world.omni}@main")[0] == 0
    assert git_at(world.omni, "2026-02-01", "status", "--porcelain") == f"M {AR}"


def test_another_tree_can_be_the_gpu_side(world: PortWorld) -> None:
    npu_only = write_tree(world.root / "lagging", omni_files(GPU_AR_OLD))
    assert world.port(omni=f"dir:{npu_only}")[1]["hunks"] == []
    _, data, _ = world.port("--gpu", f"dir:{world.omni}", omni=f"dir:{npu_only}")
    assert {hunk["group"] for hunk in data["hunks"]} >= {"ar.run", "ar.__init__"}


# -- the ledger --


def test_a_waived_hunk_is_not_listed_and_not_taken(world: PortWorld) -> None:
    hunk = world.hunks()["ar.__init__"]
    assert upgrade("resolve", hunk["id"], "--waive", "--workspace", str(world.workspace))[0] == 2
    waive = ("--waive", "--note", "not on this device", "--workspace", str(world.workspace))
    assert upgrade("resolve", hunk["id"], *waive)[0] == 0
    _, data, _ = world.port()
    assert "ar.__init__" not in {other["group"] for other in data["hunks"]}
    assert (
        ledger(world)[hunk["id"]] | {"state": "waived", "note": "not on this device"}
        == ledger(world)[hunk["id"]]
    )
    assert "ar.__init__" not in world.hunks()
    assert world.hunks()["ar.run"]["reasons"] == [f"needs {hunk['id']}, which is not to be taken"]
    assert world.port("--top")[1]["taken"] == []
    assert hunk["id"] in world.port("--group", "ar.run")[1]["taken"]


def test_a_hunk_that_was_written_by_hand_is_asked_for_no_more(world: PortWorld) -> None:
    hunk = world.hunks()["ar.__init__"]
    word = ("--by-hand", "--workspace", str(world.workspace))
    assert upgrade("resolve", hunk["id"], *word)[0] == 2
    world.ar.write_text(world.ar.read_text() + "\n    downstream_cache = None\n")
    assert upgrade("resolve", hunk["id"], *word, "--note", "a class attribute")[0] == 0
    for _ in range(2):
        assert "ar.__init__" not in world.hunks()
    kept = ledger(world)[hunk["id"]]
    assert (kept["state"], kept["note"]) == ("by-hand", "a class attribute")
    assert hunk["id"] not in world.port("--top")[1]["taken"]
    assert world.ar.read_text().count("downstream_cache = ") == 1


def test_an_open_hunk_survives_into_the_next_upgrade(world: PortWorld) -> None:
    hunk = world.hunks()["ar.__init__"]
    newer = GPU_AR_NEW.replace('{"hidden": states}', '{"hidden": states, "step": self.step}')
    (world.omni / GPU_AR).write_text(newer)
    between = write_tree(world.root / "between", omni_files(GPU_AR_NEW))
    code, data, _ = world.port(since=f"dir:{between}")
    found = {other["group"]: other for other in data["hunks"]}
    assert code == 0
    assert found["ar.__init__"]["id"] == hunk["id"]
    assert found["ar.__init__"]["carried"]
    assert not found["ar.pack"]["carried"]
    assert world.port("--apply", hunk["id"], since=f"dir:{between}")[0] == 0
    assert "downstream_cache" in world.ar.read_text()


def test_a_hunk_waits_for_a_method_that_is_on_another_branch(world: PortWorld) -> None:
    hunk, text = world.hunks()["ar.__init__"], world.ar.read_text()
    world.ar.write_text(text.replace("def __init__(", "def begin("))
    between = write_tree(world.root / "between", omni_files((world.omni / GPU_AR).read_text()))
    code, data, err = world.port(since=f"dir:{between}")
    assert code == 0, err
    assert hunk["id"] not in [one["id"] for one in data["hunks"]]
    world.ar.write_text(text)
    assert hunk["id"] in [one["id"] for one in world.port(since=f"dir:{between}")[1]["hunks"]]


def test_an_open_hunk_over_two_depths_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = "        if batch.last:\n            self.send(batch)\n"
    more = "            self.stage_name = batch.name\n        self.sent = batch.name\n"
    gained = GPU_AR_OLD.replace("        payload = ", f"{block}{more}        payload = ")
    plain = [
        text.replace("        payload = ", f"{block}        payload = ") for text in (GPU_AR_OLD, NPU_AR)
    ]
    world = PortWorld(tmp_path, files=omni_files(gained, plain[1]), old_files=omni_files(plain[0]))
    monkeypatch.chdir(world.workspace)
    hunk = world.hunks()["ar.run"]
    between = write_tree(world.root / "between", omni_files(gained))
    code, data, _ = world.port(since=f"dir:{between}")
    assert code == 0, data
    assert [(one["id"], one["carried"]) for one in data["hunks"]] == [(hunk["id"], True)]
    assert world.port("--top", since=f"dir:{between}")[0] == 0
    assert f"{block}{more}" in unmarked(world)


def test_what_the_gpu_side_dropped_again_is_gone(world: PortWorld) -> None:
    hunk = world.hunks()["ar.__init__"]
    (world.omni / GPU_AR).write_text(GPU_AR_NEW.replace("        self.downstream_cache = {}\n", ""))
    assert "ar.__init__" not in world.hunks()
    assert ledger(world)[hunk["id"]]["state"] == "gone"


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "chagne"},
        {"state": "opne"},
        {"kind": "base", "new": ""},
        {"new": 'text = """never closed'},
        {"old": ")]}", "new": "(("},
        {"unit": 3},
        {"since": None},
    ],
)
def test_a_broken_ledger_is_refused_and_kept(world: PortWorld, damage: dict[str, Any]) -> None:
    hunk = world.hunks()["ar.__init__"]
    path = world.workspace / ".npu-upgrade" / "port.json"
    held = json.loads(path.read_text())
    held["hunks"][hunk["id"]] |= damage
    path.write_text(json.dumps(held))
    written = path.read_bytes()
    code, data, _ = world.port(since=f"dir:{world.omni}")
    assert (code, "port.json" in data["error"]) == (2, True), data
    assert path.read_bytes() == written


@pytest.mark.parametrize("text", ['{"schema": "else"}', "", "[]", "{", "\udcff"])
def test_what_is_no_ledger_is_refused_and_kept(world: PortWorld, text: str) -> None:
    path = world.workspace / ".npu-upgrade" / "port.json"
    path.parent.mkdir()
    path.write_text(text, errors="surrogateescape")
    written = path.read_bytes()
    code, data, _ = world.port()
    assert (code, "port.json" in data["error"]) == (2, True)
    assert path.read_bytes() == written


# -- bad input: exit 2, one message, nothing written --


def refused(world: PortWorld, result: tuple[int, dict[str, Any], str], *words: str) -> None:
    code, data, _ = result
    assert code == 2, data
    assert {"error", "expected", "try"} <= set(data)
    text = " ".join((data["error"], data["expected"], data["try"]))
    assert all(word in text for word in words), text
    assert everything(world.workspace) == {}


def test_not_a_vllm_omni_tree(world: PortWorld) -> None:
    refused(world, world.port(omni=f"dir:{world.vllm}"), "not a vllm-omni tree")
    refused(world, world.port("--gpu", f"dir:{world.vllm}"), "GPU runners", "is missing")


def test_since_without_gpu_runners(world: PortWorld) -> None:
    refused(world, world.port(since=f"dir:{world.vllm}"), "GPU runners", "is missing")


def test_since_newer_than_the_gpu_side(world: PortWorld) -> None:
    for folder, version in ((world.omni, "0.20.0"), (world.old, "0.22.0")):
        (folder / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nVersion: {version}\n")
    refused(world, world.port(), "newer than the GPU side")


def test_an_unknown_id_names_the_nearest(world: PortWorld) -> None:
    hunk = world.hunks()["ar.__init__"]
    code, data, _ = world.port("--apply", hunk["id"][:-1] + "x")
    assert (code, data["try"]) == (2, hunk["id"])
    code, data, _ = world.port("--group", "ar.__int__")
    assert (code, data["try"]) == (2, "ar.__init__")


def test_an_unfinished_merge(world: PortWorld) -> None:
    world.ar.write_text("<<<<<<< mine\n=======\n>>>>>>> theirs\n" + world.ar.read_text())
    refused(world, world.port(), "conflict markers")


def test_a_runner_file_that_is_not_python(world: PortWorld) -> None:
    (world.omni / GPU_AR).write_text("def broken(:\n")
    refused(world, world.port(), GPU_AR, "not Python")


def test_usage(world: PortWorld) -> None:
    refused(world, world.port("--waive", "port-1"), "--waive")
    refused(world, world.port("--out", "out"), "--top")
    refused(world, world.port("--top", omni="pypi:vllm-omni==0.20.0"), "--out DIR")


def test_a_place_that_cannot_be_written(world: PortWorld) -> None:
    (world.root / "file").write_text("in the way")
    refused(world, world.port("--top", "--out", str(world.root / "file")), "is a file")
    (world.root / "out").mkdir()
    (world.root / "out" / "vllm_omni").write_text("in the way")
    code, data, _ = world.port("--top", "--out", str(world.root / "out"))
    assert (code, "vllm_omni" in data["error"]) == (2, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_locked_checkout(world: PortWorld) -> None:
    world.ar.parent.chmod(0o500)
    before = world.ar.read_text()
    code, data, _ = world.port("--top")
    world.ar.parent.chmod(0o700)
    assert (code, "cannot write" in data["error"]) == (2, True)
    assert world.ar.read_text() == before
