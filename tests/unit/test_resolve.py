"""`next` hands out what is open one at a time; `resolve` takes the answer, checks it and writes it."""

from __future__ import annotations

import io
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lineage_kit import NPU_WORKER, RUNNERS, commit_at, git_at
from merge_kit import CONFLICTING, DAY, OURS, World, audit, made_once, started, upgrade

from npu_upgrade.cli import main as cli
from npu_upgrade.code.module import parse_module
from npu_upgrade.commands import asking, resolve
from npu_upgrade.commands.asking import _by_name, _page
from npu_upgrade.commands.next_text import as_asked
from npu_upgrade.commands.port import _write_by_method
from npu_upgrade.delivery.upgrade import _by_hand
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.paths import SKILL
from npu_upgrade.job import answer, answer_checks, stops
from npu_upgrade.job import check as job_check
from npu_upgrade.job.ask import (
    FINDING,
    WAIVE,
    WITH,
    Ask,
    _brought_by,
    _finding,
    _item,
    asks,
    bases_behind,
    called_and_new,
    combined,
    gains_of,
    methods_behind,
    taken_with,
)
from npu_upgrade.job.check import _reason
from npu_upgrade.job.conflicts import open_conflicts
from npu_upgrade.job.job import Job, open_job
from npu_upgrade.job.journal import Answer, Begun, Journal
from npu_upgrade.job.plan_file import load_plan, plan_path
from npu_upgrade.job.port_ledger import Ledger
from npu_upgrade.job.stages import Walk
from npu_upgrade.merge.gone import GONE
from npu_upgrade.port.moved_on import moved_on
from npu_upgrade.sources.tree import open_source

BASE = RUNNERS[0].path
WORKER = f"{NPU_WORKER}/base.py"
ANSWER_TEXT = "        self.record(stats.of(logits.cpu()))\n"
DEEPER = " " * 12


@pytest.fixture
def world(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> World:
    """An upgrade that is applied to a checkout, with one conflict. Made once, and put back for each test."""
    world = made_once(folders, lambda folder: started(folder, monkeypatch, CONFLICTING))
    monkeypatch.chdir(world.omni)
    return world


def ask() -> dict[str, Any]:
    return upgrade("next")[1]["ask"]


def give(text: str, *more: str, monkeypatch: pytest.MonkeyPatch, id_: str = "") -> tuple[int, dict[str, Any]]:
    """Answer what is asked with ``text`` on stdin."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return upgrade("resolve", id_ or ask()["id"], "--with", "-", *more)[:2]


def job_of(world: World) -> Job:
    return open_job(world.omni)


def text_of(world: World) -> str:
    return (world.omni / BASE).read_text()


def test_a_conflict_is_handed_out_with_all_that_is_needed(world: World) -> None:
    code, data, _ = upgrade("next")
    asked = data["ask"]
    assert (code, asked["stage"], data["left"]) == (0, "conflict", {"conflict": 1})
    assert (asked["base"], asked["ours"]) == (
        "        self.record(logits)",
        "        self.record(logits.cpu())",
    )
    assert asked["theirs"] == "        self.record(stats.of(logits))"
    lines = text_of(world).split("\n")
    assert lines[asked["place"]["first_line"] - 1].startswith("<<<<<<< ")
    assert lines[asked["place"]["last_line"] - 1].startswith(">>>>>>> ")
    assert asked["place"]["unit"] == "OmniNPUModelRunner.run"
    assert data["next"].startswith(f"upgrade.py resolve {asked['id']} --with FILE")


def test_asking_twice_gives_the_same_and_changes_nothing(world: World) -> None:
    def state() -> dict[str, bytes]:
        return {
            str(p): p.read_bytes()
            for p in sorted(world.omni.rglob("*"))
            if p.is_file() and ".git/" not in str(p) and p.name != "calls.jsonl"
        }

    before, first = state(), upgrade("next")[:2]
    assert (upgrade("next")[:2], state()) == (first, before)


@pytest.mark.parametrize("side", ["ours", "theirs", "base"])
def test_a_side_is_taken(world: World, side: str) -> None:
    asked = ask()
    code, data, _ = upgrade("resolve", asked["id"], "--take", side)
    assert (code, data["plan"]["verdict"]) == (0, "PASS")
    assert asked[side] + "\n" in text_of(world)
    assert "<<<<<<<" not in text_of(world)


def test_an_answer_is_written_checked_and_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, data = give(ANSWER_TEXT, "--note", "both", monkeypatch=monkeypatch)
    assert (code, data["written"], data["plan"]["verdict"]) == (0, True, "PASS")
    assert ANSWER_TEXT in text_of(world)
    (kept,) = (world.omni / ".npu-upgrade" / "answers").glob("*.json")
    assert json.loads(kept.read_text())["answers"][0]["answer"].strip() == ANSWER_TEXT.strip()
    assert job_of(world).journal.answers()[0].note == "both"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("        self.record(\n", "does not parse"),
        ("        self.record(statz)\n", "nothing defines statz"),
        ("<<<<<<< mine\n        pass\n", "holds conflict markers"),
        ("<<<<<<< a\n        pass\n||||||| b\n=======\n        pass\n>>>>>>> c\n", "holds conflict markers"),
        (
            "        pass\n\n    def run(self):\n        pass\n    def run2(self, batch):\n",
            "nothing defines logits",
        ),
        (f"        # --- Omni-new ---\n{ANSWER_TEXT}", "markers of OmniNPUModelRunner.run do not pair"),
        (
            f"{ANSWER_TEXT}        return logits\n\n\ndef more(self, logits):\n    if logits:\n",
            "the method OmniNPUModelRunner.talk would be gone",
        ),
    ],
)
def test_a_bad_answer_is_refused_and_nothing_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    before = text_of(world)
    code, data = give(text, monkeypatch=monkeypatch)
    assert (code, data["written"]) == (1, False)
    assert problem in data["problems"][0], data["problems"]
    assert text_of(world) == before
    assert job_of(world).journal.of(Answer) == []


def test_omni_code_that_an_answer_keeps_keeps_its_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, kept = "            # --- Omni-new ---\n", "            self.say(one)\n"
    head, tail = "        for one in logits:\n", "            self.record(one)\n"
    ours = OURS.replace("        self.record(logits)\n", head + fence + kept + fence + tail)
    world = started(tmp_path, monkeypatch, ours)
    before = text_of(world)
    code, data = give(tail, monkeypatch=monkeypatch)
    assert (code, data["written"], text_of(world)) == (1, False, before)
    assert "its Omni-new markers are not" in data["problems"][0]
    assert give(fence + tail, monkeypatch=monkeypatch)[0] == 0


def test_an_import_that_the_answer_needs_comes_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "        self.record(cdiv(stats.of(logits), 2))\n"
    assert give(text, monkeypatch=monkeypatch)[0] == 1
    code, _ = give(text, "--import", "from vllm.utils import cdiv", monkeypatch=monkeypatch)
    assert code == 0
    assert text_of(world).count("from vllm.utils import cdiv\n") == 1
    code, data, _ = upgrade("resolve", "x", "--import", "cdiv")
    assert (code, "nothing open" in data["error"]) == (2, True)


def test_markers_around_omni_code_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = CONFLICTING.replace(
        "        self.record(logits.cpu())\n",
        "        # ------- Omni-new -------\n        self.record(self.say(logits.cpu()))\n"
        "        # ------- Omni-new -------\n",
    )
    started(tmp_path, monkeypatch, ours)
    asked = ask()
    if "Omni-new" not in asked["ours"]:
        pytest.skip("the merge keeps these markers outside the conflict")
    code, data = give("        self.record(self.say(logits.cpu()))\n", monkeypatch=monkeypatch)
    assert (code, "markers" in data["problems"][0]) == (1, True)


def test_an_unpaired_marker_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    code, data = give("        # ------- Omni-new -------\n" + ANSWER_TEXT, monkeypatch=monkeypatch)
    assert (code, "do not pair" in data["problems"][0]) == (1, True)


def test_a_file_that_changed_meanwhile_is_not_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    id_, path = ask()["id"], world.omni / BASE
    path.write_text(path.read_text() + "# mine\n")
    code, data = give(ANSWER_TEXT, monkeypatch=monkeypatch, id_=id_)
    assert (code, "was changed since" in data["error"]) == (2, True)
    assert path.read_text().endswith("# mine\n")
    upgrade("plan")
    assert give(ANSWER_TEXT, monkeypatch=monkeypatch, id_=id_)[0] == 0
    assert path.read_text().endswith("# mine\n")


def test_a_conflict_whose_sides_were_edited_is_another_one(world: World) -> None:
    id_, path = ask()["id"], world.omni / BASE
    path.write_text(path.read_text().replace("logits.cpu()", "logits.gpu()"))
    upgrade("plan")
    assert upgrade("resolve", id_, "--take", "ours")[0] == 2
    asked = ask()
    assert (asked["id"] != id_, "edited by hand" in asked["what"]) == (True, True)
    assert upgrade("resolve", asked["id"], "--take", "ours")[0] == 0


def test_an_answer_is_taken_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before, id_ = text_of(world), ask()["id"]
    give(ANSWER_TEXT, monkeypatch=monkeypatch)
    code, data, _ = upgrade("resolve", "--undo", id_)
    assert (code, data["plan"]["verdict"]) == (0, "FAIL")
    assert text_of(world) == before
    assert not list((world.omni / ".npu-upgrade" / "answers").glob("*.json"))
    assert ask()["id"] == id_
    assert upgrade("resolve", "--undo", id_)[0] == 2


def test_an_answer_is_taken_back_under_a_later_edit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    id_, path = ask()["id"], world.omni / BASE
    give(ANSWER_TEXT, monkeypatch=monkeypatch)
    path.write_text(path.read_text() + "# mine\n")
    assert upgrade("resolve", "--undo", id_)[0] == 0
    assert ("<<<<<<<" in path.read_text(), path.read_text().endswith("# mine\n")) == (True, True)
    upgrade("resolve", id_, "--take", "theirs")
    path.write_text(path.read_text().replace("stats.of(logits)", "stats.of(logits).cpu()"))
    code, data, _ = upgrade("resolve", "--undo", id_)
    assert (code, "by hand" in data["problems"][0]) == (1, True)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ([], "no answer"),
        (["--accept", "--note", "x"], "in a word"),
        (["--take", "mine"], "--take"),
        (["--with", "no-such-file"], "cannot read"),
        (["--take", "ours", "--with", "x"], "not allowed"),
    ],
)
def test_wrong_usage_is_told(world: World, options: list[str], wrong: str) -> None:
    before = text_of(world)
    code, data, _ = upgrade("resolve", ask()["id"], *options)
    assert (code, wrong in data["error"]) == (2, True), data
    assert text_of(world) == before


def test_what_is_open_and_answered_is_listed(world: World) -> None:
    id_ = ask()["id"]
    code, data, _ = upgrade("resolve", "--list")
    assert (code, [one["id"] for one in data["open"]], data["answered"]) == (0, [id_], [])
    upgrade("resolve", id_, "--take", "theirs")
    data = upgrade("resolve", "--list")[1]
    assert (data["open"], [one["how"] for one in data["answered"]]) == ([], ["theirs"])
    assert "answered already" in upgrade("resolve", id_, "--take", "ours")[1]["error"]


def test_an_answer_says_which_gates_have_to_run_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = ask()["id"]
    upgrade("resolve", id_, "--take", "theirs")
    audit(world)
    code, data, _ = upgrade("resolve", "--undo", id_)
    assert (code, data["gates_to_run"]) == (0, ["audit"])


def test_a_finding_is_answered_with_a_method_or_waived(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that does not fit any more: the audit names it, a corrected method mends it."""
    give(
        "        self.record(stats.missing(logits.cpu()))\n        self.load(1, 2, 3)\n",
        monkeypatch=monkeypatch,
    )
    for kind in ("look", "port"):
        upgrade("next", "--skip", kind, "--note", "not here")
    code, data, _ = audit(world)
    assert code == 1, data
    asked = ask()
    assert (asked["stage"], asked["place"]["unit"]) == ("finding", "OmniNPUModelRunner.run")
    assert upgrade("resolve", asked["id"], "--waive")[0] == 2
    assert upgrade("resolve", asked["id"], "--waive", "--note", "x", "--until", "soon")[0] == 2
    fixed = (
        parse_module(text_of(world))
        .units[asked["place"]["unit"]]
        .source.replace("        self.load(1, 2, 3)\n", "")
        .replace("missing", "of")
    )
    code, data = give(fixed, monkeypatch=monkeypatch, id_=asked["id"])
    assert (code, data["gates_to_run"]) == (0, ["audit"]), data
    assert "upgrade.py audit" in upgrade("next")[1]["next"]
    assert audit(world)[0] == 0


def audited_beside_a_call_that_does_not_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    give("        self.record(logits)\n        self.load(1, 2, 3)\n", monkeypatch=monkeypatch)
    for kind in ("look", "port", "emulate"):
        upgrade("next", "--skip", kind, "--note", "not here")
    audit(world)


@pytest.mark.parametrize(
    ("replace", "code"),
    [
        ({"        self.load(1, 2, 3)\n": ""}, 0),
        ({"self.load(1, 2)": "self.load()"}, 2),  # stands nowhere
    ],
)
def test_a_finding_is_answered_with_small_changes_of_its_method(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: dict[str, str], code: int
) -> None:
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    before, answers = text_of(world), tmp_path / "answers.yaml"
    id_ = ask()["id"]
    answers.write_text(json.dumps([{"id": id_, "answer": "with", "replace": replace}]))
    assert upgrade("resolve", "--from", str(answers))[0] == code
    expected = before.replace("        self.load(1, 2, 3)\n", "") if code == 0 else before
    assert text_of(world) == expected
    answers.write_text(json.dumps([{"id": id_, "answer": "waive", "note": "x", "replace": replace}]))
    assert upgrade("resolve", "--from", str(answers))[0] == 2


def test_a_waiver_is_taken_whatever_text_stands_before_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text changes the file, and with it goes what the last audit found there."""
    give(
        "        self.record(stats.missing(logits.cpu()))\n        self.load(1, 2, 3)\n",
        monkeypatch=monkeypatch,
    )
    for kind in ("look", "port", "emulate"):
        upgrade("next", "--skip", kind, "--note", "not here")
    found = {one["subject"]: one["key"] for one in audit(world)[1]["findings"] if one["state"] == "NEW"}
    (load,), (missing,) = (
        [key for subject, key in found.items() if word in subject] for word in ("load", "missing")
    )
    given = [
        {"id": load, "answer": "with", "replace": {"        self.load(1, 2, 3)\n": ""}},
        {"id": missing, "answer": "waive", "note": "never taken"},
    ]
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps(given))
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert code == 0, done
    assert done["summary"].startswith("2 answers")
    assert audit(world)[0] == 0


@pytest.mark.parametrize(("by_port", "code"), [(True, 0), (False, 2)])
def test_conflicts_that_port_left_are_answered_at_once(world: World, by_port: bool, code: int) -> None:
    """What it wrote is no edit by hand, that somebody had to look at first."""
    path = world.omni / BASE
    path.write_text("# written by port\n" + path.read_text())
    left = {BASE: sha256(path.read_text())} if by_port else {}
    (job_of(world).folder / "port.json").write_text(json.dumps({"hunks": [], "left": left}))
    (conflict,) = open_conflicts(world.omni, load_plan(job_of(world)))
    assert upgrade("resolve", conflict.id, "--take", "theirs")[0] == code


def test_a_file_beside_the_runners_is_corrected_by_an_answer(world: World) -> None:
    upgrade("resolve", ask()["id"], "--take", "theirs")
    worker = "vllm_omni/platforms/npu/worker/npu_worker.py"
    (world.omni / worker).write_text("class Worker:\n    def start(self):\n        return 1\n")
    job = job_of(world)
    asked = Ask("finding", "f-1", "what", worker, "Worker.start")
    text = "def start(self):\n    return 2\n"
    done = answer.to_methods(job, load_plan(job), asked, text, [], "it returns two")
    assert done.problems == []
    assert "        return 2\n" in (world.omni / worker).read_text()
    gone = Ask("finding", "f-1", "what", "vllm_omni/nowhere.py", "Worker.start")
    with pytest.raises(BadInput, match="is not a file of this upgrade"):
        answer.to_methods(job, load_plan(job), gone, text, [], "x")


def test_an_edit_that_is_accepted_with_other_answers_needs_no_check_before_them(world: World) -> None:
    id_, path, answers = ask()["id"], world.omni / BASE, world.workspace / "answers.json"
    path.write_text(f"{text_of(world)}# ours\n")
    taken = {"id": id_, "answer": "theirs"}
    answers.write_text(json.dumps([taken]))
    assert upgrade("resolve", "--from", str(answers))[0] == 2, "nobody says that the edit is meant"
    add_item(world, "flag")
    accepted = {"id": "flag-1", "answer": "accept", "note": "told apart"}
    answers.write_text(json.dumps([taken, accepted]))
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert (code, "<<<<<<<" in text_of(world), text_of(world).endswith("# ours\n")) == (0, False, True), data


def test_a_finding_of_files_that_were_edited_since_can_still_be_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is corrected is taken at its word, until the next audit tells."""
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    id_ = ask()["id"]
    (world.omni / BASE).write_text(f"{text_of(world)}# ours\n")
    assert upgrade("resolve", id_, "--accept", "--note", "corrected")[0] == 0
    assert upgrade("resolve", "--undo", id_)[0] == 0
    assert upgrade("resolve", id_, "--waive", "--note", "never taken")[0] == 0
    upgrade("plan")
    data = audit(world)[1]
    assert next(one["state"] for one in data["findings"] if one["key"] == id_) == "WAIVED"


@pytest.mark.parametrize("word", ["accept", "waive"])
def test_a_finding_that_an_edit_closed_and_an_audit_has_not_any_more_costs_the_other_answers_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    path, before = world.omni / BASE, open_job(world.omni).records()[-1]
    own = "    def load_two(self):\n        return self.load_quietly_now(1, 2)\n"
    path.write_text(text_of(world).replace("self.load(1, 2, 3)", "self.load_two()") + "\n" + own)
    left = {one["key"] for one in audit(world)[1]["findings"] if one["state"] == "NEW"}
    id_ = next(key for key in before.data["failing"] if key not in left)
    answers = world.workspace / "answers.json"
    given = {"id": id_, "answer": word, "note": "it takes two since 0.28"}
    answers.write_text(json.dumps([given]))
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert (code, data["closed_by_edits"]) == (0, [id_]), data
    assert ("OmniNPUModelRunner.load_two" in data["summary"]) == (word == "accept")
    answers.write_text(json.dumps([given | {"id": "parity-hooks-0000000000"}]))
    assert upgrade("resolve", "--from", str(answers))[0] == 2, "no audit found that"


def test_the_reason_of_a_correction_is_the_reason_of_what_was_written_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked twice why a method was edited: of the finding, and of the method."""
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    id_, path = ask()["id"], world.omni / BASE
    own = "    def load_two(self):\n        return self.load_quietly_now(1, 2)\n"
    path.write_text(text_of(world).replace("self.load(1, 2, 3)", "self.load_two()") + "\n" + own)
    code, data, _ = upgrade("resolve", id_, "--accept", "--note", "it takes two since 0.28")
    assert code == 0, data
    assert "the note is kept as the reason for OmniNPUModelRunner.load_two" in data["summary"]
    answers = world.workspace / "answers.json"
    given = {"id": "OmniNPUModelRunner.load_two", "answer": "accept", "note": "two arguments are left"}
    answers.write_text(json.dumps([given]))
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert code == 0, data
    upgrade("plan")
    assert _by_hand(open_job(world.omni), load_plan(open_job(world.omni))) == [
        ("OmniNPUModelRunner.load_two", "two arguments are left")
    ]
    answers.write_text(json.dumps([given | {"note": "it takes two since 0.28"}]))
    assert upgrade("resolve", "--from", str(answers))[0] == 0
    answers.write_text(json.dumps([given | {"id": "OmniNPUModelRunner.lod_two"}]))
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert (code, data["error"]) == (2, "no method OmniNPUModelRunner.lod_two in the files of the job")
    job = open_job(world.omni)
    assert _by_hand(job, load_plan(job)) == [("OmniNPUModelRunner.load_two", "it takes two since 0.28")]
    upgrade("plan")
    assert not [one for one in asks(job, load_plan(job), job.records()) if one.id.startswith("edited-")]


def test_a_reason_is_kept_of_a_method_in_which_nothing_is_of_ones_own_hand(world: World) -> None:
    """What was written there the target or the GPU side has too: nobody asks about it."""
    upgrade("resolve", ask()["id"], "--take", "theirs")
    unit = "OmniNPUModelRunner.run"
    answers = world.workspace / "answers.json"
    for note in ("it goes on to vllm-ascend's own", "as vllm-ascend does"):
        answers.write_text(json.dumps([{"id": unit, "answer": "accept", "note": note}]))
        code, data, _ = upgrade("resolve", "--from", str(answers))
        assert (code, f"the reason is kept for {unit}" in data["summary"]) == (0, True), data
        job = open_job(world.omni)
        assert _by_hand(job, load_plan(job)) == [(unit, note)]
    for note in ("as vllm-ascend does", "a pooling stage unwraps its output"):
        job.journal.add(Answer, id="emulate-eager-pooling", how="accept", stage="finding", note=note)
    assert _by_hand(job, load_plan(job)) == [
        (unit, "as vllm-ascend does"),
        ("for eager pooling, which failed", "a pooling stage unwraps its output"),
    ], "what was written for a failed run is said, where no method has the same reason"


def test_each_method_that_was_written_by_hand_gets_the_reason_that_is_about_it() -> None:
    said = [("A.load", "it takes two"), ("A.run", "dummy_run has no ids"), ("", "of no method")]
    edited = {"A.load": "self._sizes()", "A._sizes": "return 2"}
    assert _reason("A.load", said, edited) == "it takes two"
    assert _reason("B.dummy_run", said, edited) == "dummy_run has no ids"
    assert _reason("A._sizes", said, edited) == "for load: it takes two", (
        "it is called where that was corrected"
    )
    assert _reason("A.other", said, edited) == "came with: it takes two"
    assert _reason("C.other", said, edited) == "came with: it takes two; of no method"
    told = [("A.one", "the talker's graphs"), ("A.two", "which rows are duplex rows")]
    assert _reason("A.more", told, {"A.more": "return self.input_duplex_rows"}) == f"came with: {told[1][1]}"
    called = {"A.help": "", "B.run": "self.help()", "A.run": "self.help()"}
    assert _reason("A.help", [("B.run", "as in A"), ("A.run", "it hangs")], called) == "for run: it hangs"
    told = [("A.run", "a pooling stage leaves out the cache"), ("A.draw", "duplex hook before the sampler")]
    edited = {"A.update": "self.update_duplex_rows()", "A.run": "self.update()", "A.draw": ""}
    assert _reason("A.update", told, edited) == f"came with: {told[1][1]}", "it was always called there"
    both = {"A.help": "", "B.help": "", "B.run": "self.help()"}
    assert _reason("A.help", [("B.run", "as in C")], both) == "came with: as in C", "B has a help of its own"


def test_a_waived_finding_counts_no_more_and_is_named_by_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    for _ in range(5):
        data = upgrade("next")[1]
        if data.get("step") != "answer":
            break
        assert upgrade("resolve", data["ask"]["id"], "--waive", "--note", "never taken")[0] == 0
    assert "upgrade.py audit" in data["next"]
    assert audit(world)[0] == 0
    code, data, _ = upgrade("deliver", "--repo", str(world.omni))
    assert code == 0, data
    message = git_at(world.omni, DAY, "log", "-1", "--format=%B")
    assert ("never taken" in message, "- emulate: not here" in message) == (True, True)
    assert "Waived findings (" in message


def test_a_new_method_goes_to_the_end_of_the_class(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from npu_upgrade.job.answer_edits import with_methods

    upgrade("resolve", ask()["id"], "--take", "theirs")
    text, names = with_methods(
        text_of(world), "OmniNPUModelRunner", 'def sing(self):\n    return """a\nb"""\n'
    )
    assert names == ["OmniNPUModelRunner.sing"]
    assert text.rstrip().endswith('    def sing(self):\n        return """a\nb"""')
    text, names = with_methods(text, "OmniNPUModelRunner", "    def sing(self):\n        return 2\n")
    assert (text.count("def sing"), "return 2" in text) == (1, True)


@pytest.mark.parametrize(
    "given", ["x = 1", "", "class A:\n    pass", "  def f(self):\n    pass\n x = 1", "def f(:"]
)
def test_what_is_no_method_is_refused(world: World, given: str) -> None:
    from npu_upgrade.ground.errors import BadInput
    from npu_upgrade.job.answer_edits import with_methods

    upgrade("resolve", ask()["id"], "--take", "theirs")
    with pytest.raises(BadInput):
        with_methods(text_of(world), "OmniNPUModelRunner", given)


@pytest.mark.parametrize("column", [0, 2, 4])
def test_a_method_is_taken_at_any_indentation_with_its_docstring(
    world: World, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npu_upgrade.job.answer_edits import with_methods

    upgrade("resolve", ask()["id"], "--take", "theirs")
    lines = ["def sing(self):", '    """Sing.', "", "    Loudly.", '    """', '    return """a', 'b"""']
    given = "\n".join(" " * column + one if one and one != 'b"""' else one for one in lines)
    if column == 2:  # what stands left of it is no docstring
        given = given.replace('"""a\nb"""', '"a"')
    text, _ = with_methods(text_of(world), "OmniNPUModelRunner", given + "\n")
    assert '    def sing(self):\n        """Sing.\n\n        Loudly.\n        """\n        return ' in text
    assert ('"""a\nb"""' in text) is (column != 2)


def test_small_changes_find_the_method_of_a_question_that_names_a_caller(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    answers, id_ = tmp_path / "answers.yaml", ask()["id"]
    asked = Ask("finding", id_, "what", BASE, "NPUWorker.start")
    monkeypatch.setattr(resolve, "_open", lambda job, found, id_: asked)
    line = "        self.load(1, 2, 3)\n"
    answers.write_text(json.dumps([{"id": "other", "answer": "with", "replace": {line: ""}, "note": "two"}]))
    assert upgrade("resolve", "--from", str(answers))[0] == 0
    assert line not in text_of(world)


def test_how_a_block_of_yaml_begins_deeper_is_told(world: World, tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    entry = f"- id: {ask()['id']}\n  answer: with\n  text: %s\n          deeper()\n        less()\n"
    answers.write_text(entry % "|")
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert (code, "`text: |2`" in data["try"]) == (2, True)
    answers.write_text(entry % "|2")
    assert "parsing" not in json.dumps(upgrade("resolve", "--from", str(answers))[1])


def test_small_changes_are_made_in_each_method_that_a_list_of_questions_is_about(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    answers, id_, path = tmp_path / "answers.yaml", ask()["id"], world.omni / BASE
    line = "        self.load(1, 2, 3)\n"
    more = "".join(f"\n    def {name}(self):\n{line}        return 1\n" for name in ("up", "down"))
    path.write_text(text_of(world) + more)
    upgrade("plan")
    found = {name: Ask("finding", id_, "what", BASE, f"OmniNPUModelRunner.{name}") for name in ("up", "down")}
    found["same"] = found["up"]
    monkeypatch.setattr(resolve, "_open", lambda job, asks, id_: found[id_])
    given = {"id": ["up", "same", "down"], "answer": "with", "replace": {line: ""}, "note": "no more"}
    answers.write_text(json.dumps([given]))
    before = text_of(world).count(line)
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert code == 0, done
    assert text_of(world).count(line) == before - 2


def test_an_item_about_a_class_can_be_answered_with_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Runner(Base):\n    def step(self):\n        return 1\n")
    entry = {"id": "gone-1", "path": "a.py", "blocking": True, "finding": "attributes-1"}
    titles = ("a.py: Runner reads self.x", "a.py: Runner.step reads self.x", "a.py: upstream lost x")
    asks = [_item(entry | {"title": title}, tmp_path) for title in titles]
    assert [one.unit for one in asks] == ["Runner.", "Runner.step", ""]
    assert [one.how[0] for one in asks] == [WITH, WITH, WAIVE]


# -- when a person is needed --


def failing_plan(world: World, times: int, same: bool) -> None:
    """Runs of the plan that fail, each over other contents of the file."""
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "theirs")
    for number in range(times):
        name = "nobody" if same else f"nobody{number}"
        path.write_text(path.read_text() + f"X{number} = {name}\n")
        upgrade("plan")


def test_the_same_findings_after_a_change_need_a_person(world: World) -> None:
    failing_plan(world, stops.UNSAID - 1, same=True)
    assert "stop" not in upgrade("next")[1], "the edits may have had another reason"
    (world.omni / BASE).write_text(text_of(world) + "Y = nobody\n")
    upgrade("plan")
    code, data, _ = upgrade("next")
    assert (code, data["stop"]["rule"]) == (4, "unchanged")
    assert any("FAIL" in line for line in data["stop"]["tried"])
    assert upgrade("next")[1] == data
    code, data, _ = upgrade("next", "--continue")
    assert (code, "--note" in data["error"]) == (2, True)


@pytest.mark.parametrize(("stage", "stops_it"), [("finding", False), ("port", False), ("conflict", True)])
def test_a_plan_after_an_answer_to_another_gate_is_no_try(world: World, stage: str, stops_it: bool) -> None:
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "theirs")
    job = open_job(world.omni)
    for number in range(stops.UNSAID):
        path.write_text(path.read_text() + f"X{number} = nobody\n")
        job.journal.add(Answer, id=f"audit-{number}", how="with", stage=stage)
        upgrade("plan")
    assert ("stop" in upgrade("next")[1]) == stops_it


def test_findings_that_are_answered_since_need_no_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were edited for another reason, and the same findings: their waivers come after."""
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    for number in range(stops.UNSAID):
        (world.omni / BASE).write_text(f"{text_of(world)}# {number}\n")
        upgrade("plan")
        audit(world)
    assert upgrade("next")[1]["stop"]["rule"] == "unchanged"
    given = [
        {"id": one, "answer": "waive", "note": "never"}
        for one in open_job(world.omni).records()[-1].data["failing"]
    ]
    answers = world.workspace / "answers.json"
    answers.write_text(json.dumps(given))
    assert upgrade("resolve", "--from", str(answers))[0] == 0
    assert "stop" not in upgrade("next")[1]


@pytest.mark.parametrize("word", ["accept", "waive"])
def test_the_same_findings_after_one_was_said_to_be_corrected_need_a_person_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    audited_beside_a_call_that_does_not_fit(world, monkeypatch)
    job = open_job(world.omni)
    (world.omni / BASE).write_text(f"{text_of(world)}# ours\n")
    evidence = job.records()[-1].id
    job.journal.add(Answer, id="audit-1", how=word, stage="finding", evidence=evidence)
    upgrade("plan")
    audit(world)
    assert ("stop" in upgrade("next")[1]) == (word == "accept")


def test_what_waits_for_an_answer_is_no_try(world: World) -> None:
    """An open item, and files that are edited meanwhile for another reason."""
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "theirs")
    add_item(world, "gone")
    for number in range(stops.ROUNDS + 1):
        path.write_text(path.read_text() + f"X{number} = 1\n")
        assert upgrade("plan")[1]["verdict"] == "FAIL"
    assert "stop" not in upgrade("next")[1]


def test_versions_that_cannot_be_loaded_together_are_for_a_person(world: World) -> None:
    add_item(world, "pair")
    code, data, _ = upgrade("next")
    assert (code, data["stop"]["rule"], data["stop"]["tried"]) == (4, "pair", ["on pypi:vllm==9: 2 fail"])
    assert upgrade("next", "--continue", "--note", "the GPU side follows tomorrow")[0] == 0
    item = next(item for item in load_plan(open_job(world.omni)).items if item["kind"] == "pair")
    assert (item["state"], item["note"]) == ("done", "the GPU side follows tomorrow")
    assert "stop" not in upgrade("next")[1]


def add_item(world: World, kind: str) -> None:
    path = plan_path(open_job(world.omni))
    plan = json.loads(path.read_text())
    detail = "on pypi:vllm==9: 2 fail\n  vllm_omni/a.py: vllm has no b in vllm.c"
    item = {
        "id": f"{kind}-1",
        "kind": kind,
        "title": "what is open",
        "detail": detail,
        "path": "",
        "note": "",
    }
    plan["items"].insert(0, item | {"blocking": True, "state": "open", "finding": "", "changes": []})
    path.write_text(json.dumps(plan))


def test_a_person_lets_it_go_on(world: World) -> None:
    failing_plan(world, stops.UNSAID, same=True)
    code, data, _ = upgrade("next", "--continue", "--note", "I know")
    assert (code, data["step"]) == (1, "change")
    assert "undefined names: nobody" in data["why"]
    assert upgrade("next")[1]["step"] == "change"
    code, data, _ = upgrade("next", "--continue", "--note", "again")
    assert (code, "nothing has stopped" in data["error"]) == (2, True)


def test_progress_is_no_reason_to_stop(world: World) -> None:
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "theirs")
    clean = path.read_text()
    path.write_text(clean + "X = one + two\n")
    upgrade("plan")
    path.write_text(clean)
    upgrade("plan")
    path.write_text(clean + "X = one + two\n")
    upgrade("plan")
    assert upgrade("next")[1]["step"] == "change"


def test_rounds_without_progress_need_a_person(world: World) -> None:
    failing_plan(world, stops.ROUNDS + 1, same=False)
    assert upgrade("next")[1]["stop"]["rule"] in ("rounds", "unchanged")


def test_a_method_that_is_mostly_in_dispute_needs_a_person() -> None:
    lines = "\n".join(f"        a{n} = self.f{n}()" for n in range(20))
    other = lines.replace("self.f", "self.g")
    text = (
        "class A:\n    def run(self):\n        x = 1\n"
        f"<<<<<<< ours\n{other}\n||||||| base\n        pass\n=======\n{lines}\n"
        ">>>>>>> theirs\n        return x\n"
    )
    ((name, share, count),) = stops.disputed(text, "a.py")
    assert (name, count, share > stops.DISPUTED) == ("A.run", 23, True)


# -- the journal --


def test_half_a_line_counts_for_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add(Answer, id="a", how="x")
    with journal.path.open("ab") as stream:
        stream.write(b'{"number": 9, "at"')
    assert [entry.id for entry in journal.of(Answer)] == ["a"]
    journal.add(Answer, id="b", how="x")
    assert [(entry.id, entry.number) for entry in journal.of(Answer)] == [("a", 1), ("b", 2)]


def test_only_what_is_open_can_be_skipped(world: World) -> None:
    assert upgrade("next", "--skip", "plan", "--note", "x")[0] == 2
    assert upgrade("next", "--skip", "emulate")[0] == 2
    upgrade("next", "--skip", "emulate", "--note", "no room")
    assert job_of(world).skipped == {"emulate": "no room"}


def test_a_gate_that_cannot_judge_is_not_repeated_for_ever(world: World) -> None:
    upgrade("resolve", ask()["id"], "--take", "theirs")
    for kind in ("look", "port"):
        upgrade("next", "--skip", kind, "--note", "not here")
    code, data, _ = upgrade("audit", "--vllm", "dir:no-such-folder")
    assert code == 2
    code, data, _ = upgrade("next")
    assert (code, data["stop"]["rule"]) == (4, "cannot run")
    edited = world.omni / BASE
    before, later = edited.stat(), time.time() + 60
    os.utime(edited, (later, later))
    assert upgrade("next")[0] == 0, "the files were edited since: it may judge now"
    os.utime(edited, (before.st_atime, before.st_mtime))
    assert upgrade("next")[0] == 4
    assert upgrade("next", "--continue", "--note", "the folder is there now")[0] == 0


def test_a_step_that_is_broken_off_again_and_again(world: World) -> None:
    journal = job_of(world).journal
    codes = []
    for _ in range(stops.BROKEN_OFF):
        journal.add(Begun, stage="emulate", command=["upgrade.py", "emulate"], pid=2**22 + 1, born=1.0)
        codes.append(upgrade("next")[0])
    assert codes == [*[0] * (stops.BROKEN_OFF - 1), 4]


def test_two_way_markers_are_asked_about_as_plan_counts_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of(world)
    start, end = text.index("|||||||"), text.index("=======")
    (world.omni / BASE).write_text(text[:start] + text[end:])
    code, data, _ = upgrade("plan")
    assert (code, data["conflicts_open"]) == (1, 1)
    asked = ask()
    assert (asked["stage"], {"base", "ours", "theirs"} & set(asked)) == ("conflict", {"ours", "theirs"})
    assert upgrade("resolve", asked["id"], "--take", "base")[0] == 2
    assert give(ANSWER_TEXT, monkeypatch=monkeypatch)[0] == 0
    assert "<<<<<<<" not in text_of(world)


# -- what belongs together --


def two_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of two items of one method that a job's plan has open."""
    world = started(tmp_path, monkeypatch, CONFLICTING)
    give(ANSWER_TEXT, monkeypatch=monkeypatch)
    path = job_of(world).folder / "plan.json"
    path = path if path.exists() else Path(job_of(world).out) / "plan.json"
    plan = json.loads(path.read_text())
    for number in (1, 2):
        title = f"{BASE}: OmniNPUModelRunner.run: thing {number}"
        item = {"id": f"flag-{number}", "kind": "both-added", "title": title, "detail": "d" * 20}
        plan["items"].append(item | {"path": BASE, "blocking": True, "state": "open", "note": ""})
    path.write_text(json.dumps(plan))
    upgrade("plan")
    return ["flag-1", "flag-2"]


def test_the_flags_of_a_method_are_handed_out_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_flags(tmp_path, monkeypatch)
    code, data, _ = upgrade("next")
    assert (code, data["ask"]["id"], [one["id"] for one in data["with_it"]]) == (0, first, [second])
    assert data["next"].startswith("upgrade.py resolve --from FILE")
    assert len(json.dumps(data)) < 6000
    answers = tmp_path / "answers.yaml"
    answers.write_text(data["answers_file"])
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert (code, done["plan"]["verdict"]) == (0, "PASS")


def test_what_a_run_with_graphs_would_fail_by_is_told_once_with_the_first_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails by each of these, one after the other, costs more than to read them."""
    calls = []

    def unlike(walk: Walk, told: str, said: str = "") -> dict[str, list[str]]:
        calls.append(told)
        return {"unlike_upstream": [told, "run calls winch"]}

    monkeypatch.setattr(asking, "_unlike_upstream", unlike)
    first, _ = two_flags(tmp_path, monkeypatch)
    assert len(calls) == 1
    assert calls[0].endswith("with your first edit")
    data = upgrade("resolve", first, "--accept", "--note", "read")[1]
    assert (len(calls), "unlike_upstream" in data) == (1, False)
    data = upgrade("next")[1]  # which shows again what was shown
    assert (len(calls), data["unlike_upstream"][1]) == (2, "run calls winch")


def test_what_the_old_pair_lacks_too_in_a_merged_method_is_told_with_the_findings(tmp_path: Path) -> None:
    """What the merge brought may need what the old pair could do without."""
    what = "Up.{0}_hook is not called for Own: Gpu.{0} stands in the place of Vllm.{0}, which calls it"
    states = {"update": "LAG", "stop": "LAG", "load": "NEW"}
    rows = [{"check": "unreached", "state": state, "what": what.format(one)} for one, state in states.items()]
    (tmp_path / "audit.json").write_text(json.dumps({"findings": [*rows, {"check": "altered"}]}))
    walk = Walk(
        "job", tmp_path, tmp_path, [], [], (), ("", None), facts={"merged": ["Own.update", "Own.load"]}
    )
    assert asking._lags_in_merged(walk)["lag_in_merged"][1:] == [what.format("update")]
    assert asking._lags_in_merged(replace(walk, facts={"merged": ["Own.load"]})) == {}
    assert asking._lags_in_merged(replace(walk, folder=tmp_path / "none")) == {}


def test_a_replacement_that_a_flag_names_is_not_told_again() -> None:
    told = 'Own.run (own.py:3) calls self.winch(...): replace: {"self.winch(": "A.hoist(self, "}'
    flag = 'own.py:3-9: Own.run: the call; `with` and replace: {"self.winch(": "A.hoist(self, "}'
    assert asking._is_said(told, flag)
    assert not asking._is_said(told, flag.replace("Own.run", "Own.stop"))
    assert not asking._is_said(told, flag.replace("hoist", "lower"))
    assert not asking._is_said("Own.run (own.py:3) calls self.choose() without even", flag)


def test_an_edit_by_hand_is_checked_before_anything_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_flags(tmp_path, monkeypatch)
    file = Path.cwd() / BASE
    file.write_text("# looked at\n" + file.read_text())
    code, data, _ = upgrade("next")
    assert (code, "ask" in data) == (0, False)
    assert data["next"] == "upgrade.py plan"


def test_a_merge_that_was_edited_is_checked_before_anything_is_asked(world: World) -> None:
    text = text_of(world)
    head, tail = text.partition("<<<<<<<")[0], text.rpartition(">>>>>>>")[2].partition("\n")[2]
    add_item(world, "gone-name")
    assert upgrade("next")[1]["step"] == "answer"
    (world.omni / BASE).write_text(head + ANSWER_TEXT + tail)
    data = upgrade("next")[1]
    assert (data["step"], data["next"]) == ("run", "upgrade.py plan")


def test_the_flags_of_a_method_in_conflict_are_named_with_it(world: World) -> None:
    """Whoever edits the method by hand edits it once."""
    path = plan_path(open_job(world.omni))
    plan = json.loads(path.read_text())
    for unit in ("run", "stop"):
        title = f"{BASE}: OmniNPUModelRunner.{unit}: half of a pair"
        item = {"id": f"flag-{unit}", "kind": "parted", "title": title, "detail": "d" * 20, "path": BASE}
        plan["items"].append(item | {"blocking": False, "state": "open", "note": "", "finding": ""})
    path.write_text(json.dumps(plan))
    data = upgrade("next")[1]
    assert data["ask"]["id"].startswith("conflict-")
    assert data["flags_there"] == [f"flag-run: {BASE}: OmniNPUModelRunner.run: half of a pair"]


def test_a_name_of_a_conflict_that_nothing_defines_any_more_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.omni / BASE
    own = "        self.own_thing = self.lost_thing(logits)\n"
    path.write_text(path.read_text().replace("|||||||", f"{own}|||||||", 1))
    monkeypatch.setattr("npu_upgrade.merge.nowhere.vllm_tree", lambda target: target)
    data = upgrade("next")[1]
    assert data["nowhere_any_more"] == ["lost_thing"], (path.read_text(), data)


@pytest.mark.parametrize(("had", "still", "told"), [(10, 2, True), (10, 6, False), (2, 2, False)])
def test_a_conflict_says_what_the_gpu_side_does_there_today(
    world: World, had: int, still: int, told: bool
) -> None:
    path, runner = world.omni / BASE, RUNNERS[0]
    own = [f"        self.step_{number}(logits)\n" for number in range(10)]
    path.write_text(path.read_text().replace("|||||||", f"{''.join(own)}|||||||", 1))
    helper = "\n    def _built(self, logits):\n        return logits\n"
    for number, message in ((had, "as it was"), (still, "the GPU side moves on")):
        steps = f"{''.join(own[:number])}        self._built(logits)\n"
        text = f"class {runner.gpu_class}:\n    def run(self, logits):\n{steps}{helper}"
        (world.omni / runner.gpu_path).write_text(f"# {message}\n{text}")
        git_at(world.omni, DAY, "add", runner.gpu_path)
        git_at(world.omni, DAY, "commit", "-m", message)
    conflicts = open_conflicts(world.omni, load_plan(job_of(world)))
    places = [(one.path, one.method, one.texts) for one in conflicts]
    new, old = (f"git:{world.omni}@{ref}" for ref in ("HEAD", "HEAD~1"))
    said = moved_on(new, places, lambda: open_source(old))
    assert bool(said) is told
    if told:
        assert "has 2 of the 11 statements of ours and calls _built instead" in said[0]
        assert f"({runner.gpu_path}:3-6)" in said[0]
    assert moved_on(new, places, lambda: None) == []


def test_the_example_of_the_runbook_is_a_file_of_answers() -> None:
    page = (SKILL / "references" / "upgrade-runners.md").read_text()
    example = page.partition("```yaml\n- id: conflict")[2].partition("```")[0]
    given = msgspec.yaml.decode(f"- id: conflict{example}", type=list[resolve.Given])
    assert [len(one.ids) for one in given] == [1, 2, 1]
    assert len(given[0].changes) == 2


def test_of_a_change_that_stands_nowhere_the_line_most_like_it_is_named() -> None:
    side = "    run(one)\n    load(two)\n"
    assert (
        resolve._nearest(side, "run(one)\nload(three)") == "; 'load(three)' is not there, and 'load(two)' is"
    )
    assert resolve._nearest(side, "load(two)\nrun(one)").startswith("; each line is there")
    assert resolve._nearest(side, "zzzz") == "; 'zzzz' is not there"


def test_an_answer_that_yaml_took_the_indentation_of_gets_it_back(world: World, tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    block = ANSWER_TEXT.strip()
    answers.write_text(f"- id: {ask()['id']}\n  answer: with\n  note: read\n  text: |\n    {block}\n")
    assert upgrade("resolve", "--from", str(answers))[0] == 0
    assert ANSWER_TEXT in text_of(world)


def test_the_question_that_is_next_ends_what_came_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = two_flags(tmp_path, monkeypatch)
    capsys.readouterr()
    said = [
        (cli.main("upgrade.py", "", [name], [name]), capsys.readouterr().out)
        for name in ("next", "plan", "next")
    ]
    asked, judged, again = [json.loads(text) for _, text in said]
    assert again == asked
    assert judged["next"] == asked["next"]
    assert judged["asked_before"] == [first, second]
    assert "asks" not in judged
    assert "`next` shows them again" in judged["shown"]
    words = ["resolve", first, "--accept", "--note", "read"]
    assert cli.main("upgrade.py", "", ["resolve"], words) == 0
    one_left = json.loads(capsys.readouterr().out)
    assert one_left["asked_before"] == [second]  # it was shown with the first
    assert "asks" not in one_left
    assert second in one_left["next"]
    words[1] = second
    assert cli.main("upgrade.py", "", ["resolve"], words) == 0
    done = json.loads(capsys.readouterr().out)
    assert " next" not in done["next"]
    assert done["next"] == upgrade("next")[1]["next"]


def test_of_a_file_of_answers_all_are_taken_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two_flags(tmp_path, monkeypatch)
    before = (Path.cwd() / BASE).read_text()
    broken = "def run(self, logits):\n    return nothing_defines_this\n"
    entries = [
        {"id": first, "answer": "with", "text": "def run(self, logits):\n    return logits\n"},
        {"id": second, "answer": "with", "text": broken},
    ]
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps(entries))
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert (code, data["written"], list(data["problems"])) == (1, False, [second])
    assert (Path.cwd() / BASE).read_text() == before
    assert [one["id"] for one in upgrade("resolve", "--list")[1]["open"]] == [first, second]
    answers.write_text("- id: x\n  answer: perhaps\n")
    assert upgrade("resolve", "--from", str(answers))[0] == 2


def test_an_answer_to_a_conflict_of_port_that_an_edit_has_closed_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two_flags(tmp_path, monkeypatch)
    job = open_job(Path.cwd())
    path = next(iter(load_plan(job).files))
    put = {"conflict-12345678": {"path": path, "unit": "NPUARModelRunner.run"}}
    (job.folder / "port.json").write_text(json.dumps({"conflicts": put}))
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps([{"id": [first, *put], "answer": "accept", "note": "edited"}]))
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert (code, done["closed_by_edits"]) == (0, [*put])
    (job.folder / "port.json").unlink()
    assert upgrade("resolve", "--from", str(answers))[0] == 2


def test_an_answer_to_what_an_edit_has_closed_since_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_flags(tmp_path, monkeypatch)
    path = next(Path.cwd().rglob("plan.json"))
    plan = json.loads(path.read_text())
    for item in plan["items"]:
        item["state"] = "done" if item["id"] == first else item["state"]
    path.write_text(json.dumps(plan))
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps([{"id": [first, second], "answer": "accept", "note": "read"}]))
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert (code, done["closed_by_edits"]) == (0, [first])
    assert f"an edit has closed it: {first}" in done["summary"]
    assert upgrade("resolve", "--list")[1]["open"] == []
    # what was answered before is no edit's
    assert upgrade("resolve", "--from", str(answers))[0] == 2


@pytest.mark.parametrize("as_file", [True, False])
def test_the_reason_for_a_conflict_that_was_edited_in_its_file_is_kept(
    world: World, tmp_path: Path, as_file: bool
) -> None:
    id_, text = ask()["id"], text_of(world)
    head, tail = text.partition("<<<<<<<")[0], text.rpartition(">>>>>>>")[2].partition("\n")[2]
    (world.omni / BASE).write_text(head + ANSWER_TEXT + tail)
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps([{"id": id_, "answer": "accept", "note": "both sides"}]))
    asked = ("--from", str(answers)) if as_file else (id_, "--accept", "--note", "both sides")
    code, done, _ = upgrade("resolve", *asked)
    assert (code, done["closed_by_edits"], "the note is kept" in done["summary"]) == (0, [id_], True)
    (kept,) = job_of(world).journal.of(Answer)
    assert (kept.path, kept.note, kept.unit) == (BASE, "both sides", "OmniNPUModelRunner.run")
    assert text_of(world) == head + ANSWER_TEXT + tail
    assert upgrade("resolve", *asked)[0] == 2  # it was answered


def test_a_text_that_an_answer_before_it_wrote_already_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_flags(tmp_path, monkeypatch)
    text = "def run(self, logits):\n    return logits\n"
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps([{"id": one, "answer": "with", "text": text} for one in (first, second)]))
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert (code, done["written"]) == (0, True)
    assert (Path.cwd() / BASE).read_text().count("        return logits\n") == 1
    answers.write_text(json.dumps([{"id": second, "answer": "with", "text": text}]))
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert (code, done["problems"]) == (1, {second: ["the answer changes nothing"]})


def test_what_an_agent_reads_of_many_long_questions_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_flags(tmp_path, monkeypatch)
    path = Path(open_job(Path.cwd()).out or "") / "plan.json"
    plan = json.loads(path.read_text())
    kept = "kept()\n" * 400
    sides = "".join(f"--- {role}\n{kept}{role}()\n" for role in ("base", "ours", "theirs"))
    for number in range(20):
        title = f"{BASE}: OmniNPUModelRunner.load: thing {number}"
        item = {
            "id": f"flag-many-{number}",
            "kind": "replaced",
            "title": title,
            "detail": sides,
            "path": BASE,
        }
        plan["items"].append(item | {"blocking": True, "state": "open", "note": ""})
    path.write_text(json.dumps(plan))
    capsys.readouterr()
    assert cli.main("upgrade.py", "", ["next"], ["next"]) == 0
    out = capsys.readouterr().out
    shown = json.loads(out)
    assert len(out) < 6000
    assert "answers" in shown
    two, many = shown["asks"]
    assert two["each"] == {"flag-1": "1", "flag-2": "2"}
    assert two["what"].endswith("OmniNPUModelRunner.run: thing [1]")
    assert list(many["each"]) == [f"flag-many-{number}" for number in range(20)]
    assert many["theirs against base"].endswith("-base()\n+theirs()")
    whole = json.loads(Path(shown["whole_result"]).read_text())
    assert whole["with_it"][1]["text"] == sides
    upgrade("resolve", "flag-1", "--accept", "--note", "read")
    capsys.readouterr()
    assert cli.main("upgrade.py", "", ["next"], ["next"]) == 0
    assert "answers" not in json.loads(capsys.readouterr().out)  # how a file of answers looks is told once


def test_a_place_on_the_other_side_is_named_with_its_folder_once() -> None:
    there = "there: vllm-omni vllm_omni/worker/{}: {}"
    places = ("runner.py:7", "runner.py:9", "other.py:3")
    texts = [there.format(place, f"thing {n}") for n, place in enumerate(places)]
    how = (("--accept",),)
    asks = [
        Ask("finding", f"a{n}-{n}", f"what {n}: w{n}", texts={"text": t}, how=how)
        for n, t in enumerate(texts)
    ]
    _, shown = as_asked(asks, [], {})
    said = json.dumps(shown)
    assert said.count("vllm_omni/worker/") == 1
    assert "vllm-omni" not in said
    assert all(place in said for place in places)


@pytest.mark.parametrize(
    ("gains", "taken", "asked"),
    [("sync", [], []), ("safe", ["port-1"], []), ("all", [], ["port-1", "port-2"])],
)
def test_what_goes_with_an_upgrade_is_chosen_at_its_start(
    world: World, gains: str, taken: list[str], asked: list[str]
) -> None:
    job = job_of(world)
    job.place(scope=gains)
    upgrade("resolve", ask()["id"], "--take", "theirs")
    upgrade("next", "--skip", "look", "--note", "not here")
    hunk = {"path": BASE, "unit": "OmniNPUModelRunner.run", "text": "+ x", "group": "base.run"}
    hunks = [hunk | {"id": "port-1", "tier": 1}, hunk | {"id": "port-2", "tier": 2}]
    (job.folder / "port.json").write_text(json.dumps({"hunks": hunks}))
    data = upgrade("next")[1]
    if asked:
        assert [data["ask"]["id"], *(one["id"] for one in data["with_it"])] == asked
        said = upgrade("resolve", "port-1", "--accept")[1]["summary"]
        assert "1 accepted and not in the files yet" in said
        assert said.endswith("upgrade.py port --apply port-1")
    elif taken:
        assert data["next"].endswith("port --top")
        removed = {"hunks": hunks, "ported": {"port-1": "base.run"}}
        (job.folder / "port.json").write_text(json.dumps(removed))
        assert upgrade("next")[1]["stage"] == "audit"
        (job.folder / "port.json").write_text(json.dumps({"hunks": hunks}))
        job.journal.add(Answer, id="port-1", how="leave", note="not on NPU", stage="port")
        assert upgrade("next")[1]["stage"] == "audit"
    else:
        assert data["stage"] == "audit"


def test_the_file_of_questions_says_the_same_once() -> None:
    text = "the GPU side calls it\nwhy: it is lost\ndo: port it"
    asks = [Ask(FINDING, f"parity-{n}", f"a.py:{n}: one", texts={"text": text}, how=(WAIVE,)) for n in (1, 2)]
    asks.append(Ask(FINDING, "parity-3", "a.py:3: other", texts={"text": text.replace("calls", "reads")}))
    page, where = _page(asks)
    assert {one: page.split("\n")[int(where[one].split("-")[0]) - 1] for one in where} == {
        "parity-1": "## parity-1, parity-2 (waive)",
        "parity-2": "## parity-1, parity-2 (waive)",
        "parity-3": "## parity-3 ()",
    }
    assert where["parity-3"] == "8-12"
    assert page == (
        "## parity-1, parity-2 (waive)\na.py:1: one\na.py:2: one\n"
        "the GPU side calls it\nwhy: it is lost\ndo: port it\n\n"
        "## parity-3 ()\na.py:3: other\nthe GPU side reads it\nwhy: as above\ndo: as above\n"
    )


def test_questions_that_are_not_shown_are_in_a_file_in_full(world: World) -> None:
    job = job_of(world)
    job.place(scope="all")
    upgrade("resolve", ask()["id"], "--take", "theirs")
    upgrade("next", "--skip", "look", "--note", "not here")
    texts = ["".join(f"+ step_{n}_{line}()\n" for line in range(300)) for n in range(30)]
    hunks = [
        {"path": BASE, "unit": f"OmniNPUModelRunner.f{n}", "id": f"port-{n}", "tier": 2, "text": text}
        for n, text in enumerate(texts)
    ]
    (job.folder / "port.json").write_text(json.dumps({"hunks": hunks}))
    data = upgrade("next")[1]
    shown = 1 + len(data["with_it"])
    assert shown < 30
    whole = Path(data["all_questions"]).read_text()
    assert all(text.strip() in whole for text in texts)
    assert whole.count("## port-") == 30
    for n in range(28):
        job.journal.add(Answer, id=f"port-{n}", how="leave", note="-", stage="port")
    assert "all_questions" in upgrade("next")[1]  # the two that are left are shown, and cut
    for hunk in hunks:
        hunk["text"] = "+ step()\n"
    (job.folder / "port.json").write_text(json.dumps({"hunks": hunks}))
    assert "all_questions" not in upgrade("next")[1]


@pytest.mark.parametrize(
    ("unit", "owner"),
    [("A.run", "A"), ("A.run.inner", "A"), ("A.", "A"), ("run", ""), ("", ""), (".", "")],
)
def test_a_question_knows_the_class_that_its_answer_goes_to(unit: str, owner: str) -> None:
    assert Ask("finding", "a-1", "what", unit=unit, how=[WITH]).owner == owner


def test_alike_questions_are_one_with_what_each_has_of_its_own() -> None:
    def finding(number: int, name: str, why: str) -> Ask:
        what = f"pkg/runner.py:{number}: attributes: Runner.run reads self.{name}, which nothing defines"
        texts = {
            "text": f"why: {why}\ndo: find what replaced {name}\nthere: omni pkg/gpu.py:{number}: self.{name}"
        }
        return Ask(
            "finding", f"attributes-{number}", what, "pkg/runner.py", "Runner.run", texts=texts, how=(WAIVE,)
        )

    found = [
        finding(1, "left", "it raises"),
        finding(2, "right", "it raises"),
        finding(3, "up", "it is silent"),
    ]
    taken, (alike, other) = as_asked(found, (), {})
    assert taken == found
    assert alike["each"] == {
        "attributes-1": "1 | self.left | pkg/gpu.py:1",
        "attributes-2": "2 | self.right | gpu.py:2",
    }
    assert alike["what"] == "pkg/runner.py:[1]: attributes: Runner.run reads [2], which nothing defines"
    assert alike["text"] == "why: it raises\ndo: find what replaced ..."
    assert other["id"] == "attributes-3"
    assert "why: it is silent" in other["text"]


def test_an_entry_answers_several_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = two_flags(tmp_path, monkeypatch)
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps([{"id": ids, "answer": "accept", "note": "both read"}]))
    code, done, _ = upgrade("resolve", "--from", str(answers))
    assert (code, done["plan"]["verdict"]) == (0, "PASS")


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    ("answer", "replace", "code"),
    [
        ("theirs", {"stats.of(logits)": "stats.of(logits.cpu())"}, 0),
        ("theirs", {"stats.of(states)": "states"}, 2),  # stands nowhere
        ("theirs", {"s": "t"}, 2),  # more than once
        ("with", {"logits": "states"}, 2),  # no side
        # as a text of YAML has it, or another nesting
        ("theirs", {DEEPER + "self.record(stats.of(logits))\n": DEEPER + ANSWER_TEXT.lstrip()}, 0),
    ],
)
def test_a_side_of_a_conflict_is_taken_with_small_changes(
    world: World, tmp_path: Path, answer: str, replace: dict[str, str], code: int, pairs: bool
) -> None:
    before, answers = text_of(world), tmp_path / "answers.yaml"
    given = list(replace.items()) if pairs else replace
    answers.write_text(json.dumps([{"id": ask()["id"], "answer": answer, "replace": given}]))
    assert upgrade("resolve", "--from", str(answers))[0] == code
    assert (ANSWER_TEXT in text_of(world)) is (code == 0)
    assert (text_of(world) == before) is (code != 0)


def test_all_changes_that_stand_nowhere_are_told_at_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "        self.record(stats.missing(logits.cpu()))\n        self.load(1, 2, 3)\n"
    give(text, monkeypatch=monkeypatch)
    for kind in ("look", "port", "emulate"):
        upgrade("next", "--skip", kind, "--note", "not here")
    found = [one["key"] for one in audit(world)[1]["findings"] if one["state"] == "NEW"]
    before, answers = text_of(world), tmp_path / "answers.yaml"
    given = [{"id": one, "answer": "with", "replace": {f"nowhere_{n}()": ""}} for n, one in enumerate(found)]
    answers.write_text(json.dumps(given))
    code, told, _ = upgrade("resolve", "--from", str(answers))
    assert (code, text_of(world)) == (2, before)
    assert "nowhere_0()" in told["error"]
    assert "nowhere_1()" in told["error"]


def test_lines_are_replaced_as_deep_as_they_stand() -> None:
    side = "    if a:\n        b()\n    c()\n    d()\n"
    assert resolve._indented_as_in(side, "  b()\nc()", "  e()\n\n\nf()") == (
        "        b()\n    c()",
        "        e()\n\n\n    f()",
    )
    assert resolve._indented_as_in(side, "if a:\n\n  b()\n", "if e:\n  if f:\n    b()\n") == (
        "    if a:\n        b()",
        "    if e:\n        if f:\n          b()",
    )
    flat = "b()\nc()"
    assert resolve._indented_as_in(side, flat, "e()") == (flat, "e()"), "nobody knows how deep e stands"
    assert resolve._indented_as_in("a()\n\n\na()\n", "a()\na()", "b()")[0] == "a()\n\n\na()"
    assert resolve._indented_as_in(side, "c()\nd()\n", "for e in f:\n    d()\n") == (
        "    c()\n    d()",
        "    for e in f:\n        d()",
    )
    assert resolve._indented_as_in("a()\n a()\n", "  a()", "b()") == ("  a()", "b()"), "it stands there twice"
    assert resolve._indented_as_in(side, "c()\n", "") == ("    c()\n", ""), "no empty line is left"
    assert resolve._indented_as_in(side, "c()\n", "e(\n    f,\n)\n") == (
        "    c()",
        "    e(\n        f,\n    )",
    )


@pytest.mark.parametrize(
    ("check", "path", "named"),
    [("parity-hooks", BASE, ["port-1"]), ("parity-hooks", "other.py", []), ("lost", BASE, [])],
)
def test_a_finding_names_the_hunk_that_brings_what_it_misses(check: str, path: str, named: list[str]) -> None:
    hunks = [
        {"id": "port-1", "path": BASE, "text": "  def run(self):\n+     self.flush_pending()\n"},
        {"id": "port-2", "path": BASE, "text": "- self.flush_pending()\n+ self.flush_pending_now()\n"},
    ]
    finding = {"check": check, "subject": "flush_pending in run"}
    assert [one["id"] for one in _brought_by(finding, path, {"hunks": hunks})] == named
    assert _brought_by(finding, path, {"hunks": [hunks[0]] * 3}) == []  # of many, none is the one


def test_a_finding_sends_nobody_to_take_a_hunk_that_does_not_fit(world: World) -> None:
    job = open_job(world.omni)
    hunk = {"id": "port-1", "path": BASE, "unit": "R.run", "text": "+     self.flush_pending()\n"}
    here = {"project": job.project, "path": BASE, "line": 1, "text": "x"}
    finding = {"check": "parity-hooks", "subject": "flush_pending in run", "here": here, "owner": "R"}
    finding |= dict.fromkeys(("what", "why", "todo", "key"), "so")
    texts = {
        tier: _finding(finding, job, "", {"hunks": [hunk | {"tier": tier, "reasons": ["no place"]}]}).texts
        for tier in (1, 3)
    }
    assert "port --apply port-1" in texts[1]["text"]
    assert "port --apply" not in texts[3]["text"]
    assert "the GPU side has it in port-1, to be written by hand: no place" in texts[3]["text"]
    apart = hunk | {"tier": 3, "callers": True, "reasons": ["a caller stays"]}
    text = _finding(finding, job, "", {"hunks": [apart]}).texts["text"]
    assert "port --apply port-1 --callers-by-hand" in text
    assert "names what you have to change with it: a caller stays" in text


def test_a_finding_names_the_file_with_all_that_its_method_lacks(world: World) -> None:
    """Several findings of a method are mostly one change of the GPU side, which is best read once."""
    job = open_job(world.omni)
    hunks = [
        {"id": f"port-{n}", "unit": unit, "reasons": why, "text": f"+ step({n})"}
        for n, (unit, why) in enumerate([("R.run", ["no place"]), ("R.run", []), ("R.load", [])])
    ]
    _write_by_method(job, hunks, {"R.load": "-old\n+ step(2)"})
    assert gains_of(job, "R.load").read_text() == "port-2 (fits): + step(2)\n\n-old\n+ step(2)\n"
    _write_by_method(job, hunks, {})
    assert [path.name for path in (job.folder / "gains").iterdir()] == ["R.run.diff"], (
        "one hunk is in the answer"
    )
    assert gains_of(job, "R.run").read_text() == "port-0 (no place)\n+ step(0)\n\nport-1 (fits)\n+ step(1)\n"
    here = {"project": job.project, "path": BASE, "line": 0, "text": "x"}
    finding = {"subject": "flush", "here": here, **dict.fromkeys(("what", "why", "todo", "key"), "so")}
    gains_of(job, "R.").write_text("+ step()")
    told = [
        _finding(finding | {"check": check, "owner": "R"}, job, "", {}).texts["text"]
        for check in ("parity-x", "lost")
    ]
    assert [".npu-upgrade/jobs" in one for one in told] == [True, False]


def test_one_text_answers_every_conflict_of_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = started(tmp_path, monkeypatch, CONFLICTING)
    path = world.omni / BASE
    text = path.read_text()
    start = text.index("    def run(")
    path.write_text(text.rstrip("\n") + "\n\n" + text[start:].replace("def run(", "def again("))
    upgrade("plan")
    ids = [one["id"] for one in upgrade("resolve", "--list")[1]["open"] if one["stage"] == "conflict"]
    answers = tmp_path / "answers.yaml"
    answers.write_text(json.dumps([{"id": ids, "answer": "with", "text": ANSWER_TEXT, "note": "both read"}]))
    code, _, _ = upgrade("resolve", "--from", str(answers))
    assert (len(ids), code, path.read_text().count(ANSWER_TEXT)) == (2, 0, 2)


def test_what_was_written_by_hand_is_asked_about_until_somebody_says_why(world: World) -> None:
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "theirs")
    # the word about a question of the file is none about its methods, nor one about what was merged
    journal = open_job(world.omni).journal
    journal.add(Answer, id="signature-1", how="accept", note="read", path=BASE)
    unit = "OmniNPUModelRunner.run"
    journal.add(Answer, id="flag-1", how="accept", note="read", path=BASE, unit=unit, stage="look")
    text = path.read_text()
    path.write_text(
        text.replace("        state = self.finish", "        self.own(logits)\n        state = self.finish")
    )
    upgrade("plan")
    assert "ask" not in upgrade("next")[1], "it keeps no gate from running"
    upgrade("next", "--skip", "port", "--note", "not now")
    assert audit(world)[0] == 0
    asked = ask()
    assert asked["id"].startswith("edited-")
    assert "self.own(logits)" in str(asked)
    assert upgrade("resolve", asked["id"], "--accept")[0] == 2
    assert upgrade("resolve", asked["id"], "--accept", "--note", "the codec needs it")[0] == 0
    job = open_job(world.omni)
    assert _by_hand(job, load_plan(job)) == [("OmniNPUModelRunner.run", "the codec needs it")]
    path.write_text(path.read_text() + "\n")
    upgrade("plan")
    assert [one["state"] for one in load_plan(job).items if one["kind"] == "edited"] == ["done"]
    assert _by_hand(job, load_plan(job)) == [("OmniNPUModelRunner.run", "the codec needs it")]
    text = path.read_text()
    path.write_text(text.replace("        self.own(logits)\n", ""))
    upgrade("plan")
    assert _by_hand(job, load_plan(job)) == []
    path.write_text(text)
    upgrade("plan")
    assert not str((upgrade("next")[1].get("ask") or {}).get("id")).startswith("edited-")
    path.write_text(path.read_text() + "\n\ndef helper(rows):\n    return rows.own_form()\n")
    upgrade("plan")
    (item,) = [one for one in load_plan(job).items if one["kind"] == "edited" and one["state"] == "open"]
    assert upgrade("resolve", item["id"], "--accept", "--note", "outside of a class")[0] == 0
    assert job.journal.answers()[-1].unit == "helper"


def test_what_was_written_by_hand_is_asked_about_with_what_the_audit_finds(world: World) -> None:
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "theirs")
    text = path.read_text()
    edited = text.replace(
        "        state = self.finish", "        self.load(1, 2, 3)\n        state = self.finish"
    )
    path.write_text(edited)
    upgrade("next", "--skip", "port", "--note", "not now")
    upgrade("plan")
    assert audit(world)[0] == 1
    data = upgrade("next")[1]
    assert data["left"] == {"finding": 1, "look": 1}
    assert {data["ask"]["stage"], *(one["stage"] for one in data["with_it"])} == {"finding", "look"}


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("own_step", "the GPU side calls own_step"),
        ("gone_step", "OmniNPUModelRunner.run lacks gone_step"),
        ("own_way", ""),
    ],
)
def test_what_was_edited_as_the_audit_asked_has_that_for_its_reason(
    world: World, step: str, why: str
) -> None:
    path, job = world.omni / BASE, job_of(world)
    upgrade("resolve", ask()["id"], "--take", "theirs")
    found = {"subject": "own_step in run", "what": "the GPU side calls own_step", "state": "NEW", "key": "1"}
    other = found | {"subject": "last_seat in run", "what": "run tests no last_seat", "key": "2"}
    old = found | {"what": "own_way is old", "subject": "own_way", "state": "LAG"}
    (job.folder / "audit.json").write_text(json.dumps({"findings": [found, other, old]}))
    plan = json.loads(plan_path(job).read_text())
    gone = {
        "id": "gone-1",
        "kind": GONE,
        "title": f"{BASE}: OmniNPUModelRunner.run lacks gone_step",
        "path": BASE,
    }
    more = {"detail": "", "blocking": True, "state": "done", "note": "", "finding": ""}
    plan["items"].append(gone | more)
    plan_path(job).write_text(json.dumps(plan))
    edit = f"        self.{step}(logits)\n        state = self.finish"
    path.write_text(path.read_text().replace("        state = self.finish", edit))
    upgrade("plan")
    told = [("OmniNPUModelRunner.run", f"a check asked for it: {why}")] if why else []
    assert _by_hand(job, load_plan(job)) == told
    (state,) = (one["state"] for one in load_plan(job).items if one["kind"] == "edited")
    assert state == ("done" if why else "open")
    kept = [one for one in job.journal.answers() if one.id.startswith("edited-")]
    assert [(one.unit, one.note) for one in kept] == told


@pytest.mark.parametrize(("own", "asked"), [("torch.npu.synchronize()", 0), ("torch.npu.empty_cache()", 1)])
def test_what_the_gpu_side_has_in_its_words_needs_no_reason(world: World, own: str, asked: int) -> None:
    path, gpu = world.omni / BASE, world.omni / RUNNERS[0].gpu_path
    upgrade("resolve", ask()["id"], "--take", "ours")
    gpu.write_text(gpu.read_text() + "\n    def late(self):\n        torch.cuda.synchronize()\n")
    text = path.read_text().replace("        state = self", f"        {own}\n        state = self")
    path.write_text(f"import torch\n{text}")
    upgrade("plan")
    assert len([one for one in load_plan(open_job(world.omni)).items if one["kind"] == "edited"]) == asked


def test_what_was_written_after_the_gpu_side_is_named(world: World) -> None:
    """It needs no reason, and is no hunk that `port` took."""
    path, gpu = world.omni / BASE, world.omni / RUNNERS[0].gpu_path
    upgrade("resolve", ask()["id"], "--take", "ours")
    own = "held = torch.npu.memory_reserved(device=0)"
    gpu.write_text(gpu.read_text() + f"\n    def late(self):\n        {own.replace('npu', 'cuda')}\n")
    text = path.read_text().replace("        state = self", f"        {own}\n        state = self")
    path.write_text(f"import torch\n{text}")
    upgrade("plan")
    job = open_job(world.omni)
    assert _by_hand(job, load_plan(job)) == [("OmniNPUModelRunner.run", "after the GPU side")]
    for taken, told in (
        (f"    {own}\nif held:", []),
        ("if held:", [("OmniNPUModelRunner.run", "after the GPU side")]),
    ):
        entry = {"kind": "change", "state": "ported", "note": "", "since": {}, "at": DAY, "new": taken}
        kept = {"schema": "npu-upgrade/port/1", "hunks": {"port-1": entry}}
        Ledger(job.workspace).path.write_text(json.dumps(kept))
        (job.folder / "port.json").write_text(json.dumps({"hunks": [], "ported": {"port-1": "base.run"}}))
        path.write_text(path.read_text() + "\n")
        upgrade("plan")
        assert _by_hand(job, load_plan(job)) == told


def test_what_the_target_has_needs_no_reason(world: World) -> None:
    path = world.omni / BASE
    upgrade("resolve", ask()["id"], "--take", "ours")
    path.write_text(
        path.read_text().replace(
            "        state = self", "        self.record(stats.of(logits))\n        state = self"
        )
    )
    upgrade("plan")
    assert not [one for one in load_plan(open_job(world.omni)).items if one["kind"] == "edited"]


def test_what_is_gone_is_asked_once_by_merge_and_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_flags(tmp_path, monkeypatch)
    job = open_job(Path.cwd())
    path = Path(job.out or "") / "plan.json"
    plan = json.loads(path.read_text())
    plan["items"][-1] |= {"kind": "gone-name", "finding": "attributes-0123456789"}
    path.write_text(json.dumps(plan))
    waivers = job.folder / "waivers.yaml"
    assert upgrade("resolve", "flag-2", "--accept", "--note", "fine")[0] == 2
    assert upgrade("resolve", "flag-2", "--waive", "--note", "set by a plugin")[0] == 0
    assert "key: attributes-0123456789\n  reason: set by a plugin" in waivers.read_text()
    upgrade("resolve", "--undo", "flag-2")
    assert "attributes" not in waivers.read_text()


def gone_item(path: Path, state: str, **more: Any) -> None:
    """Make the last item of a plan one of a name that is gone, with the audit's finding."""
    plan = json.loads(path.read_text())
    plan["items"][-1] |= {"kind": GONE, "finding": "attributes-0123456789", "state": state} | more
    path.write_text(json.dumps(plan))


@pytest.mark.parametrize("from_file", [True, False])
def test_what_an_edit_has_closed_is_accepted_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_file: bool
) -> None:
    """The files are looked at before an answer is refused that would not fit what is still open."""
    two_flags(tmp_path, monkeypatch)
    job = open_job(Path.cwd())
    path = Path(job.out or "") / "plan.json"

    gone_item(path, "open")
    monkeypatch.setattr(resolve, "check", lambda job, *given: gone_item(path, "done"))
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps([{"id": "flag-2", "answer": "accept", "note": "the target's own"}]))
    words = ["--from", str(answers)] if from_file else ["flag-2", "--accept", "--note", "the target's own"]
    code, data, _ = upgrade("resolve", *words)
    assert code == 0, data
    assert [one.note for one in job.journal.answers() if one.id == "flag-2"] == ["the target's own"]


def test_what_an_edit_has_closed_needs_no_waiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_flags(tmp_path, monkeypatch)
    job = open_job(Path.cwd())
    path, file = Path(job.out or "") / "plan.json", Path.cwd() / BASE

    gone_item(path, "open", blocking=True)
    file.write_text("# it takes the argument now\n" + file.read_text())
    monkeypatch.setattr(resolve, "check", lambda job, *given: gone_item(path, "done"))
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps([{"id": "flag-2", "answer": "waive", "note": "it takes it now"}]))
    code, data, _ = upgrade("resolve", "--from", str(answers))
    assert code == 0, data
    assert "not needed, an edit has closed it: flag-2" in data["summary"]
    assert not (job.folder / "waivers.yaml").exists()


def test_what_is_gone_is_looked_for_again_when_its_answer_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit may have corrected it while the answer stood."""
    two_flags(tmp_path, monkeypatch)
    job = open_job(Path.cwd())
    path = Path(job.out or "") / "plan.json"
    plan = json.loads(path.read_text())
    plan["items"][-1] |= {"kind": GONE, "finding": "attributes-0123456789"}
    path.write_text(json.dumps(plan))
    assert upgrade("resolve", "flag-2", "--waive", "--note", "set by a plugin")[0] == 0
    monkeypatch.setattr(job_check, "look_with_vllm", lambda *given: list)
    assert upgrade("resolve", "--undo", "flag-2")[0] == 0
    assert load_plan(open_job(Path.cwd())).items[-1]["state"] == "done"


def test_the_methods_behind_findings_are_named_together() -> None:
    def hunk(
        id_: str, unit: str, text: str, tier: int = 2, kind: str = "method", **more: Any
    ) -> dict[str, Any]:
        return {"id": id_, "path": BASE, "unit": f"R.{unit}", "text": text, "tier": tier, "kind": kind} | more

    hunks = [
        hunk("port-1", "run", "+ self.pack_rows(self.rows)\n- self.old()\n", 3, "change"),
        hunk("port-2", "pack_rows", "+ def pack_rows(self):\n+     return self.ship()\n"),
        hunk("port-3", "ship", "+ def ship(self):\n+     pass\n", 3, callers=True),
        hunk("port-4", "old", "+ def old(self):\n+     pass\n"),
        hunk("port-5", "rows", "+ def rows(self):\n+     pass\n", unresolved=["Gone"]),
        hunk("port-6", "other", "+ self.old()\n", 3, "change"),
        hunk("port-7", "ship", "+ self.load()\n", 3, "change", callers=True),
        hunk("port-8", "ship", "+ self.lift()\n", 3, "change"),
        hunk("port-9", "run", "+ self.run()\n", 2, "change"),
        hunk(
            "port-10",
            "copy",
            "+ def copy(self):\n+     return self.stream()\n",
            3,
            callers=True,
            reasons=["calls snap, which is written for torch.cuda"],
        ),
        hunk("port-11", "stream", "+ def stream(self):\n+     pass\n"),
    ]
    asks = [Ask(FINDING, "parity-1", "G.run_all calls self.pack_rows() and self.copy()", BASE, "R.run")]
    assert methods_behind({"hunks": hunks}, asks) == {
        "port-2": "pack_rows",
        "port-3": "ship",
        "port-7": "ship",
    }
    of_others = [Ask(FINDING, "parity-2", "G.pack_rows calls self.say_so()", BASE, "R.run")]
    assert methods_behind({"hunks": hunks}, of_others) == {}
    assert methods_behind({"hunks": hunks}, []) == {}
    assert methods_behind({}, asks) == {}


def test_the_methods_that_can_be_put_in_whole_are_those_of_the_findings() -> None:
    hunks = [{"id": f"port-{name}", "group": f"ar.{name}"} for name in ("run", "pack")]
    drafts = [
        {"path": BASE, "unit": f"R.{name}", "hunks": [f"port-{name}"], "conflicts": number}
        for number, name in enumerate(("run", "pack", "gone"))
    ]
    survey = {"hunks": hunks, "drafts": drafts}
    every = {(BASE, f"R.{name}") for name in ("run", "gone", "other")}
    assert combined(survey, every) == {"ar.run": 0}
    assert combined({}, every) == {}
    taken = drafts[0] | {"hunks": ["port-fit", "port-run"]}  # one of its hunks was taken by itself
    assert combined(survey | {"drafts": [taken]}, every) == {"ar.run": 0}


def test_the_findings_that_go_with_a_whole_method_or_a_missing_one_are_told_apart() -> None:
    survey = {
        "hunks": [{"id": "port-run", "group": "ar.run"}, {"id": "port-pack", "group": "ar.pack"}],
        "drafts": [{"path": BASE, "unit": "R.run", "hunks": ["port-run"], "conflicts": 0}],
    }
    asks = [
        Ask(FINDING, "parity-1", "G.run calls self.flush(), R.run does not", BASE, "R.run"),
        Ask(FINDING, "parity-2", "R has no pack_rows", BASE, "R.other"),
        Ask(FINDING, "parity-3", "R.other leaves use_v2", BASE, "R.other"),
    ]
    assert [one.id for one in taken_with(survey, asks, {"pack_rows"}, ["ar.run"])] == ["parity-1", "parity-2"]
    assert [one.id for one in taken_with(survey, asks, set(), ["ar.run"])] == ["parity-1"]
    assert taken_with(survey, asks, set(), ["ar.pack"]) == []


@pytest.mark.parametrize("all_of_them", [False, True])
def test_what_goes_with_the_first_command_is_asked_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    text = "        self.record(stats.missing(logits.cpu()))\n        self.load(1, 2, 3)\n"
    give(text, monkeypatch=monkeypatch)
    for kind in ("look", "port", "emulate"):
        upgrade("next", "--skip", kind, "--note", "not here")
    audit(world)
    first = "upgrade.py port --group ar.run --conflicts"
    taken = (lambda every: every) if all_of_them else (lambda every: every[:1])
    monkeypatch.setattr(asking, "_first", lambda walk, every: ([first], list(taken(every))))
    shown = upgrade("next")[1]
    every = [shown["ask"], *shown.get("with_it", ())]
    assert shown["first"] == [first]
    assert ("after_first" in shown) is not all_of_them
    assert len(every) > 1 if all_of_them else "1 question about" in shown["after_first"]


def test_a_method_that_asks_for_what_a_finding_misses_can_be_put_in_whole() -> None:
    asks_for = {"id": "port-run", "group": "ar.run", "text": "+ self.pack_rows(batch)\n- self.send_rows()"}
    draft = {"path": BASE, "unit": "R.run", "hunks": ["port-run"], "conflicts": 1}
    survey = {"hunks": [asks_for], "drafts": [draft]}
    assert combined(survey, [], {"pack_rows", "other_rows"}) == {"ar.run": 1}
    assert combined(survey, [], {"send_rows"}) == {}
    assert combined(survey, []) == {}


def test_new_methods_that_a_whole_one_calls_are_named_beside_it() -> None:
    def new(name: str, lines: int, **more: Any) -> dict[str, Any]:
        named = {"id": f"port-{name}", "group": f"ar.{name}", "unit": f"R.{name}", "path": BASE}
        return named | {"text": f"+ def {name}(self):", "lines": lines, "kind": "method"} | more

    calls = "+ self.pack_rows(self.lift())\n+ self.snap()\n+ self.stack_rows()\n- self.send_rows()"
    run = {
        "id": "port-run",
        "group": "ar.run",
        "unit": "R.run",
        "path": BASE,
        "text": calls,
        "kind": "change",
    }
    cuda = {"reasons": ["calls snap, which is written for torch.cuda"]}
    hunks = [run, new("pack_rows", 12), new("lift", 1), new("send_rows", 3), new("other", 4)]
    hunks += [new("snap", 5, **cuda), new("stack_rows", 2, path="elsewhere.py")]
    draft = {"path": BASE, "unit": "R.run", "hunks": ["port-run"], "conflicts": 1}
    survey = {"hunks": hunks, "drafts": [draft]}
    assert called_and_new(survey, ["ar.run"]) == ["ar.pack_rows (12 lines)", "ar.lift (1 line)"]
    assert called_and_new(survey, ["ar.other"]) == []
    assert called_and_new({}, ["ar.run"]) == []


def test_a_base_class_that_a_finding_misses_comes_with_what_belongs_to_it() -> None:
    def hunk(name: str, kind: str, text: str, *needs: str) -> dict[str, Any]:
        return {"id": name, "path": BASE, "kind": kind, "text": text, "needs": [*needs]}

    base = hunk("port-base", "base", "+ LedgerMixin", "port-init")
    hunks = [base, hunk("port-init", "change", "+ self.open_ledger()", "port-base")]
    hunks += [hunk("port-end", "method", "+ def shutdown(self): ...", "port-base")]
    hunks += [
        hunk("port-run", "change", "+ self.write_ledger()", "port-base"),
        hunk("port-x", "change", "+ x"),
    ]
    hunks += [hunk("port-other", "base", "+ OtherMixin")]
    what = f"{BASE}:3: parity-bases: GPURunner derives from LedgerMixin, Runner does not"
    asks = [Ask(FINDING, "parity-bases-1", what, BASE, "Runner.")]
    found = [one["id"] for one in bases_behind({"hunks": hunks}, asks)]
    assert found == ["port-base", "port-init", "port-run"]
    elsewhere = [Ask(FINDING, "parity-bases-1", what, "other.py", "Runner.")]
    assert bases_behind({"hunks": hunks}, elsewhere) == bases_behind({}, asks) == []


START = "    def start(self):\n        self.device = find()\n        self.runner = Runner(self.device)\n"
REPORT = "        if self.rank == 0:\n            report(self)\n"


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An upgrade with a worker's method that follows upstream's, which calls one function more by now."""
    path = "vllm_ascend/worker/worker.py"
    head = "from vllm_ascend.tell import Runner, find{}\n\n\nclass NPUWorker:\n"
    tell = "class Runner: ...\n\n\ndef find(): ...\n\n\ndef report(worker): ...\n"
    mine = "from vllm_ascend.tell import find\nfrom vllm_ascend.worker.worker import NPUWorker\n\n\n"
    mine += "class OmniWorker(NPUWorker):\n" + START.replace("Runner(", "OmniRunner(")
    mine += "\n\nclass OmniRunner: ...\n"
    monkeypatch.setattr(
        "merge_kit.commit_at",
        lambda folder, day, files: commit_at(
            folder,
            day,
            files
            | (
                {WORKER: mine}
                if folder.name == "omni"
                else {path: head.format("") + START, "vllm_ascend/tell.py": tell}
                if "vllm_ascend/__init__.py" in files
                else {path: head.format(", report") + START + REPORT}
            ),
        ),
    )
    return started(tmp_path, monkeypatch, OURS)


def test_what_upstream_changed_in_an_overridden_method_is_taken_by_a_word(followed: World) -> None:
    plan = load_plan(open_job(followed.omni))
    (item,) = (one for one in plan.items if one["kind"] == "overridden-changed")
    upgrade("plan")
    asked = ask()
    assert asked["id"] == item["id"]
    assert "report(self)" in asked["text"]
    before = (followed.omni / WORKER).read_text()
    assert upgrade("resolve", item["id"], "--accept")[0] == 0
    after = (followed.omni / WORKER).read_text()
    assert REPORT in after
    assert "from vllm_ascend.tell import find, report\n" in after
    assert upgrade("resolve", item["id"], "--undo")[0] == 0
    assert (followed.omni / WORKER).read_text() == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self.device = find()", "self.device = find()\n        self.x = 1"),
        ("OmniRunner(self.device)", "OmniRunner(self.device).wrapped()"),
        ("OmniRunner(self.device)\n", "OmniRunner(self.device)\n        return self.runner\n"),
    ],
    ids=["in it", "at its last line", "behind it"],
)
def test_a_proposed_edit_of_a_method_that_was_edited_since_is_not_made(
    followed: World, before: str, after: str
) -> None:
    plan = load_plan(open_job(followed.omni))
    (item,) = (one for one in plan.items if one["kind"] == "overridden-changed")
    path = followed.omni / WORKER
    path.write_text(path.read_text().replace(before, after))
    edited = path.read_text()
    for note in ((), ("--note", "take it")):
        assert upgrade("resolve", item["id"], "--accept", *note)[0] != 0
    assert upgrade("resolve", item["id"], "--by-hand", "--note", "nobody is told here")[0] == 0
    assert path.read_text() == edited


def test_a_proposed_edit_keeps_the_line_ends_of_the_file(followed: World) -> None:
    plan = load_plan(open_job(followed.omni))
    (item,) = (one for one in plan.items if one["kind"] == "overridden-changed")
    path = followed.omni / WORKER
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert upgrade("resolve", item["id"], "--accept")[0] == 0
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")


def test_a_second_merge_asks_again_for_an_edit_that_it_set_aside(followed: World) -> None:
    (item,) = (one for one in load_plan(open_job(followed.omni)).items if one["kind"] == "overridden-changed")
    assert upgrade("resolve", item["id"], "--accept")[0] == 0
    found = upgrade("merge", "--again")
    assert found[0] in (0, 1), found
    again = {one["id"]: one["state"] for one in load_plan(open_job(followed.omni)).items}
    assert again[item["id"]] == "open"
    assert REPORT not in (followed.omni / WORKER).read_text()


def test_methods_are_named_where_all_that_they_lack_is_taken() -> None:
    hunks = [{"id": f"port-{n}", "group": group} for n, group in enumerate(("ar.a", "ar.b", "ar.b", "ar.c"))]
    taken = {"port-0": "a", "port-1": "b", "port-3": "c"}
    assert _by_name({"hunks": hunks}, taken) == (["ar.a", "ar.c"], ["port-1"])
    assert _by_name({"hunks": hunks}, {"port-1": "b"}) == ([], ["port-1"])


@pytest.mark.parametrize(
    ("ours", "text", "wanted"),
    [
        ("    # Omni-new\n    old()\n", "    new()\n", "    # Omni-new\n    new()\n"),
        ("    old()\n    # Omni-new\n", "    new()\n", "    new()\n    # Omni-new\n"),
        ("    # Omni-new\n    old()\n    # Omni-new\n", "    new()\n", "    new()\n"),
        ("    # Omni-new\n    old()\n", "    # Omni-new\n    new()\n", "    # Omni-new\n    new()\n"),
        ("    old()\n", "    new()\n", "    new()\n"),
    ],
)
def test_what_the_gpu_side_has_stands_in_the_markers_of_what_it_replaces(
    ours: str, text: str, wanted: str
) -> None:
    assert answer_checks.with_marker(ours, text) == wanted


def test_what_is_gone_is_the_audits_to_tell_once_it_was_reached(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same checks, and nothing is delivered without it: an answer is taken in half the time."""
    upgrade("resolve", ask()["id"], "--take", "theirs")
    looked: list[int] = []
    monkeypatch.setattr(job_check, "look_with_vllm", lambda *given: looked.append(1) or list)
    file = world.omni / BASE

    def edited() -> int:
        file.write_text(file.read_text() + f"# {len(looked)} {len(job_of(world).records())}\n")
        looked.clear()
        assert upgrade("plan")[0] in (0, 1)
        return len(looked)

    assert edited() == 1
    audit(world)
    assert edited() == 0
    job = job_of(world)
    path = Path(job.out or job.folder) / "plan.json"
    plan = json.loads(path.read_text())
    item = plan["items"][-1] | {"id": "gone-1", "kind": GONE, "state": "open", "title": f"{BASE}: x is gone"}
    path.write_text(json.dumps(plan | {"items": [*plan["items"], item]}))
    assert edited() == 1, "what it asked it also closes"
    assert load_plan(job_of(world)).items[-1]["state"] == "done"
