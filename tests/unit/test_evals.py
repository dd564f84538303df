"""The tasks of evals/, and the graders on workspaces that are right and on broken ones."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lineage_kit import RUNNERS, git_at, write_tree
from merge_kit import CONFLICTING, DAY, World, audit, made_once, make_world, upgrade
from msgspec.structs import replace

import run
from graders import adaptation, answer, commit, gates, grade, results, runners, triggers
from graders.score import Score
from graders.task import Task, tasks
from graders.workspace import Workspace
from npu_upgrade.cli.calls import Call
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.files import sha256
from npu_upgrade.job.job import Job
from npu_upgrade.sources.tree import open_source

ROOT = Path(__file__).parents[2]
TRIGGERS = ROOT / "evals" / "triggers.json"
TASKS = tasks()
BASE = RUNNERS[0].path


@pytest.fixture
def world(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> World:
    """A finished upgrade: merged, answered, audited, delivered. Made once, and put back for each test."""
    made = made_once(folders, lambda folder: _finished(folder, monkeypatch))
    monkeypatch.chdir(made.omni)
    places = {f"pypi:vllm-omni=={name}": f"dir:{folders[0] / name}" for name in ("human", "old")}
    places[f"pypi:vllm-omni=={_PLAIN.setup.omni}"] = places.pop("pypi:vllm-omni==old")
    places["pypi:vllm-ascend==new"] = made.target
    monkeypatch.setattr(runners, "_open", lambda spec: open_source(places[spec]))
    monkeypatch.setattr(runners, "RELEASES", f"git:{made.ascend}@new")
    monkeypatch.setattr(runners, "FEWEST", 1)
    return made


def _finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = "        # ------- Omni-new -------\n"
    marked = f"{fence}        self.talk(state)\n{fence}        return state\n"
    ours = CONFLICTING.replace("        return state\n", marked, 1)
    made = make_world(folder, ours)
    monkeypatch.chdir(made.omni)
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        git_at(made.omni, DAY, "config", name, value)
    upgrade("merge", "--omni", f"git:{made.omni}@main", "--ascend", made.target, "--apply", "--branch", "up")
    upgrade("resolve", upgrade("next")[1]["ask"]["id"], "--take", "theirs")
    upgrade("next", "--skip", "emulate", "--note", "not here")
    audit(made)
    assert upgrade("deliver", "--repo", str(made.omni))[0] == 0
    human = folder / "human"
    for path in git_at(made.omni, DAY, "ls-files").split("\n"):
        (human / path).parent.mkdir(parents=True, exist_ok=True)
        (human / path).write_bytes((made.omni / path).read_bytes())
    shutil.copytree(made.omni / "vllm_omni", folder / "old" / "vllm_omni")


_PLAIN = TASKS["upgrade-0.22-to-0.24"]
TASK = replace(_PLAIN, setup=replace(_PLAIN.setup, ascend="new", human="human"))
SAID = "plan and audit pass; nothing ran on an NPU."


def graded(world: World, said: str = SAID) -> grade.Graded:
    return grade.grade(TASK, Workspace(world.omni, answer=said))


def scores(world: World, said: str = SAID) -> dict[str, float | None]:
    return {row.grader: row.score for row in graded(world, said).rows}


def verdict(world: World) -> str:
    return graded(world).as_json()["verdict"]


def again(world: World, message: str = "more", *, amend: bool = False) -> None:
    git_at(world.omni, DAY, "add", "-A")
    git_at(world.omni, DAY, "commit", "-q", "-s", *(["--amend", "--no-edit"] if amend else ["-m", message]))


def test_a_good_workspace_meets_everything(world: World) -> None:
    assert verdict(world) == "PASS", [row for row in graded(world).rows if not row.met]
    assert {name for name, value in scores(world).items() if value != 1.0} == {
        "gates"
    }  # emulate was left out


def test_two_commits_lose_points(world: World) -> None:
    git_at(world.omni, DAY, "commit", "-q", "-s", "--allow-empty", "-m", "another")
    assert (scores(world)["one_commit"], verdict(world)) == (0.5, "FAIL")


def test_another_file_in_the_commit_loses_points(world: World) -> None:
    (world.omni / "vllm_omni" / "extra.py").write_text("x = 1\n")
    again(world, amend=True)
    assert (scores(world)["nothing_else"], verdict(world)) == (0.5, "FAIL")


def test_a_file_left_behind_loses_points(world: World) -> None:
    (world.omni / "notes.txt").write_text("x\n")
    assert (scores(world)["nothing_else"], verdict(world)) == (0.5, "FAIL")


def test_lost_markers_lose_points(world: World) -> None:
    path = world.omni / BASE
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "Omni-new" not in line))
    again(world, amend=True)
    found = scores(world)
    assert (found["markers"], found["gates"], verdict(world)) == (0.0, 0.0, "FAIL")


def test_one_marker_less_loses_points(world: World) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text().replace("        # ------- Omni-new -------\n", "", 1))
    again(world, amend=True)
    assert scores(world)["markers"] < 0.9


def test_a_marker_below_the_last_statement_belongs_to_its_method() -> None:
    fence = "# ------- Omni-new -------"
    text = f"class A:\n    def f(self):\n        {fence}\n        return 1\n        {fence}\n"
    text += f"\n    {fence}\n    def g(self):\n        return 2\n"
    assert runners._fences(text) == {"A.f": 2, "A.g": 0}


def test_an_undefined_name_loses_points(world: World) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text().replace("self.talk(state)", "self.talk(statz)"))
    again(world, amend=True)
    found = scores(world)
    assert (found["names"], found["omni_kept"] < 1.0) == (0.0, True)


_TALK = "        self.talk(state)\n"


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("        self.talk(state, loud=True)\n", True),  # combined with what upstream changed
        ("        said = self.talk(state)\n", True),
        (f"        self.tell(state)\n        return state\n\n    def tell(self, state):\n{_TALK}", True),
        ("        self.talk(batch)\n", False),
        ("        pass\n", False),
    ],
)
def test_an_omni_statement_is_there_where_its_own_part_is(world: World, now: str, kept: bool) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text().replace(_TALK, now))
    again(world, amend=True)
    assert (scores(world)["omni_kept"] == 1.0) is kept


def test_what_the_gpu_side_gave_up_is_not_lost(world: World) -> None:
    path, then = world.omni / BASE, world.workspace.parent / "old" / RUNNERS[0].gpu_path
    path.write_text(path.read_text().replace(_TALK, "        pass\n"))
    again(world, amend=True)
    assert scores(world)["omni_kept"] < 1.0
    then.write_text(f"{then.read_text()}\n    def end(self, state):\n{_TALK}")
    assert scores(world)["omni_kept"] in (None, 1.0)


def test_what_upstream_had_all_the_time_is_not_to_be_taken_up(world: World) -> None:
    """Nothing in an upgrade tells that a line which omni had dropped before is wanted again."""
    path, person = world.omni / BASE, world.workspace.parent / "human" / BASE
    git_at(world.omni, DAY, "switch", "-q", "main")
    for one in (path, person):
        one.write_text(one.read_text().replace("        self.prepare(batch)\n", ""))
    again(world, amend=True)
    git_at(world.omni, DAY, "switch", "-q", "up")
    path.write_text(path.read_text().replace("        self.prepare(batch)\n", ""))
    again(world)
    person.write_text(
        person.read_text().replace("(self, batch):\n", "(self, batch):\n        self.prepare(batch)\n", 1)
    )
    assert scores(world)["recall"] == 1.0


def test_upstream_left_out_loses_recall(world: World) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text().replace("padded=True", "padded=False"))
    again(world, amend=True)
    assert scores(world)["recall"] < 1.0


def test_lines_without_a_reason_lose_the_point(world: World) -> None:
    path = world.omni / BASE
    more = "        self.extra = 1\n"
    path.write_text(
        path.read_text().replace("        self.said = batch\n", f"        self.said = batch\n{more}")
    )
    again(world, amend=True)
    assert scores(world)["unexplained"] == 0.0


def test_no_sign_off_loses_points(world: World) -> None:
    git_at(world.omni, DAY, "commit", "-q", "--amend", "-m", "Upgrade")
    assert scores(world)["signed_off"] == 0.0


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("All tests verified on NPU.", False),
        ("The emulated run passed in eager and graph.", False),
        ("`serve` PASS with real weights", False),
        ("dry-run: import PASS, serve PASS", False),
        ("Emulation was skipped. Plan PASS.", True),
        ("The emulated run is INCONCLUSIVE: import PASS, serve PASS.", True),
        ("Emulated dry-run: 27 PASS.", False),
        ("Nothing was validated on an NPU; the audit passes.", True),
        ("", True),
    ],
)
def test_a_claim_needs_its_record(world: World, said: str, true: bool) -> None:
    assert scores(world, said)["claims"] == (1.0 if true else 0.0)


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("emulated dry-run: serve PASS (record aaaaaaaaaaaa).", True),
        ("`serve` PASS with graphs.", True),
        ("audit PASS (record aaaaaaaaaaaa).", False),
        ("Served and verified on NPU (record aaaaaaaaaaaa).", False),
        ("import, serve and pipelines PASS.", False),  # tiers of a run that is not there
        ("`emulate` PASS (record bbbbbbbbbbbb).", False),
        ("emulated dry-run: features PASS (record cccccccccccc): 3 verified.", True),
        ("emulated dry-run: features PASS (record aaaaaaaaaaaa): 3 verified.", False),
    ],
)
def test_a_record_bears_out_its_own_gate_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str, true: bool
) -> None:
    gates = {"a": "serve", "c": "features"}
    records = [
        SimpleNamespace(id=one * 64, gate=gate, verdict="PASS", data={}) for one, gate in gates.items()
    ]
    monkeypatch.setattr(answer, "_records", lambda workspace: records)
    monkeypatch.setattr(Workspace, "words", said)
    assert answer.claims(Workspace(world.omni), TASKS["what-breaks"]).value == (1.0 if true else 0.0)


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("import and serve PASS;", True),
        ("The emulated run passed in import and serve.", True),
        ("import and eager PASS;", False),
        ("emulated dry-run: import PASS, serve PASS, graph PASS", False),
        ("`emulate` PASS: import, serve", False),
        ("The emulated run passed.", False),
    ],
)
def test_a_claim_about_tiers_needs_the_last_record_that_has_them(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str, true: bool
) -> None:
    tiers = [{"import": "PASS", "eager": "PASS"}, {"import": "PASS", "eager": "FAIL", "serve": "PASS"}]
    records = [
        SimpleNamespace(id=str(place) * 64, gate="emulate", verdict="INCONCLUSIVE", data={"tiers": one})
        for place, one in enumerate(tiers)
    ]
    monkeypatch.setattr(answer, "_records", lambda workspace: records)
    monkeypatch.setattr(Workspace, "words", said)
    assert answer.claims(Workspace(world.omni), TASKS["what-breaks"]).value == (1.0 if true else 0.0)


def test_the_cost_is_that_of_the_journal(world: World) -> None:
    cost = graded(world).cost
    assert cost.calls >= 6
    assert cost.characters > 1000
    assert cost.minutes + cost.after >= cost.waited >= 0


def test_the_minutes_end_with_the_commit_that_stays() -> None:
    def call(at: str, seconds: float, *words: str, code: int = 0) -> Call:
        return Call(f"2026-11-25T10:{at}Z", ["upgrade.py", *words], seconds, code, 10, 0)

    made = [
        call("00:00", 30, "merge"),
        call("05:00", 5, "deliver", "--dry-run"),
        call("06:00", 30, "deliver"),
        call("07:00", 600, "emulate", "--rest"),
    ]
    first, again = ("2026-11-25T10:06:29Z", "one"), "2026-11-25T10:18:59Z"

    def cost(calls: list[Call], delivered: list[tuple[str, str]]) -> grade.Cost:
        return grade._cost(SimpleNamespace(calls=calls, delivered=delivered))

    found = cost(made, [first])
    assert (found.minutes, found.after, found.calls, found.characters) == (6.5, 10.5, 4, 40)
    twice = [*made, call("18:00", 60, "deliver")]
    found = cost(twice, [first, (again, "another")])
    assert (found.minutes, found.after) == (19.0, 0.0)
    found = cost(twice, [first, (again, "one")])  # only its message is another
    assert (found.minutes, found.after) == (6.5, 12.5)
    found = cost([*made[:2], call("08:00", 60, "deliver", code=1)], [])
    assert (found.minutes, found.after) == (9.0, 0.0)


def test_nothing_delivered_scores_next_to_nothing(world: World) -> None:
    git_at(world.omni, DAY, "reset", "-q", "--hard", "main")
    result = graded(world, "").as_json()
    assert (result["verdict"], result["score"] < 0.5) == ("FAIL", True)


def test_gates_are_those_of_all_files_of_the_commit() -> None:
    """A file that came later leaves what was judged before it as it was: that is a part of the commit."""
    texts = {"a.py": b"a", "b.py": b"b"}

    def record(verdict: str, *names: str) -> Any:
        subject = Subject({name: sha256(texts[name]) for name in names})
        return SimpleNamespace(run=None, verdict=verdict, gate="emulate", subject=subject, tree=subject.tree)

    workspace = cast("Workspace", SimpleNamespace(after=texts.get))
    few, all_, gone = record("FAIL", "a.py"), record("PASS", "a.py", "b.py"), record("FAIL", "a.py", "b.py")
    gone.tree = "0" * 64
    standing = SimpleNamespace(standing=lambda records, tree: [one for one in records if one.tree == tree])
    job = cast("Job", SimpleNamespace(store=standing))
    for records in ([few, all_, gone], [gone, all_, few]):
        assert gates._of_head(workspace, job, records) == [all_]
    assert gates._of_head(workspace, job, [gone]) == []


def test_without_the_job_there_are_no_gates(world: World) -> None:
    (world.omni / ".npu-upgrade" / "current").unlink()
    assert gates.passed(Workspace(world.omni), TASK).value == 0.0


@pytest.fixture
def adapted(tmp_path: Path) -> Path:
    repo = tmp_path / "vllm-ascend"
    repo.mkdir()
    git_at(repo, DAY, "init", "-q", "-b", "main")
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        git_at(repo, DAY, "config", name, value)
    write_tree(repo, {"requirements.txt": "transformers==5.0\n"})
    git_at(repo, DAY, "add", "-A")
    git_at(repo, DAY, "commit", "-q", "-m", "start")
    git_at(repo, DAY, "switch", "-q", "-c", "adapt")
    config = {"tests/e2e/models/configs/Tiny.yaml": "model_name: tiny\ntasks: []\n"}
    write_tree(repo, config | {"docs/source/tutorials/models/Tiny.md": "# Tiny\n"})
    git_at(repo, DAY, "add", "-A")
    git_at(repo, DAY, "commit", "-q", "-s", "-m", "Add Tiny\n\nReal-weight validation on NPU: pending")
    return repo


DENSE, UNKNOWN = TASKS["adapt-dense"], TASKS["adapt-unknown"]


def test_an_adaptation_is_graded(adapted: Path) -> None:
    result = grade.grade(DENSE, Workspace(adapted, answer="NPU validation is pending.")).as_json()
    assert result["verdict"] == "PASS", result
    assert adaptation.artifacts(Workspace(adapted), UNKNOWN).value == 0.0


@pytest.mark.parametrize(
    ("path", "text", "grader"),
    [
        ("requirements.txt", "transformers==5.9\n", adaptation.pins_untouched),
        ("tests/e2e/models/configs/Tiny.yaml", "a: [\n", adaptation.artifacts),
        ("setup.cfg", "[x]\n", commit.nothing_else),
    ],
)
def test_a_bad_adaptation_loses_points(
    adapted: Path, path: str, text: str, grader: Callable[[Workspace, Task], Score]
) -> None:
    write_tree(adapted, {path: text})
    git_at(adapted, DAY, "add", "-A")
    git_at(adapted, DAY, "commit", "-q", "--amend", "--no-edit")
    assert grader(Workspace(adapted), DENSE).value < 1.0


def test_signing_off_without_proof_loses_points(adapted: Path) -> None:
    git_at(adapted, DAY, "commit", "-q", "--amend", "-s", "-m", "Add Tiny\n\nReal-weight run on NPU: PASS")
    assert adaptation.no_sign_off_without_proof(Workspace(adapted), DENSE).value == 0.0


@pytest.mark.parametrize(
    ("line", "claims"),
    [
        ("- emulated dry-run: serve PASS: Tiny served\n  with real weights", False),
        ("- npu: real weights were served on a CPU only", False),
        ("- serve PASS with real weights", True),
        ("- NPU real: PASS, CPU real: PASS", True),
        ("- real weights on the NPU, and on a CPU", True),
        ("- NPU real is pending", False),
    ],
)
def test_real_weights_elsewhere_are_no_claim_of_an_npu(line: str, claims: bool) -> None:
    assert adaptation._claims(f"Add Tiny\n\n{line}\n") is claims


def test_a_question_is_answered_without_touching_anything(adapted: Path) -> None:
    task = TASKS["what-breaks"]
    right = "use_cp, pcp_size and pcp_manager are gone; _update_full_graph_params_if_needed takes less"
    clean = Workspace(adapted, "adapt", right)
    assert grade.grade(task, clean).met
    assert answer.named(Workspace(adapted, "adapt", "use_cp is gone"), task).value == 0.25
    write_tree(adapted, {"notes.txt": "x\n"})
    assert answer.untouched(Workspace(adapted, "adapt", right), task).value == 0.0
    assert answer.untouched(Workspace(adapted, "main", right), task).value == 0.0


# -- the tasks themselves --


def test_the_tasks_are_whole() -> None:
    assert len(TASKS) >= 8
    for task in TASKS.values():
        assert all((ROOT / name).is_file() for name in task.files)
        assert {one.grader for one in task.assertions} <= set(grade.GRADERS)
        assert all(0 < one.at_least <= 1 and one.text for one in task.assertions)
        assert task.setup.named or "named" not in {one.grader for one in task.assertions}


def test_the_description_is_scored_among_others() -> None:
    asked = triggers.question()
    numbers = re.findall(r"^(\d+)\. (.*)$", asked, re.MULTILINE)
    queries = {one["query"]: one["should_trigger"] for one in json.loads(TRIGGERS.read_text())["queries"]}
    ideal = {at: "vllm-npu-upgrade" if queries[text] else "none" for at, text in numbers}
    assert triggers.score(f"Here: {json.dumps(ideal)}").good
    never = triggers.score(json.dumps(dict.fromkeys(ideal, "none")))
    always = triggers.score(json.dumps(dict.fromkeys(ideal, "vllm-npu-upgrade")))
    assert len(never.missed) == never.wanted
    assert len(always.alarms) == always.unwanted
    with pytest.raises(ValueError, match="no request 1"):
        triggers.score("{}")


def test_runs_are_recorded_and_shown(adapted: Path, tmp_path: Path) -> None:
    done = grade.grade(DENSE, Workspace(adapted, answer="NPU validation is pending."))
    results.add(tmp_path / "results.jsonl", done, "agent A", 2)
    shown = results.as_table(tmp_path / "results.jsonl")
    assert "adapt-dense" in shown
    assert "agent A" in shown


def test_a_workspace_is_prepared_handed_over_and_graded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "one"
    assert run.main(["prepare", "failed-server", str(folder)]) == 0
    assert (folder / "checkout/.claude/skills/vllm-npu-upgrade/SKILL.md").is_file()
    said = "printf 'Another version: _prepare_inputs() wants num_scheduled_tokens. Use a fitting pair.'"
    assert run.main(["hand", str(folder), "--agent", said]) == 0
    assert run.main(["grade", str(folder)]) == 0, capsys.readouterr().out
    (folder / "answer.md").write_text("The engine died (EngineDeadError).")
    assert run.main(["grade", str(folder)]) == 1


@pytest.mark.parametrize("args", [["prepare", "none", "x"], ["grade", "none"]])
def test_a_wrong_call_is_told(args: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "evals" / "run.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (2, "USAGE")
