"""The tasks of evals/, and the graders on workspaces that are right and on broken ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lineage_kit import RUNNERS, git_at, write_tree
from merge_kit import CONFLICTING, World, audit, make_world, upgrade

import grade
from graders import adaptation, commit, gates, runners
from graders.workspace import Workspace
from npu_upgrade.sources.tree import open_source

ROOT = Path(__file__).parents[2]
TASKS = json.loads((ROOT / "evals" / "evals.json").read_text())
BASE = RUNNERS[0].path
DAY = "2026-03-02"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A finished upgrade: merged, answered, audited, delivered."""
    fence = "        # ------- Omni-new -------\n"
    marked = f"{fence}        self.talk(state)\n{fence}        return state\n"
    ours = CONFLICTING.replace("        return state\n", marked, 1)
    made = make_world(tmp_path, ours)
    monkeypatch.chdir(made.omni)
    for name, value in (("user.name", "T"), ("user.email", "t@example.com")):
        git_at(made.omni, DAY, "config", name, value)
    upgrade("merge", "--omni", f"git:{made.omni}@main", "--ascend", made.target, "--apply", "--branch", "up")
    upgrade("resolve", upgrade("next")[1]["ask"]["id"], "--take", "theirs")
    upgrade("next", "--skip", "emulate", "--note", "not here")
    audit(made)
    assert upgrade("deliver", "--repo", str(made.omni))[0] == 0
    human = tmp_path / "human"
    for path in git_at(made.omni, DAY, "ls-files").split("\n"):
        (human / path).parent.mkdir(parents=True, exist_ok=True)
        (human / path).write_bytes((made.omni / path).read_bytes())
    places = {"pypi:vllm-omni==human": f"dir:{human}"}
    places |= {f"pypi:vllm-ascend=={tag}": f"git:{made.ascend}@{tag}" for tag in ("old", "new")}
    monkeypatch.setattr(runners, "_open", lambda spec: open_source(places[spec]))
    monkeypatch.setattr(runners, "FEWEST", 1)
    return made


TASK: dict[str, Any] = next(task for task in TASKS["evals"] if task["setup"]["kind"] == "upgrade")
SPEC = TASK | {"setup": TASK["setup"] | {"base": "old", "ascend": "new", "human": "human"}}


def scores(world: World) -> dict[str, float]:
    rows = grade.grade(SPEC, world.omni)["assertions"]
    return {row["grader"]: row["score"] for row in rows}


def verdict(world: World) -> str:
    return grade.grade(SPEC, world.omni)["verdict"]


def again(world: World, message: str = "more", *, amend: bool = False) -> None:
    git_at(world.omni, DAY, "add", "-A")
    git_at(world.omni, DAY, "commit", "-q", "-s", *(["--amend", "--no-edit"] if amend else ["-m", message]))


def test_a_good_workspace_meets_everything(world: World) -> None:
    assert verdict(world) == "PASS", scores(world)
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


def test_an_undefined_name_loses_points(world: World) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text().replace("self.talk(state)", "self.talk(statz)"))
    again(world, amend=True)
    found = scores(world)
    assert (found["names"], found["omni_kept"] < 1.0, found["unasked"] < 1.0) == (0.0, True, True)


def test_upstream_left_out_loses_recall(world: World) -> None:
    path = world.omni / BASE
    path.write_text(path.read_text().replace("padded=True", "padded=False"))
    again(world, amend=True)
    assert scores(world)["recall"] < 1.0


def test_lines_nobody_asked_for_lose_points(world: World) -> None:
    path = world.omni / BASE
    more = "".join(f"        self.extra_{number} = {number}\n" for number in range(10))
    path.write_text(
        path.read_text().replace("        self.said = batch\n", f"        self.said = batch\n{more}")
    )
    again(world, amend=True)
    assert scores(world)["unasked"] == 0.5


def test_no_sign_off_loses_points(world: World) -> None:
    git_at(world.omni, DAY, "commit", "-q", "--amend", "-m", "Upgrade")
    assert scores(world)["signed_off"] == 0.0


def test_a_claim_loses_points(world: World) -> None:
    git_at(world.omni, DAY, "commit", "-q", "--amend", "-s", "-m", "Upgrade\n\nAll tests verified on NPU.")
    assert scores(world)["honest"] == 0.0


def test_nothing_delivered_scores_next_to_nothing(world: World) -> None:
    git_at(world.omni, DAY, "reset", "-q", "--hard", "main")
    result = grade.grade(SPEC, world.omni)
    assert (result["verdict"], result["score"] < 0.5) == ("FAIL", True)


def test_without_the_job_there_are_no_gates(world: World) -> None:
    (world.omni / ".npu-upgrade" / "current").unlink()
    assert gates.passed(Workspace(world.omni), SPEC).value == 0.0


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


DENSE = next(task for task in TASKS["evals"] if task["id"] == "adapt-dense")
UNKNOWN = next(task for task in TASKS["evals"] if task["id"] == "adapt-unknown")


def test_an_adaptation_is_graded(adapted: Path) -> None:
    assert grade.grade(DENSE, adapted)["verdict"] == "PASS", grade.grade(DENSE, adapted)
    assert adaptation.artifacts(Workspace(adapted), UNKNOWN).value == 0.0


@pytest.mark.parametrize(
    ("path", "text", "grader"),
    [
        ("requirements.txt", "transformers==5.9\n", adaptation.pins_untouched),
        ("tests/e2e/models/configs/Tiny.yaml", "a: [\n", adaptation.artifacts),
        ("setup.cfg", "[x]\n", commit.nothing_else),
    ],
)
def test_a_bad_adaptation_loses_points(adapted: Path, path: str, text: str, grader: Any) -> None:
    write_tree(adapted, {path: text})
    git_at(adapted, DAY, "add", "-A")
    git_at(adapted, DAY, "commit", "-q", "--amend", "--no-edit")
    assert grader(Workspace(adapted), DENSE).value < 1.0


def test_signing_off_without_proof_loses_points(adapted: Path) -> None:
    git_at(adapted, DAY, "commit", "-q", "--amend", "-s", "-m", "Add Tiny\n\nReal-weight run on NPU: PASS")
    assert adaptation.no_sign_off_without_proof(Workspace(adapted), DENSE).value == 0.0


# -- the tasks themselves --


def test_the_tasks_are_whole() -> None:
    ids = [task["id"] for task in TASKS["evals"]]
    kinds = {task["setup"]["kind"] for task in TASKS["evals"]}
    assert (TASKS["skill_name"], len(set(ids)) == len(ids)) == ("vllm-npu-upgrade", True)
    assert kinds == {"upgrade", "adapt"}
    for task in TASKS["evals"]:
        assert {"id", "prompt", "expected_output", "files", "assertions"} <= set(task)
        assert all((ROOT / name).is_file() for name in task["files"])
        assert all(0 < one["at_least"] <= 1 and one["text"] for one in task["assertions"])


def test_the_queries_have_near_misses() -> None:
    queries = json.loads((ROOT / "evals" / "triggers.json").read_text())["queries"]
    assert {one["should_trigger"] for one in queries} == {True, False}
    assert len({one["query"] for one in queries}) == len(queries)


@pytest.mark.parametrize(
    "args", [["--eval", "none", "--workspace", "."], ["--eval", TASK["id"], "--workspace", "none"]]
)
def test_a_wrong_call_is_told(args: list[str]) -> None:
    command = [sys.executable, str(ROOT / "evals" / "grade.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (2, "USAGE")
