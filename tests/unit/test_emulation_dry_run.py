"""One triple through the dry run: what is taken as it was, what runs, and what is said of the rest."""

import json

import pytest

from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation import dry_run
from npu_upgrade.gates.emulation.catalogue import chosen
from npu_upgrade.gates.emulation.changed import SideFiles
from npu_upgrade.gates.emulation.environment import Environment
from npu_upgrade.gates.emulation.kept import Known, Released, ReleasedPair, trees_key, version
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.sources.tree import open_source

WANTED = chosen(["ar"], ["eager", "graph"], omni=True)
RUNNER = "class Runner:\n    def step(self):\n        return 1\n"


class Machine:
    """In place of processes: what was played, and what is to fail or to end the process."""

    def __init__(self) -> None:
        self.played: list[str] = []
        self.fails: set[str] = set()
        self.dies_at = ""
        self.starts = 0

    def play(self, python, variables, plan, out, runs, go_on, check) -> None:
        self.starts += 1
        out.mkdir(parents=True, exist_ok=True)
        failed = {"type": "TypeError", "text": "step() takes 2", "traceback": ["in step", "TypeError"]}
        imported = {"error": failed} if "import" in self.fails else {"seconds": 1.0}
        (out / "import.json").write_text(json.dumps(imported))
        for run in runs if "import" not in self.fails else ():
            name = f"{run['tier']} {run['scenario']}"
            if name == self.dies_at:
                return
            self.played.append(name)
            result = {"error": failed} if name in self.fails else {"probes": [], "seconds": 1.0}
            (out / f"{run['tier']}-{run['scenario']}.json").write_text(json.dumps(result))
            if not go_on(run):
                return


@pytest.fixture
def triple(tmp_path):
    """Three projects of one file each."""
    for name in ("vllm", "vllm_ascend", "vllm_omni"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / name / "__init__.py").write_text(RUNNER)
    omni, ascend, vllm = (open_source(f"dir:{tmp_path / n}") for n in ("vllm_omni", "vllm_ascend", "vllm"))
    return Triple(omni, ascend, vllm)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine that needs no environment."""
    found = Machine()
    packages = {name: tmp_path / name for name in ("vllm", "vllm_ascend", "vllm_omni")}
    environment = Environment(tmp_path / "env" / "bin" / "python", {}, packages)
    for name, fake in {
        "prepare": lambda omni, ascend, vllm: environment,
        "packages_of": lambda omni, ascend, vllm: (None, environment),
        "watched": lambda triple: ["vllm_omni/__init__.py"],
        "imported": lambda triple: ["vllm_omni/__init__.py"],
        "side_files": lambda triple: SideFiles([], [], [], "nowhere.py"),
        "runner_module": lambda ascend, vllm: "runner",
        "references": lambda wanted: {},
        "play": found.play,
    }.items():
        monkeypatch.setattr(dry_run, name, fake)
    return found


def states(played: dry_run.Played) -> list[tuple[str, str]]:
    return [(outcome.name, outcome.state) for outcome in played.outcomes]


def test_what_passed_is_not_run_again_and_what_failed_is(machine, triple, tmp_path):
    machine.fails = {"graph ar"}
    played = dry_run.run(triple, WANTED, tmp_path / "a", reuse=dry_run.passed)
    assert states(played) == [("import", "PASS"), ("eager ar", "PASS"), ("graph ar", "FAIL")]
    machine.fails, machine.played = set(), []
    played = dry_run.run(triple, WANTED, tmp_path / "b", reuse=dry_run.passed)
    assert machine.played == ["graph ar"]
    assert set(played.reused) == {("eager", "ar")}
    assert [state for _, state in states(played)] == ["PASS"] * 3
    machine.played = []
    dry_run.run(triple, WANTED, tmp_path / "c")
    assert machine.played == ["eager ar", "graph ar"]


def test_what_was_stopped_is_left_out(machine, triple, tmp_path):
    machine.fails = {"eager ar"}
    played = dry_run.run(triple, WANTED, tmp_path / "a", go_on=lambda outcome: outcome.state == "PASS")
    assert states(played) == [("import", "PASS"), ("eager ar", "FAIL")]
    assert (tmp_path / "a" / "eager-ar.log").read_text().endswith("in step\nTypeError\n")


def test_a_process_that_ended_early_is_no_pass(machine, triple, tmp_path):
    machine.dies_at = "graph ar"
    assert states(dry_run.run(triple, WANTED, tmp_path / "a"))[-1] == ("graph ar", "INCONCLUSIVE")


def test_after_a_failed_import_nothing_is_reached(machine, triple, tmp_path):
    machine.fails = {"import"}
    played = dry_run.run(triple, WANTED, tmp_path / "a")
    assert [state for _, state in states(played)] == ["FAIL", "NOT REACHED", "NOT REACHED"]


def test_the_old_pair_runs_only_what_nothing_knows(machine, triple, tmp_path, monkeypatch):
    (eager, graph) = WANTED
    pair = ReleasedPair(trees_key(triple), {"eager ar": Known("FAIL", 1.0, version(eager[1], ()))})
    monkeypatch.setattr(dry_run.kept, "released", lambda: Released({"a pair": pair}))
    before = dry_run.Before(triple, tmp_path / "old")
    assert before.outcome(*eager).state == "FAIL"
    assert not machine.played
    assert [before.outcome(*graph).state for _ in range(2)] == ["PASS", "PASS"]
    assert machine.played == ["graph ar"]


def test_an_old_pair_that_cannot_be_imported_shows_nothing_and_is_asked_once(machine, triple, tmp_path):
    machine.fails = {"import", "eager ar"}
    before = dry_run.Before(triple, tmp_path / "old")
    assert [before.outcome(*one).state for one in WANTED] == ["NOT REACHED", "NOT REACHED"]
    assert machine.starts == 1


def test_an_old_pair_that_cannot_run_decides_nothing(machine, triple, tmp_path, monkeypatch):
    def packages_of(*trees):
        raise Blocked("no room", expected="-", try_="-")

    monkeypatch.setattr(dry_run, "packages_of", packages_of)
    found = dry_run.Before(triple, tmp_path / "old").outcome(*WANTED[0])
    assert (found.state, found.why) == ("INCONCLUSIVE", "the old pair cannot run here: no room")
