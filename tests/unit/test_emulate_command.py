"""`upgrade.py emulate`: whose files run, what runs, when it stops, and what is written down."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from deliver_support import ASCEND, RUNNER, Upgrade, make_upgrade, run_deliver, write

from npu_upgrade.audit import triples
from npu_upgrade.audit.world import Triple
from npu_upgrade.cli import main as cli
from npu_upgrade.commands import asking, emulate, gate_job, resolve
from npu_upgrade.commands import next as next_command
from npu_upgrade.environments import store
from npu_upgrade.evidence.chain import Record
from npu_upgrade.gates.emulation import dry_run, environment
from npu_upgrade.gates.emulation.changed import Coverage
from npu_upgrade.gates.emulation.choice import Choice
from npu_upgrade.gates.emulation.costs import Cost
from npu_upgrade.gates.emulation.kept import Ran
from npu_upgrade.gates.emulation.outcome import Outcome
from npu_upgrade.ground import behind, command, locks
from npu_upgrade.ground.errors import Blocked
from npu_upgrade.ground.files import write_json
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.job import ask
from npu_upgrade.job import upgrade as stages
from npu_upgrade.job.journal import Answer
from npu_upgrade.job.plan_file import load_plan
from npu_upgrade.job.stages import Stage, State, Step, next_step
from npu_upgrade.job.stops import find_stop
from npu_upgrade.job.upgrade import walk
from npu_upgrade.sources import tree as sources
from npu_upgrade.sources.tree import SourceTree

AR, GENERATION, TALKER = (
    SimpleNamespace(name=name, tiers=("eager", "graph")) for name in ("ar", "generation", "talker")
)
NEEDED = [("eager", AR), ("eager", GENERATION), ("graph", AR)]
PENDING = [("eager", TALKER), ("graph", TALKER)]


def named(key: tuple[str, str]) -> str:
    return " ".join(dict.fromkeys(key))


@dataclass
class Machine:
    """An emulated NPU: which runs fail on the new and on the old pair, and what was asked of it."""

    fails: dict[str, str] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)
    old: dict[str, Outcome] = field(default_factory=dict)
    late: dict[str, Outcome] = field(default_factory=dict)  # of the old pair, known by running it only
    known: set[str] = field(default_factory=set)
    played: list[str] = field(default_factory=list)
    asked_old: list[str] = field(default_factory=list)
    omni: SourceTree | None = None
    failed_last: frozenset[str] = frozenset()
    passed_before: frozenset[str] = frozenset()
    fails_once: frozenset[str] = frozenset()
    passes_after: int = 99
    costs: tuple[Cost, ...] = ()
    on_old: Callable[[], object] = lambda: None

    def choose(self, new, old, paths, tiers, failed, passed) -> Choice:
        self.failed_last, self.passed_before = failed, passed
        return Choice(NEEDED, PENDING, frozenset({"Runner.step"}))

    def held(self, triple, wanted, reuse=None) -> dict[tuple[str, str], None]:
        keys = [(tier, one.name) for tier, one in wanted]
        unsure = self.fails | self.undecided
        return {key: None for key in keys if named(key) in self.known and named(key) not in unsure}

    def run(
        self,
        triple,
        wanted,
        out,
        *,
        reuse=lambda one: False,
        go_on=lambda one: True,
        failed=lambda one: None,
        check=lambda: None,
    ) -> dry_run.Played:
        self.omni, ran, reused = triple.omni, {}, []
        out.mkdir(parents=True)
        for key in [("import", "import"), *((tier, one.name) for tier, one in wanted)]:
            fails = named(key) in self.fails and self.played.count(named(key)) < self.passes_after
            state = "FAIL" if fails else "PASS"
            state = "INCONCLUSIVE" if named(key) in self.undecided else state
            why = (self.fails | self.undecided).get(named(key), "")
            why = why.replace("{run}", str(self.played.count(named(key))))
            once = "other answers" if named(key) in self.fails_once else ""
            outcome = Outcome(*key, state, why, runner="omni.Runner", costs=self.costs, failed_once=once)
            ran[key] = Ran(outcome, "", (), "", {}, {}, {RUNNER: {"Runner.step": [0]}})
            if reuse(outcome) and named(key) in self.known:
                reused.append(key)
                continue
            check()
            self.played.append(named(key))
            (out / f"{'-'.join(key)}.log").write_text(f"{named(key)} ran")
            self.known.add(named(key))
            if not go_on(outcome):
                break
            if fails:
                failed(dry_run.Played(dict(ran), (), {}, reused))
        return dry_run.Played(ran, (), {}, reused)


def tree(spec, project="vllm-ascend"):
    return SourceTree(spec, spec, project, version=spec.rpartition("=")[2])


@pytest.fixture
def machine(monkeypatch):
    """In place of trees, environments and processes."""
    found = Machine()

    class Before:
        def __init__(self, triple, out, check):
            self.check = check

        def outcome(self, tier, scenario, here=False):
            key = (tier, scenario.name if scenario else tier)
            found.on_old()
            self.check()
            found.asked_old.append(named(key))
            return (found.late | found.old).get(named(key), Outcome(*key, "PASS"))

        def known(self, tier, scenario, late=False):
            key = named((tier, scenario.name))
            waited = found.late.get(key) if late and key in found.asked_old else None
            return found.old.get(key, waited)

    def open_triple(omni, ascend, vllm):
        return Triple(omni, tree(ascend), tree("pypi:vllm==0.23.0", "vllm"))

    for name, fake in {
        "coverage": lambda new, old, executed: [],
        "open_triple": open_triple,
        "open_project": tree,
        "baseline": lambda specs, triple, job: triple,
        "choose": found.choose,
        "run_triple": found.run,
        "Before": Before,
        "held": found.held,
    }.items():
        monkeypatch.setattr(emulate, name, fake)
    monkeypatch.setattr(gate_job, "belonging", lambda triple: [])
    monkeypatch.setattr(gate_job, "check_parses", lambda omni: None)
    monkeypatch.setattr(gate_job, "open_triple", open_triple)
    return found


@pytest.fixture
def upgrade(tmp_path, monkeypatch):
    """A job, whose workspace is the present folder."""
    found = make_upgrade(tmp_path, monkeypatch)
    monkeypatch.chdir(found.workspace)
    return found


REST_BEHIND = emulate._rest_behind


@pytest.fixture(autouse=True)
def nothing_behind(monkeypatch):
    """What runs here begins no other process."""
    monkeypatch.setattr(emulate, "_rest_behind", lambda job: contextlib.nullcontext(lambda: False))


@pytest.fixture
def run(capsys):
    """The exit code and the JSON of one ``upgrade.py emulate``."""

    def called(*options: str) -> tuple[int, dict]:
        capsys.readouterr()
        code = cli.main("upgrade.py", "", ["emulate"], ["emulate", "--format", "json", *options])
        captured = capsys.readouterr()
        called.notes = captured.err
        return code, json.loads(captured.out)

    return called


def newest(upgrade: Upgrade) -> Record:
    return upgrade.job.ledger().records[-1]


def test_what_is_needed_runs_and_the_rest_is_named(machine, upgrade, run, capsys):
    code, result = run()
    assert (code, result["verdict"]) == (0, "PASS")
    assert machine.played == ["import", "eager ar", "eager generation", "graph ar"]
    assert result["pending"] == ["eager talker", "graph talker"]
    assert "2 runs pending" in result["summary"]
    assert not machine.asked_old
    data = newest(upgrade).data
    assert data["pending"] == result["pending"]
    assert data["ran"][1] == {
        "tier": "eager", "scenario": "ar", "state": "PASS", "worker": "", "runner": "omni.Runner",
        "classes": {RUNNER: ["Runner"]},
    }  # fmt: skip
    message = json.dumps(run_deliver(upgrade, capsys, "--dry-run")[1])
    assert "Emulated runs pending (2):\\n- eager talker\\n- graph talker" in message


def test_a_pending_run_that_may_show_nothing_is_named_with_why(machine, upgrade, run, monkeypatch, capsys):
    why = "it ends by a known defect of a model"
    monkeypatch.setattr(emulate, "ends_beside", lambda tier, name, _: why if name == "talker" else "")
    run()
    message = json.dumps(run_deliver(upgrade, capsys, "--dry-run")[1])
    assert f"Emulated runs pending (2):\\n- eager talker: {why}\\n" in message
    (said,) = (stage.said for stage in walk(upgrade.job).stages if stage.name == "deliver")
    assert f"graph talker may show nothing: {why}" in said


def test_a_decode_step_that_costs_more_fails_where_costs_are_asked_for(machine, upgrade, run, tmp_path):
    old, new = (
        Cost("talker", "decode of 1", 8, {"aten::add": 2.0}, {"replayed": number}, {})
        for number in (1.0, 0.0)
    )
    machine.costs = (new,)
    machine.old = {
        named((tier, one.name)): Outcome(tier, one.name, "PASS", costs=(old,)) for tier, one in NEEDED
    }
    assert run()[0] == 0
    assert not machine.asked_old
    code, result = run("--costs", "--out", str(tmp_path / "out"))
    assert (code, result["verdict"]) == (1, "FAIL")
    why = {one["why"] for one in result["runs"] if one["state"] == "FAIL"}
    assert why == {"talker decode of 1: no graph is replayed, the old pair 1 a step"}
    assert result["costs"]["eager ar"][0]["replays"] == "1 -> 0"
    assert set(json.loads((tmp_path / "out/costs.json").read_text())["graph ar"]) == {"old", "new"}


def test_its_logs_are_evidence_that_can_be_packed(machine, upgrade, run, capsys):
    run()
    record, pack = newest(upgrade), upgrade.workspace / "run.tar.gz"
    folder = upgrade.job.store.runs / str(record.run)
    assert (folder / "eager-ar.log").read_text() == "eager ar ran"
    assert json.loads((folder / "result.json").read_text())["verdict"] == "PASS"
    for words in (["pack", str(record.run), "--out", str(pack)], ["import", str(pack)]):
        capsys.readouterr()
        assert cli.main("upgrade.py", "", ["evidence"], ["evidence", "--format", "json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["known"] == [record.run]


def test_the_question_about_a_failure_names_its_log_and_no_place_that_nobody_knows(machine, upgrade, run):
    machine.fails = {"eager generation": "two at once: another answer"}
    run()
    record = newest(upgrade)
    found = (ask for stage in walk(upgrade.job).stages for ask in stage.asks)
    asked = next(one for one in found if one.id == "emulate-eager-generation")
    log = upgrade.job.store.runs / str(record.run) / "eager-generation.log"
    said = asked.texts["text"].split("\n")
    assert said[:-1] == ["two at once: another answer", f"log: {log}"]
    assert "next --skip emulate" in said[-1]


@pytest.mark.parametrize(
    ("where", "named"), [("", ["RUNNER"]), (f"{RUNNER}:3 in step", ["ar"]), ("vllm_omni/other.py:1 in x", [])]
)
def test_a_method_answers_a_failure_only_where_it_is_of_a_runner(machine, upgrade, run, where, named):
    machine.fails = {"eager generation": "another answer"}
    run()
    path = upgrade.job.store.runs / str(newest(upgrade).run) / "result.json"
    result = json.loads(path.read_text())
    for one in result["runs"]:
        one["where"] = where
    path.write_text(json.dumps(result))
    plan = load_plan(upgrade.job)
    plan.runners = {"ar": {"path": RUNNER, "class": "Runner"}}
    (asked,) = ask._failed_runs(upgrade.job, plan, [], upgrade.job.records())
    assert [how[-1] for how in asked.how if "--in" in how] == named
    assert ask.CORRECTED in asked.how


def test_every_failure_with_a_reason_of_its_own_is_asked_about(machine, upgrade, run):
    machine.fails = {"eager talker": "another answer", "graph talker": "no such key"}
    run("--rest")
    asked = [ask.id for stage in walk(upgrade.job).stages for ask in stage.asks if ask.stage == "finding"]
    assert sorted(asked) == ["emulate-eager-talker", "emulate-graph-talker"]


def test_what_was_kept_altogether_is_a_run_too(machine, upgrade, run):
    run()
    run()
    record = newest(upgrade)
    assert machine.played.count("eager ar") == 1
    assert (upgrade.job.store.runs / str(record.run) / "result.json").exists()


def test_who_asks_for_the_core_leaves_pending_what_the_change_needs_beside_it(machine, upgrade, run):
    run("--scenarios", "core")
    assert {"eager talker", "graph talker"} <= set(newest(upgrade).data["pending"])


def test_the_rest_is_added_to_the_evidence_and_nothing_runs_twice(machine, upgrade, run):
    run()
    machine.played.clear()
    code, result = run("--rest")
    assert (code, machine.played) == (0, ["eager talker", "graph talker"])
    assert not result["pending"]
    record = newest(upgrade)
    assert (record.gate, record.verdict, record.data["pending"]) == ("emulate", "PASS", [])
    assert len(record.data["ran"]) == 6


def test_the_rest_runs_to_its_end_whatever_fails(machine, upgrade, run):
    run()
    machine.played.clear()
    machine.fails = {"eager talker": "KeyError: 'tide'"}
    assert run("--rest")[0] == 1
    assert machine.played == ["eager talker", "graph talker"]
    assert newest(upgrade).data["failing"] == ["eager talker"]


def test_it_stops_at_a_new_failure_and_goes_on_from_there(machine, upgrade, run):
    machine.fails = {"eager generation": "TypeError: step() takes 2"}
    code, result = run()
    assert (code, result["verdict"]) == (1, "FAIL")
    assert machine.asked_old == ["eager generation"]
    assert result["pending"][0] == "graph ar"
    assert newest(upgrade).data["failing"] == ["eager generation"]
    machine.fails = {}
    machine.played.clear()
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    cli.main("upgrade.py", "", ["plan"], ["plan"])
    assert run()[1]["verdict"] == "PASS"
    assert machine.failed_last.keys() == {"eager generation"}
    assert "eager ar" not in machine.played


def test_the_quick_runs_are_told_with_the_first_failure(machine, upgrade, run, monkeypatch):
    """To correct one and meet the next costs more than a few seconds; the others wait."""
    machine.fails = {"eager ar": "TypeError: step() takes 2", "eager generation": "KeyError: 'tide'"}
    quick = [one for one in NEEDED if one[0] == "eager"]
    choose = machine.choose
    monkeypatch.setattr(emulate, "choose", lambda *given: replace(choose(*given), quick=quick))
    assert run()[0] == 1
    assert machine.played == ["import", "eager ar", "eager generation"]
    assert newest(upgrade).data["failing"] == ["eager ar", "eager generation"]


def test_on_request_it_goes_on_after_a_new_failure(machine, upgrade, run):
    machine.fails = {"eager ar": "TypeError: step() takes 2", "graph ar": "TypeError: replay() takes 1"}
    assert run("--keep-going")[0] == 1
    assert machine.played == ["import", "eager ar", "eager generation", "graph ar"]
    assert newest(upgrade).data["failing"] == ["eager ar", "graph ar"]


def test_a_failure_of_the_old_pair_too_stops_nothing(machine, upgrade, run):
    machine.fails = {"eager ar": "KeyError: 12"}
    machine.old = {"eager ar": Outcome("eager", "ar", "FAIL", "KeyError: 7")}
    code, result = run()
    assert (code, result["tiers"]["eager"]) == (0, "LAG")
    assert "graph ar" in machine.played
    assert "note: the old pair fails alike in eager ar" in run.notes


def test_with_graphs_the_failure_counts_that_the_old_pair_has_without_them(machine, upgrade, run):
    machine.fails = {"graph ar": "KeyError: 12"}
    without = Outcome("eager", "ar", "FAIL", "KeyError: 7")
    machine.old = {"graph ar": Outcome("graph", "ar", "FAIL", "no capture"), "eager ar": without}
    code, result = run()
    assert (code, result["tiers"]["graph"]) == (0, "LAG")
    assert result["runs"][3]["why"] == "KeyError: 12 (the old pair shows it in eager ar)"
    machine.old["eager ar"] = Outcome("eager", "ar", "PASS")
    code, result = run()
    assert (code, result["tiers"]["graph"]) == (1, "FAIL")
    assert "no capture" in result["runs"][-1]["why"]


@pytest.mark.parametrize(
    "old",
    [
        Outcome("eager", "ar", "INCONCLUSIVE", "the old pair cannot run here: x"),
        Outcome("eager", "ar", "NOT REACHED", "the import tier did not pass"),
        Outcome("eager", "ar", "FAIL", "ImportError: no module of that name"),
        Outcome("eager", "ar", "FAIL", "KeyError: 7", "vllm_omni/elsewhere.py:3 in other"),
    ],
)
def test_an_old_pair_that_did_not_fail_in_the_same_way_excuses_nothing(machine, upgrade, run, old):
    machine.fails = {"eager ar": "KeyError: 12"}
    machine.old = {"eager ar": old}
    code, result = run()
    assert (code, result["tiers"]["eager"]) == (1, "FAIL")
    assert old.why in result["runs"][1]["why"]
    assert "graph ar" not in machine.played
    does = f"fails otherwise: {old.why}" if old.state == "FAIL" else f"is {old.state} there"
    assert f"note: eager ar fails newly: the old pair {does}" in run.notes


@pytest.mark.parametrize(
    ("times", "says", "verdict"),
    [
        (1, "payload 'answer' has shape (3,)", "INCONCLUSIVE"),
        (2, "payload 'answer' has shape (3,)", "FAIL"),
        (2, "payload 'answer' has shape ({run},)", "INCONCLUSIVE"),  # another one each time
    ],
)
def test_a_servers_answer_that_comes_and_goes_is_no_failure(
    machine, upgrade, run, monkeypatch, times, says, verdict
):
    monkeypatch.setattr(machine, "choose", lambda *_: Choice([("serve", AR)], [], frozenset()))
    monkeypatch.setattr(emulate, "choose", machine.choose)
    machine.fails, machine.passes_after = {"serve ar": says}, times
    _, result = run()
    assert result["verdict"] == verdict, result
    assert machine.played.count("serve ar") == 2
    (served,) = (one for one in result["runs"] if one["tier"] == "serve")
    assert ("differ from run to run" in served["why"]) is (verdict == "INCONCLUSIVE")


def test_a_race_that_is_known_and_still_there_is_no_failure_and_runs_once(machine, upgrade, run, monkeypatch):
    monkeypatch.setattr(machine, "choose", lambda *_: Choice([("serve", AR)], [], frozenset()))
    monkeypatch.setattr(emulate, "choose", machine.choose)
    monkeypatch.setattr(emulate, "beside_runners", lambda *_: "it may come and go: frames are sent twice")
    machine.fails = {"serve ar": "payload 'answer' has shape (3,)"}
    _, result = run()
    assert (result["verdict"], machine.played.count("serve ar")) == ("INCONCLUSIVE", 1)
    assert "it may come and go: frames are sent twice" in str(result["runs"])


@pytest.mark.parametrize(("each_time", "runs"), [(True, 1), (False, 2)])
def test_what_ends_beside_the_runners_each_time_is_not_repeated(
    machine, upgrade, run, monkeypatch, each_time, runs
):
    says = "by a known defect of model.py, beside the NPU side"
    monkeypatch.setattr(emulate, "beside_runners", lambda *_: says)
    monkeypatch.setattr(emulate, "ended_beside", lambda *_: each_time)
    machine.fails = {"eager talker": "buffers of nn.Module"}
    for asked in ("--scenarios", "all"), ("--rest",):
        _, result = run(*asked)
        assert result["verdict"] == "INCONCLUSIVE"
        assert says in str(result["runs"])
    assert machine.played.count("eager talker") == runs


def test_what_passed_and_failed_with_the_same_files_runs_again_where_it_is_named(machine, upgrade, run):
    run("--scenarios", "all")
    machine.fails_once = frozenset({"eager talker"})
    run("--rest")
    assert machine.played.count("eager talker") == 1
    machine.played.clear()
    run("--scenarios", "talker")
    assert machine.played == ["eager talker"], "what passed each time is known"


def test_the_choice_knows_what_passed_before_an_edit(machine, upgrade, run):
    machine.fails = {"graph ar": "ValueError: a"}
    run("--keep-going")
    assert machine.passed_before == set()
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    run()
    assert {"eager ar", "eager generation"} <= machine.passed_before
    assert "graph ar" not in machine.passed_before


def test_without_an_old_pair_a_failure_is_one(machine, upgrade, run, monkeypatch):
    machine.fails = {"eager ar": "KeyError: 12"}
    monkeypatch.setattr(emulate, "baseline", lambda specs, triple, job: None)
    assert run("--baseline", "none")[1]["verdict"] == "FAIL"


def test_what_fails_comes_before_more_of_the_gpu_side(machine, upgrade, run, monkeypatch):
    """A hunk that fits now, taken before the failure is asked about, would make it one of other files."""
    hunk = {"id": "port-1", "tier": 1}
    monkeypatch.setattr(stages, "port_survey", lambda folder: {"tree": "t", "hunks": [hunk]})
    monkeypatch.setattr(stages, "hunks_to_take", lambda job: ["port-1"])
    states = lambda: {one.name: one.state for one in walk(upgrade.job).stages}  # noqa: E731
    assert states()["port"] == "todo"
    machine.fails = {"eager generation": "TypeError: step() takes 2"}
    run()
    assert (states()["port"], states()["emulate"]) == ("done", "failed")
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    assert states()["port"] == "todo"


def test_what_was_not_shown_is_said_by_next_and_named_in_the_commit(machine, upgrade, run, capsys):
    why = "no reference for npu::rope"
    machine.undecided = {"graph ar": why}
    code, result = run()
    assert (code, result["verdict"]) == (4, "INCONCLUSIVE")
    left = f"graph ar: INCONCLUSIVE, {why}"
    assert left in result["pending"]
    assert "not shown: graph ar" in result["summary"]
    message = json.dumps(run_deliver(upgrade, capsys, "--dry-run")[1])
    assert "Emulated runs pending (2):\\n- eager talker\\n- graph talker\\n" in message
    assert f"Emulated runs without a result (1):\\n- {left}" in message
    assert left in next(stage.said for stage in walk(upgrade.job).stages if stage.name == "deliver")


def test_what_was_not_shown_stays_named_until_it_runs_again(machine, upgrade, run, monkeypatch):
    machine.undecided = {"graph ar": "no reference"}
    run()
    monkeypatch.setattr(emulate, "choose", lambda *_: Choice([("eager", AR)], [], frozenset()))
    for _ in range(2):
        assert run()[1]["pending"] == ["graph ar: INCONCLUSIVE, no reference"]
    machine.undecided = {}
    monkeypatch.setattr(emulate, "choose", lambda *_: Choice([("graph", AR)], [], frozenset()))
    assert run()[1]["pending"] == []


def test_what_was_at_work_when_it_was_told_is_not_named_once_the_files_changed(monkeypatch):
    pending = [
        "eager ar: LAG, x",
        "graph ar",
        "pipelines tts: INCONCLUSIVE, y (not compared with the old pair yet)",
    ]
    record = SimpleNamespace(data={"pending": pending})
    monkeypatch.setattr(emulate, "_newest", lambda gate: record)
    assert emulate._never_shown(None, SimpleNamespace(data={"runs": []})) == ["eager ar: LAG, x"]


def test_a_changed_file_of_which_nothing_ran_is_named(machine, upgrade, run, monkeypatch):
    covered = [Coverage("vllm_omni/npu/moe.py", 3, (1, 2, 3)), Coverage("vllm_omni/npu/ar.py", 3, (1,))]
    monkeypatch.setattr(emulate, "coverage", lambda new, old, executed: covered)
    found = run()[1] | {"problems": [], "costs": {}}
    for own in ([], ["vllm_omni/npu/moe.py", "vllm_omni/npu/ar.py"]):
        assert emulate._brief(found, own)["changed_and_nothing_of_it_executed"] == ["vllm_omni/npu/moe.py"]
    others = emulate._brief(found, ["vllm_omni/npu/ar.py"])
    assert "changed_and_nothing_of_it_executed" not in others, "it changed with the GPU side's commit"


def test_what_passed_is_counted_and_pipelines_are_named(machine, upgrade, run):
    found = run()[1] | {"problems": [], "costs": {}}
    ran = [("eager", "ar"), ("eager", "talker"), ("pipelines", "qwen3-tts"), ("pipelines", "wan-ti2v")]
    found["runs"] = [{"state": "PASS", "tier": tier, "scenario": name} for tier, name in ran]
    assert emulate._brief(found, [])["passed"] == "eager 2, pipelines 2 (qwen3-tts, wan-ti2v)"
    found["runs"] = []
    assert "passed" not in emulate._brief(found, [])


def test_what_a_release_lacks_is_named_with_why_nothing_ran(machine, upgrade, run):
    found = run()[1] | {"problems": [], "costs": {}}
    lacks = {"state": "ABSENT", "tier": "pipelines", "why": "vllm-omni has no moss_tts.py"}
    found["runs"] = [lacks | {"scenario": name} for name in ("moss-tts", "moss-tts-uncaptured")]
    said = emulate._brief(found, [])["absent"]
    assert said == ["pipelines moss-tts, pipelines moss-tts-uncaptured: vllm-omni has no moss_tts.py"]


def test_what_the_rest_has_shown_stays_shown_and_what_lags_is_not_run_again(machine, upgrade, run):
    machine.fails = {"eager talker": "KeyError: 12"}
    machine.old = {"eager talker": Outcome("eager", "talker", "FAIL", "KeyError: 7")}
    assert run("--rest")[0] == 0
    machine.played.clear()
    assert run("--rest")[1]["tiers"]["eager"] == "LAG"
    assert machine.played == []
    assert run()[1]["pending"] == ["eager talker: LAG, KeyError: 12"]  # the graph one is shown
    assert machine.played == []


def test_what_lags_is_told_with_the_findings_that_lag_too(machine, upgrade, run):
    """A cheap correction may be behind both; nobody looks for it where each is only a number."""
    names = ("owner", "check", "what", "state")
    rows = [
        ("Worker", "parity-overrides", "has no sleep", "LAG"),
        ("R.run", "unreached", "makes no cache", "LAG"),
    ]
    rows.append(("R.load", "calls", "needs a name", "WAIVED"))
    findings = [dict(zip(names, row, strict=True)) for row in rows]
    write_json(upgrade.job.folder / "audit.json", {"findings": findings})
    said = lambda: next(one.said for one in walk(upgrade.job).stages if one.name == "deliver")  # noqa: E731
    run()
    assert "as on the old pair" not in said()
    machine.fails = {"eager ar": "KeyError: 12"}
    machine.old = {"eager ar": Outcome("eager", "ar", "FAIL", "KeyError: 7")}
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    run()
    told = "2 findings of the audit that it has too may be why (upgrade.py audit --format text): "
    assert f"{told}R.run: unreached: makes no cache; Worker: parity-overrides: has no sleep" in said()


def test_a_pending_run_that_was_not_shown_before_is_named_once(machine, upgrade, run, monkeypatch):
    machine.undecided = {"graph ar": "no reference"}
    run()
    monkeypatch.setattr(emulate, "choose", lambda *_: Choice([("eager", AR)], [("graph", AR)], frozenset()))
    assert run()[1]["pending"] == ["graph ar: INCONCLUSIVE, no reference"]


def test_what_lagged_with_other_files_is_pending_and_not_said_to_lag(machine, upgrade, run, monkeypatch):
    machine.undecided = {"graph ar": "no reference"}
    run()
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    monkeypatch.setattr(emulate, "choose", lambda *_: Choice([("eager", AR)], [("graph", AR)], frozenset()))
    assert run()[1]["pending"] == ["graph ar"]


def test_a_machine_that_cannot_run_it_leaves_every_run_pending(machine, upgrade, run, monkeypatch):
    def prepare(*given, **options):
        raise Blocked("no g++", expected="-", try_="-")

    monkeypatch.setattr(emulate, "run_triple", prepare)
    assert run()[0] == 3
    assert newest(upgrade).data["pending"] == ["every run: BLOCKED, no g++"]


def test_an_old_pair_that_cannot_be_had_stops_nothing(machine, upgrade, run, monkeypatch):
    def baseline(specs, triple, job):
        raise Blocked("no index", expected="-", try_="-")

    monkeypatch.setattr(emulate, "baseline", baseline)
    assert run()[1]["verdict"] == "PASS"
    assert run("--baseline", "pypi:vllm-ascend==1")[0] == 3


def test_another_target_keeps_the_files_of_the_job_and_is_evidence_of_a_neighbour(
    machine, upgrade, run, capsys
):
    machine.fails = {"eager ar": "KeyError: 12"}
    code, _ = run("--ascend", "pypi:vllm-ascend==0.24.0rc1")
    assert code == 1
    assert machine.omni is not None
    assert str(upgrade.repo) in machine.omni.spec
    record = newest(upgrade)
    assert record.gate == "emulate-neighbour"
    assert record.summary.startswith("on vllm-ascend 0.24.0rc1 + vllm 0.23.0, a neighbour of the target: ")
    assert record.pins["ascend"]["version"] == "0.24.0rc1"
    code, result = run_deliver(upgrade, capsys, "--dry-run")
    assert code == 0, result
    assert "emulate-neighbour FAIL" in json.dumps(result)


def test_a_job_of_vllm_ascend_itself_runs_its_files_and_takes_no_other(machine, upgrade, run, monkeypatch):
    path = upgrade.job.folder / "job.json"
    job = json.loads(path.read_text())
    job["inputs"]["whole"] = True
    job["inputs"]["omni"]["identity"]["project"] = "vllm-ascend"
    job["inputs"]["ascend"] = {"spec": "pypi:vllm==0.24.0", "identity": {"project": "vllm"}}
    path.write_text(json.dumps(job))
    monkeypatch.setattr(gate_job, "open_project", tree)
    code, result = run("--ascend", "pypi:vllm-ascend==0.24.0rc1")
    assert code == 2
    assert "--ascend in a job of vllm-ascend itself" in result["error"]
    run()
    assert machine.omni is None
    assert newest(upgrade).pins["vllm"]["version"] == "0.24.0"


def test_the_jobs_own_target_by_name_is_the_jobs_own(machine, upgrade, run):
    run("--ascend", ASCEND["spec"])
    assert newest(upgrade).gate == "emulate"


def test_the_target_is_no_old_pair_of_a_job(machine, upgrade, run, monkeypatch):
    monkeypatch.setattr(emulate, "baseline", gate_job.baseline)
    monkeypatch.setattr(gate_job, "open_project", tree)
    monkeypatch.setattr(gate_job, "named_triple", lambda specs, triple: triple)
    code, result = run("--baseline", ASCEND["spec"])
    assert code == 2
    assert "--baseline is the target itself" in result["error"]


def test_vllm_ascend_alone_is_asked_for_by_name_or_outside_of_a_job(
    machine, upgrade, run, tmp_path, monkeypatch
):
    run("--ascend", "pypi:vllm-ascend==0.24.0rc1", "--omni", "none")
    assert machine.omni is None
    (upgrade.workspace / ".npu-upgrade/current").write_text("gone")
    machine.omni = None
    assert run("--ascend", "pypi:vllm-ascend==0.24.0rc1")[0] == 2
    machine.known.clear()
    machine.played.clear()
    monkeypatch.chdir(tmp_path)
    run("--ascend", "pypi:vllm-ascend==0.24.0rc1")
    assert (machine.omni, machine.played[0]) == (None, "import")


def test_another_vllm_than_the_targets_is_told_with_the_verdict(machine, upgrade, run):
    run("--vllm", "pypi:vllm==0.23.0")
    record = newest(upgrade)
    assert record.gate == "emulate"
    assert record.summary.startswith("on vllm-ascend 0.23.0.post1 + vllm 0.23.0, which --vllm named: ")


def test_files_that_change_meanwhile_are_not_judged(machine, upgrade, run, monkeypatch):
    def changing(*given, **options):
        write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
        return machine.run(*given, **options)

    monkeypatch.setattr(emulate, "run_triple", changing)
    code, result = run()
    assert code == 2
    assert "changed while gate emulate judged them" in json.dumps(result)
    assert not machine.played
    assert next_step(walk(upgrade.job)).stop is None  # the same call judges what the files are now


@pytest.mark.parametrize(("stage", "tried"), [("port", False), ("finding", True), ("", False)])
def test_a_failure_that_nobody_tried_to_correct_needs_no_person(machine, upgrade, run, stage, tried):
    """It was found while something else was asked, whose answers changed the files."""
    machine.fails = {"eager generation": "TypeError: step() takes 2"}
    for number in range(2):
        assert run()[0] == 1
        if number == 0:
            evidence = newest(upgrade).id if stage == "finding" else ""
            if stage:
                upgrade.job.journal.add(Answer, id="port-1", how="accept", stage=stage, evidence=evidence)
            write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
            cli.main("upgrade.py", "", ["plan"], ["plan"])
    stop = find_stop(upgrade.job, load_plan(upgrade.job), upgrade.job.ledger().records)
    assert (stop is not None and stop.rule == "unchanged") is tried


class Other:
    """Another run of the same job; what it does when this one looks again for the second time is to end."""

    def __init__(self, upgrade: Upgrade, monkeypatch, then=None) -> None:
        self.looks, self.then, self.folder = 0, then or self.end, upgrade.job.folder
        self.lock = contextlib.ExitStack()
        self.begin()
        monkeypatch.setattr(emulate, "sleep", self.looked)

    def begin(self) -> None:
        assert self.lock.enter_context(locks.alone_now(self.folder / "emulate"))

    def end(self) -> None:
        self.lock.close()

    def looked(self, seconds: float) -> None:
        self.looks += 1
        if self.looks == 2:
            self.then()


def test_a_run_waits_for_another_of_the_same_job(machine, upgrade, run, monkeypatch):
    machine.known = {"import", "eager ar"}
    other = Other(upgrade, monkeypatch)
    assert run()[0] == 0
    assert other.looks == 2
    assert machine.played == ["eager generation", "graph ar"]


def test_what_another_run_has_shown_already_is_not_waited_for(machine, upgrade, run, monkeypatch):
    machine.fails = {"eager ar": "KeyError: 12"}
    machine.old = {"eager ar": Outcome("eager", "ar", "FAIL", "KeyError: 7")}
    first = run()[1]
    machine.played.clear()
    other = Other(upgrade, monkeypatch)
    code, result = run()
    assert (code, other.looks, machine.played) == (0, 0, [])
    assert (result["pending"], result["summary"]) == (first["pending"], first["summary"])
    other.end()


def test_a_failure_that_nobody_was_told_is_told_while_the_other_run_goes_on(
    machine, upgrade, run, monkeypatch
):
    """It was found between the look at what is to do and this call."""
    machine.fails = {"eager ar": "KeyError: 12"}
    run()
    (upgrade.job.folder / "emulate.told").unlink()
    machine.played.clear()
    other = Other(upgrade, monkeypatch)
    assert (run()[0], other.looks, machine.played) == (1, 0, [])
    other.end()


def test_what_another_run_shows_first_is_taken_while_it_goes_on(machine, upgrade, run, monkeypatch):
    def shows() -> None:
        other.end()
        shown.append(run()[1])
        machine.played.clear()
        other.begin()

    shown: list[dict] = []
    other = Other(upgrade, monkeypatch, shows)
    code, result = run()
    assert (code, other.looks, machine.played) == (0, 2, [])
    assert result["summary"] == shown[0]["summary"]
    other.end()


def test_who_waits_for_the_rest_waits_for_its_end(machine, upgrade, run, monkeypatch):
    run()
    said: list[str] = []
    monkeypatch.setattr(emulate, "say", said.append)
    other = Other(upgrade, monkeypatch)
    lines = ["[   0.1s] waiting for another run of this job", "[  17.0s]   eager-talker   14.0 s", "{"]
    (upgrade.job.folder / "progress.log").write_text("\n".join(lines))
    assert run("--rest")[1]["pending"] == []
    assert other.looks == 2
    assert any(one.endswith("; it said: [  17.0s]   eager-talker   14.0 s") for one in said), said


def test_a_failure_of_the_rest_is_told_while_the_others_run(machine, upgrade, run, monkeypatch):
    """Who waits can correct it at once; who then waits again hears of it no second time."""
    seen: list[Record] = []

    def looking(triple, wanted, out, *, check=lambda: None, **options):
        return machine.run(
            triple, wanted, out, check=lambda: (seen.append(newest(upgrade)), check()), **options
        )

    run()
    monkeypatch.setattr(emulate, "run_triple", looking)
    machine.fails = {"eager talker": "KeyError: 'tide'"}
    machine.old = {"eager talker": Outcome("eager", "talker", "PASS")}
    monkeypatch.setenv("NPU_UPGRADE_BEHIND", "1")
    monkeypatch.setattr(emulate, "give_way", lambda: None)
    assert run("--rest")[0] == 1
    assert [(one.verdict, one.data["failing"], one.data["pending"]) for one in seen] == [
        ("PASS", [], ["eager talker", "graph talker"]),
        ("FAIL", ["eager talker"], ["graph talker"]),
    ]
    monkeypatch.delenv("NPU_UPGRADE_BEHIND")
    machine.fails = {}
    other = Other(upgrade, monkeypatch)
    code, result = run("--rest")
    failing = [one["scenario"] for one in result["runs"] if one["state"] == "FAIL"]
    assert (code, other.looks, failing) == (1, 0, ["talker"])
    assert run("--rest")[0] == 0
    assert other.looks == 2


def test_what_the_rest_could_not_show_is_not_run_again_by_who_waited_for_it(
    machine, upgrade, run, monkeypatch
):
    def ends() -> None:
        other.end()
        run("--rest")
        machine.played.clear()

    run()
    machine.undecided = {"graph talker": "no answer in 90 s"}
    other = Other(upgrade, monkeypatch, ends)
    assert run("--rest")[1]["pending"] == ["graph talker: INCONCLUSIVE, no answer in 90 s"]
    assert machine.played == []
    run("--rest")
    assert machine.played == ["graph talker"]


def test_the_old_pair_runs_when_the_rest_has_ended(machine, upgrade, run, monkeypatch):
    """Minutes of it, for a failure that may lag, keep nobody from what the others show."""
    run()
    order: list[str] = []
    play, ask = machine.run, emulate.Before.outcome
    monkeypatch.setattr(emulate, "run_triple", lambda *a, **k: (play(*a, **k), order.append("ended"))[0])
    monkeypatch.setattr(
        emulate.Before,
        "outcome",
        lambda self, tier, one, here=False: (order.append(f"old {tier}"), ask(self, tier, one))[1],
    )
    machine.fails = {"eager talker": "KeyError: 'tide'"}
    assert run("--rest")[1]["verdict"] == "FAIL"
    assert order == ["ended", "ended", "old eager"]
    assert newest(upgrade).data["failing"] == ["eager talker"]


def test_a_failure_that_is_not_compared_yet_is_no_question(machine, upgrade, run, monkeypatch):
    """Of two that the old pair has to run for, the first is told as new while the other may lag."""
    run()
    machine.fails = {"eager talker": "KeyError: 'tide'", "graph talker": "KeyError: 12"}
    machine.late = {"graph talker": Outcome("graph", "talker", "FAIL", "KeyError: 7")}
    seen: list[Record] = []
    ask = emulate.Before.outcome

    def outcome(self, tier, one, here=False):
        seen.append(newest(upgrade))
        return ask(self, tier, one)

    monkeypatch.setattr(emulate.Before, "outcome", outcome)
    assert run("--rest")[0] == 1
    assert [one.data["failing"] for one in seen][:2] == [[], ["eager talker"]]
    assert "(not compared with the old pair yet)" in seen[1].data["pending"][0]
    assert newest(upgrade).data["failing"] == ["eager talker"]


@pytest.mark.parametrize(("why", "asked"), [("was not answered: timed out", True), ("no reference", False)])
def test_what_is_late_in_the_rest_is_held_against_the_old_pair(machine, upgrade, run, why, asked):
    run()
    machine.undecided = {"graph talker": why}
    old = Outcome("graph", "talker", "INCONCLUSIVE", "no answer there either")
    machine.late = {"graph talker": old}
    pending = run("--rest")[1]["pending"]
    said = f" (the old pair is INCONCLUSIVE: {old.why})" if asked else ""
    assert pending == [f"graph talker: INCONCLUSIVE, {why}{said}"]


def test_what_neither_pair_ends_in_time_is_not_tried_again_behind(machine, upgrade, run):
    run()
    why = "was not answered: timed out"
    machine.undecided = {"graph talker": why}
    machine.late = {"graph talker": Outcome("graph", "talker", "INCONCLUSIVE", "timed out there")}
    first = run("--rest")[1]["pending"]
    assert run("--rest")[1]["pending"] == first
    beside_and_alone = 2
    assert machine.played.count("graph talker") == beside_and_alone
    assert machine.asked_old.count("graph talker") == 1
    machine.late["graph talker"] = Outcome("graph", "talker", "INCONCLUSIVE", "no reference there")
    run("--rest")
    assert machine.played.count("graph talker") == beside_and_alone + 1, "nothing ran beside it"


def test_what_was_late_beside_others_is_tried_alone(machine, upgrade, run, monkeypatch):
    def quiet(triple, wanted, out, **options):
        if "alone" in out.parts:
            machine.undecided = {}
        return machine.run(triple, wanted, out, **options)

    run()
    machine.undecided = {"graph talker": "was not answered: timed out"}
    monkeypatch.setattr(emulate, "run_triple", quiet)
    _, result = run("--rest")
    assert (result["verdict"], result["pending"], machine.asked_old) == ("PASS", [], [])
    assert machine.played.count("graph talker") == 2


def test_what_is_needed_is_evidence_before_the_rest_runs(machine, upgrade, run, monkeypatch):
    def looking(triple, wanted, out, **options):
        if out.name == "rest":
            seen.append(newest(upgrade))
        return machine.run(triple, wanted, out, **options)

    seen: list[Record] = []
    monkeypatch.setattr(emulate, "run_triple", looking)
    assert run("--rest")[0] == 0
    assert [(one.verdict, one.data["pending"]) for one in seen] == [
        ("PASS", ["eager talker", "graph talker"])
    ]
    assert newest(upgrade).data["pending"] == []
    assert len(newest(upgrade).data["ran"]) == 6


def test_the_failure_that_another_run_found_is_told_and_not_run_again(machine, upgrade, run, monkeypatch):
    started = []

    def ends() -> None:
        other.end()
        started.append(run("--rest")[1])
        machine.played.clear()

    other = Other(upgrade, monkeypatch, ends)
    machine.fails = {"eager generation": "TypeError: step() takes 2"}
    code, result = run()
    assert (code, result["verdict"], machine.played) == (1, "FAIL", [])
    assert result["summary"] == started[0]["summary"]
    assert [one.gate for one in upgrade.job.ledger().records].count("emulate") == 1


def test_an_edit_ends_the_waiting(machine, upgrade, run, monkeypatch):
    other = Other(upgrade, monkeypatch)
    looked = other.looked
    monkeypatch.setattr(
        emulate, "sleep", lambda s: (looked(s), write(upgrade.repo, RUNNER, "NAME = 'edited'\n"))
    )
    assert run()[0] == 2
    assert other.looks == 1
    other.end()


class Begun:
    """The same command in the background, which ends when one has looked for it a second time."""

    def __init__(self, ends=lambda: None) -> None:
        self.code, self.looks, self.ends, self.terminated = None, 0, ends, False

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.terminated = True

    def wait(self) -> None:
        assert self.terminated

    def looked(self, seconds: float) -> None:
        self.looks += 1
        if self.looks == 2:
            self.ends()
            self.code = 0


@pytest.fixture
def begun(monkeypatch):
    """A function that says what comes of the rest in the background."""

    def of(process: Begun) -> Begun:
        monkeypatch.setattr(emulate, "_rest_behind", REST_BEHIND)
        monkeypatch.setattr(emulate, "go_behind", lambda log: process)
        monkeypatch.setattr(emulate, "sleep", process.looked)
        return process

    return of


def test_the_rest_runs_in_the_background_and_is_waited_for(machine, upgrade, run, monkeypatch, begun):
    """The command of an agent has a limit, and what is at work then is not lost."""

    def ends() -> None:
        with monkeypatch.context() as other:
            other.setenv("NPU_UPGRADE_BEHIND", "1")
            other.setattr(emulate, "give_way", lambda: None)
            assert run("--rest")[0] == 0

    other = begun(Begun(ends))
    code, result = run("--rest")
    assert (code, result["pending"], other.looks) == (0, [], 2)
    assert machine.played.count("eager talker") == 1, "the one in the background played it"


def test_the_rest_of_one_that_ended_without_a_word_is_played_here(machine, upgrade, run, begun):
    other = begun(Begun())
    assert run("--rest")[0] == 0
    assert other.looks == 2
    assert machine.played.count("eager talker") == 1


def test_who_interrupts_the_waiting_ends_the_run_too(machine, upgrade, run, monkeypatch, begun):
    def interrupted() -> None:
        raise KeyboardInterrupt

    other = begun(Begun(interrupted))
    run("--rest")
    assert other.terminated
    assert machine.played == []


@pytest.mark.parametrize("options", [("--keep-going",), ("--tiers", "eager"), ("--baseline", "none")])
def test_what_is_asked_for_otherwise_runs_here(machine, upgrade, run, begun, options):
    other = begun(Begun())
    run("--rest", *options)
    assert other.looks == 0
    assert machine.played


@pytest.fixture
def behind_all(monkeypatch):
    monkeypatch.setenv("NPU_UPGRADE_BEHIND", "1")
    monkeypatch.setattr(emulate, "give_way", lambda: None)


def test_behind_an_edit_ends_nothing_and_what_fails_is_told_of_the_files_before(
    machine, upgrade, run, monkeypatch, behind_all
):
    """Who corrects the first failure meanwhile gets to know of all others at once."""

    def edited_at_the_first(*given, go_on, **options):
        return machine.run(
            *given,
            go_on=lambda one: (write(upgrade.repo, RUNNER, "NAME = 'edited'\n"), go_on(one))[1],
            **options,
        )

    monkeypatch.setattr(emulate, "run_triple", edited_at_the_first)
    before = load_plan(upgrade.job).subject(upgrade.repo).tree
    machine.fails = {"eager ar": "KeyError: 12", "graph ar": "KeyError: 13"}
    assert run("--rest")[0] == 1
    assert machine.played[-2:] == ["eager talker", "graph talker"]
    record = newest(upgrade)
    assert (record.tree, record.data["failing"]) == (before, ["eager ar", "graph ar"])
    assert machine.omni.read(RUNNER) != "NAME = 'edited'\n", "a snapshot runs"
    monkeypatch.delenv("NPU_UPGRADE_BEHIND")
    assert {stage.name: stage.state for stage in walk(upgrade.job).stages}["emulate"] == "stale"
    assert [one.partition(":")[0] for one in ask.failed_besides(upgrade.job)] == ["eager ar", "graph ar"]
    monkeypatch.setattr(emulate, "run_triple", machine.run)
    machine.played.clear()
    assert run()[0] == 1
    assert newest(upgrade).data["failing"] == ["eager ar", "graph ar"], "both in one answer"
    assert machine.failed_last.keys() == {"eager ar", "graph ar"}


def test_behind_an_edit_ends_a_run_when_somebody_waits_for_the_edited_files(
    machine, upgrade, run, monkeypatch, behind_all
):
    wanted = upgrade.job.folder / "emulate.wanted"
    wanted.write_text("another tree")

    def ran(*given, go_on, **options):
        wanted.write_text("the tree with an edit, of a file that the upgrade had not before")
        return machine.run(*given, go_on=go_on, **options)

    assert run("--rest")[0] == 0, "nobody waits for those any more"
    machine.known.clear()
    monkeypatch.setattr(emulate, "run_triple", ran)
    code, result = run("--rest")
    assert code == 2
    assert "changed while gate emulate judged them" in json.dumps(result)


def test_behind_an_edit_ends_a_run_of_the_old_pair_too(machine, upgrade, run, monkeypatch, behind_all):
    """It is what takes longest, and is asked for when all others ended."""
    machine.fails = {"eager talker": "KeyError: 12"}
    machine.late = {"eager talker": Outcome("eager", "talker", "PASS")}
    wanted = upgrade.job.folder / "emulate.wanted"
    monkeypatch.setattr(machine, "on_old", lambda: wanted.write_text("the edited files"))
    assert run("--rest")[0] == 2
    assert machine.asked_old == []


def test_a_snapshot_has_what_is_there(machine, upgrade, run):
    texts = dict(machine.omni.over[1]) if run()[0] == 0 and machine.omni and machine.omni.over else {}
    assert RUNNER in texts
    gone, picture = sorted(path for path in texts if path != RUNNER)[:2]
    (upgrade.repo / gone).unlink()
    (upgrade.repo / picture).write_bytes(b"\xff\xd8\xff")
    machine.known.clear()
    assert run()[0] == 0
    assert machine.omni.over[1][gone] is None
    assert picture not in machine.omni.over[1]


def test_who_waits_says_for_which_files(machine, upgrade, run, monkeypatch):
    other = Other(upgrade, monkeypatch)
    assert run()[0] == 0
    assert other.looks == 2
    tree = load_plan(upgrade.job).subject(upgrade.repo).tree
    assert (upgrade.job.folder / "emulate.wanted").read_text() == tree


def test_who_waits_for_files_of_before_ends_no_run_of_the_present_ones(machine, upgrade, run, monkeypatch):
    """An edit may add a file to the upgrade, of which the plan of who waits knows nothing."""
    other = Other(upgrade, monkeypatch)
    beside = str(Path(RUNNER).parent / "beside.py")
    write(upgrade.repo, beside, "PLACE = 1\n")
    wanted = upgrade.job.folder / "emulate.wanted"
    present = load_plan(upgrade.job).subject(upgrade.repo).tree
    wanted.write_text(present)
    before = emulate.begin

    def begun_before_the_edit(*given, **options):
        (upgrade.repo / beside).unlink()
        gate = before(*given, **options)
        write(upgrade.repo, beside, "PLACE = 1\n")
        return gate

    monkeypatch.setattr(emulate, "begin", begun_before_the_edit)
    assert run()[0] == 2
    assert wanted.read_text() == present
    other.end()


def test_who_waits_for_the_rest_is_told_in_time_and_waits_on(machine, upgrade, run, monkeypatch):
    """Who calls often ends a command after ten minutes."""
    assert run()[0] == 0
    machine.known.clear()
    monkeypatch.setattr(emulate, "_MOST_WAITED", 2)
    waited = []
    monkeypatch.setattr(emulate, "sleep", waited.append)
    with locks.alone_now(upgrade.job.folder / "emulate"):
        code, data = run("--rest")
    assert (code, len(waited)) == (0, 2)
    assert data["summary"].startswith("the others are at work still, the next command waits on")
    (upgrade.job.folder / "progress.log").write_text("[  60.1s]   eager-ar    5.6 s, 3 of 42 runs left\n")
    with locks.alone_now(upgrade.job.folder / "emulate"):
        data = run("--rest")[1]
    assert data["summary"].startswith("the others are at work still (3 of 42 runs left), the next")
    assert "pending" not in data  # the counts are those of before
    assert "runs pending" not in data["summary"]
    assert {"emulate", "--rest"} <= {*data["next"].split()}


def test_a_run_that_nobody_waits_for_is_no_stage_at_work(machine, upgrade, run, monkeypatch):
    monkeypatch.setenv("NPU_UPGRADE_BEHIND", "1")
    monkeypatch.setattr(emulate, "give_way", lambda: None)
    states = []

    def looking(*given, **options):
        states.append({stage.name: stage.state for stage in walk(upgrade.job).stages}["emulate"])
        return machine.run(*given, **options)

    monkeypatch.setattr(emulate, "run_triple", looking)
    assert run("--rest")[0] == 0
    assert states == ["todo", "done"]
    assert newest(upgrade).verdict == "PASS"


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_failure_of_what_is_needed_ends_the_rest_that_somebody_waits_for(
    machine, upgrade, run, monkeypatch, waited_for
):
    if not waited_for:
        monkeypatch.setenv("NPU_UPGRADE_BEHIND", "1")
        monkeypatch.setattr(emulate, "give_way", lambda: None)
    machine.fails = {"eager generation": "TypeError: step() takes 2", "eager talker": "KeyError: 'tide'"}
    assert run("--rest")[0] == 1
    began = ["import", "eager ar", "eager generation"]
    rest = ["graph ar", "eager talker", "graph talker"]
    assert machine.played == (began if waited_for else began + rest)
    failing = ["eager generation"] if waited_for else ["eager generation", "eager talker"]
    assert newest(upgrade).data["failing"] == failing


@pytest.fixture
def started(monkeypatch):
    """The commands that are begun in the background, and are not."""
    commands = []

    def begin(*command, **how):
        commands.append(command)
        return SimpleNamespace(pid=7)

    monkeypatch.setattr(behind, "subprocess", SimpleNamespace(Popen=begin, DEVNULL=-3))
    return commands


def test_what_runs_in_the_background_names_what_to_do_meanwhile(upgrade, run, started):
    code, data = run("--rest", "--background")
    assert (code, data["process"], len(started)) == (0, 7, 1)
    assert data["next"].startswith("upgrade.py merge --omni")  # what the job is at


def test_a_run_of_the_same_files_to_the_end_is_begun_once(upgrade, run, started):
    tree = load_plan(upgrade.job).subject(upgrade.job.root).tree
    for at_work, more in ((f"{tree} to the end", 0), (tree, 1), ("another to the end", 1)):
        (upgrade.job.folder / "emulate.at-work").write_text(at_work)
        with locks.alone_now(upgrade.job.folder / "emulate"):
            code, data = run("--rest", "--background")
        assert (code, len(started)) == (0, more), at_work
        assert ("run already" in data["summary"]) == (not more)
        started.clear()
    run("--rest", "--background")  # nobody is at work
    assert len(started) == 1


def test_next_begins_the_run_beside_the_audit_and_tells_what_failed_there(
    machine, upgrade, run, monkeypatch, capsys
):
    monkeypatch.setattr(environment, "check_machine", lambda: None)
    monkeypatch.setattr(stages, "port_survey", lambda folder: {"tree": "t"})
    monkeypatch.setattr(stages, "hunks_to_take", lambda job: [])
    here = {"path": RUNNER, "line": 1, "text": "NAME", "project": "vllm-omni"}
    found = {"key": "arity-1", "check": "arity", "state": "NEW", "here": here, "owner": "Runner"}
    called = []

    def answered(command, *, whole):
        called.append(command.short.split()[1])
        if "--background" in command.arguments:
            machine.fails = {"eager generation": "TypeError: step() takes 2"}
            run()  # what it finds while the audit's questions are open
            return 0, {"verdict": "PASS", "summary": "runs in process 7"}
        upgrade.record("audit", verdict=Verdict.FAIL, data={"failing": ["arity-1"]})
        told = {"findings": [found | {"what": "it gets 2", "why": "-", "todo": "-", "subject": "step"}]}
        (upgrade.job.folder / "audit.json").write_text(json.dumps(told))
        return 1, {"verdict": "FAIL", "summary": "1 new"}

    monkeypatch.setattr(next_command, "answered", answered)
    upgrade.write_plan(items=[])
    upgrade.job.begin("merge")
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    upgrade.record("plan")
    capsys.readouterr()
    cli.main("upgrade.py", "", ["next"], ["next", "--run"])
    said = json.loads(capsys.readouterr().out)
    assert called == ["emulate", "audit"], said
    assert (said["emulate"], said["asks"][0]["id"]) == ("runs in process 7", "arity-1")
    cli.main("upgrade.py", "", ["next"], ["next"])
    assert json.loads(capsys.readouterr().out)["failed_meanwhile"] == [
        "eager generation fails on the emulated NPU: TypeError: step() takes 2"
    ]


def test_next_runs_again_what_a_later_command_made_stale_and_ends_where_it_turns_in_a_circle(
    upgrade, monkeypatch, capsys
):
    upgrade.write_plan(items=[])
    called = []

    def run(step):
        called.append(step.stage.name)
        return {"stage": step.stage.name, "verdict": "PASS", "summary": "-"}

    def step(walk):
        stage = Stage(("plan", "port")[len(called) % 2], State.TODO)
        return Step("it is to run", stage=stage, command=command.upgrade(stage.name))

    monkeypatch.setattr(next_command, "_run", run)
    monkeypatch.setattr(next_command, "next_step", step)
    cli.main("upgrade.py", "", ["next"], ["next", "--run"])
    assert called == ["plan", "port", "plan", "port"]
    assert json.loads(capsys.readouterr().out)["next"].endswith("next --run")


def test_an_answer_names_what_else_failed_before_the_edit(machine, upgrade, run, capsys, monkeypatch):
    monkeypatch.setattr(resolve, "check", lambda *_: None)  # of the files, which is no matter here
    why = {"eager ar": "KeyError: 12", "eager generation": "TypeError: step() takes 2"}
    machine.fails = why
    run("--keep-going")
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    capsys.readouterr()
    note = ["--accept", "--note", "corrected by hand"]
    cli.main("upgrade.py", "", ["resolve"], ["resolve", "emulate-eager-ar", *note])
    said = json.loads(capsys.readouterr().out)["summary"]
    assert "before this edit these failed, too: eager generation: TypeError: step() takes 2" in said
    assert "KeyError" not in said


def test_while_something_is_asked_the_run_is_named_to_be_started(machine, upgrade, run, monkeypatch):
    monkeypatch.setattr(environment, "check_machine", lambda: None)
    assert str(asking.meanwhile(walk(upgrade.job))).endswith("emulate --rest --background")
    with locks.alone_now(upgrade.job.folder / "emulate"):
        assert asking.meanwhile(walk(upgrade.job)) is None
    run()
    assert asking.meanwhile(walk(upgrade.job)) is None
    write(upgrade.repo, RUNNER, "NAME = 'edited'\n")
    assert asking.meanwhile(walk(upgrade.job)) is None  # the plan comes first
    now = walk(upgrade.job)
    ported = [replace(one, state=State.DONE) if one.name == "port" else one for one in now.stages]
    with locks.alone_now(upgrade.job.folder / "emulate"):
        begun = asking.meanwhile(replace(now, stages=ported), beside_gates=True)
    assert str(begun).endswith("emulate --rest --background")
    assert asking.meanwhile(now, beside_gates=True) is None  # a port edits the files


def test_the_environment_is_named_to_be_made_while_the_files_are_still_edited(upgrade, monkeypatch, tmp_path):
    ascend = SimpleNamespace(exists=lambda path: path == "requirements.txt")
    triple = SimpleNamespace(omni=None, ascend=ascend, vllm=None)
    spec = SimpleNamespace(folder=tmp_path / "emulation-1")
    monkeypatch.setattr(environment, "check_machine", lambda: None)
    monkeypatch.setattr(environment, "environment_spec", lambda *trees: spec)
    monkeypatch.setattr(sources, "open_source", lambda spec: ascend)
    monkeypatch.setattr(triples, "open_project", lambda spec, name: None)
    monkeypatch.setattr(triples, "open_triple", lambda *trees: triple)
    monkeypatch.setattr(store, "is_ready", lambda spec: False)
    now = walk(upgrade.job)
    words = str(asking.preparing(now)).split()
    assert (words[-1], "emulation" in words, upgrade.job.inputs.omni.spec in words) == (
        "--background",
        True,
        True,
    )
    with locks.alone_now(spec.folder):  # somebody makes it
        assert asking.preparing(now) is None
    monkeypatch.setattr(store, "is_ready", lambda spec: True)
    assert asking.preparing(now) is None


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("RuntimeError: ACL graph: a replay waits for 2 of 2 task updates", ["run calls winch"]),
        ("RuntimeError: CUDA graph capturing detected at an inappropriate time.", ["run calls winch"]),
        ("KeyError: 12", None),
    ],
)
def test_a_failure_of_graphs_comes_with_what_the_runners_call_otherwise(
    machine, upgrade, run, monkeypatch, capsys, why, told
):
    monkeypatch.setattr(
        asking, "_unlike_upstream", lambda walk, told, said="": {"unlike_upstream": ["run calls winch"]}
    )
    upgrade.write_plan(items=[])
    upgrade.job.begin("merge")
    upgrade.job.finish("merge", Verdict.PASS, "merged")
    for gate in ("plan", "audit"):
        upgrade.record(gate)
    for stage in ("port", "look"):
        cli.main("upgrade.py", "", ["next"], ["next", "--skip", stage, "--note", "not here"])
    machine.fails = {"graph ar": why}
    assert run()[0] == 1
    capsys.readouterr()
    for _ in range(2):  # with the question, each time that it is shown
        cli.main("upgrade.py", "", ["next"], ["next"])
        said = json.loads(capsys.readouterr().out)
        assert said["asks"][0]["id"] == "emulate-graph-ar", said
        assert said.get("unlike_upstream") == told


def test_an_edit_that_adds_a_file_to_the_upgrade_answers_what_failed_before_it(machine, upgrade, run):
    """It may be the correction: nothing is asked again before it ran with that."""
    machine.fails = {"graph ar": "KeyError: 12"}
    assert run()[0] == 1
    plan, records = load_plan(upgrade.job), upgrade.job.records()
    assert [one.id for one in ask.asks(upgrade.job, plan, records) if one.is_run] == ["emulate-graph-ar"]
    assert ask.failed_besides(upgrade.job) == []
    write(upgrade.repo, str(Path(RUNNER).parent / "beside.py"), "PLACE = 1\n")
    assert not [one for one in ask.asks(upgrade.job, load_plan(upgrade.job), records) if one.is_run]
    assert ask.failed_besides(upgrade.job) == ["graph ar: KeyError: 12"]
