"""Outcomes of single runs: what makes one hold, and what makes it stale."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from npu_upgrade.audit.world import Triple
from npu_upgrade.gates.emulation import kept
from npu_upgrade.gates.emulation.changed import executed_lines
from npu_upgrade.gates.emulation.environment import Environment
from npu_upgrade.gates.emulation.outcome import Outcome
from npu_upgrade.sources.tree import open_source

RUNNER = "class Runner:\n    def step(self):\n        return 1\n\n    def idle(self):\n        return 2\n"


@dataclass(frozen=True)
class One:
    """A scenario of a catalogue."""

    name: str = "ar"
    shows: str = "an AR stage"
    stage: str = "ar"
    model: str = "dense"
    words: tuple[str, ...] = ()
    core: bool = False
    seconds: int = 9
    options: dict[str, int] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def emulator(tmp_path, monkeypatch):
    """An emulator of a few files."""
    code = tmp_path / "emulator" / "npu_emulator"
    for path, text in {
        "dry_run/__main__.py": "from npu_emulator.dry_run import checks\n",
        "dry_run/checks.py": "",
        "dry_run/stages/ar.py": "from npu_emulator.dry_run.stages import plain\n",
        "dry_run/stages/plain.py": "from npu_emulator.dry_run.catalogue import Probe\n",
        "dry_run/stages/other.py": "",
        "dry_run/catalogue.py": "",
        "dry_run/models/dense.py": "",
        "operators/rope.py": "@reference('npu::rope')\ndef rope(): ...\n",
        "operators/lora.py": "@reference('npu::lora')\ndef lora(): ...\n",
    }.items():
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        (code / path).write_text(text)
    monkeypatch.setattr(kept, "EMULATOR", code.parent)
    monkeypatch.setattr(kept, "_CODE", code)
    monkeypatch.setattr(kept, "_APART", {code / "dry_run/catalogue.py"})
    forget()
    yield code
    forget()


def forget() -> None:
    """Read the emulator's files anew."""
    for cached in (kept._closure, kept._imported, kept._digest, kept._homes, kept._beside):
        cached.cache_clear()


def packages(tmp_path: Path, name: str, **texts: str) -> Environment:
    """vllm_omni with a watched runner and an imported helper, in a folder of its own."""
    folder = tmp_path / name
    plain = {"runner.py": RUNNER, "helper.py": "A = 1\n", "unused.py": ""}
    for path, text in (plain | texts).items():
        (folder / "vllm_omni" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "vllm_omni" / path).write_text(text)
    return Environment(tmp_path / "env-1" / "bin" / "python", {}, {"vllm_omni": folder})


def ran(environment: Environment, state: str = "PASS") -> kept.Ran:
    """The record of a run of the scenario that executed ``step``."""
    runner, helper = (str(environment.path(f"vllm_omni/{name}.py")) for name in ("runner", "helper"))
    outcome = Outcome("eager", "ar", state, lines={runner: [1, 2, 3, 5]})
    return kept.record(outcome, One(), environment, [runner, helper], {"npu::rope"})


def holds(environment: Environment, scenario: One | None = None) -> bool:
    return kept.found("eager", scenario or One(), environment) is not None


@pytest.fixture
def before(tmp_path):
    """A kept outcome's environment."""
    environment = packages(tmp_path, "omni-1")
    kept.keep(ran(environment))
    return environment


def test_a_server_that_passes_after_a_failure_of_the_same_files_says_so(tmp_path):
    """Its answers come and go; the second word alone would be the first's opposite."""
    environment = packages(tmp_path, "omni-1")

    def kept_with(state: str, why: str = "", tier: str = "pipelines") -> str:
        return kept.keep(kept.record(Outcome(tier, "tts", state, why), One(), environment, [], set())).outcome

    assert kept_with("PASS").failed_once == ""
    kept_with("FAIL", "38400 samples, not 21120")
    assert kept_with("PASS").failed_once == "38400 samples, not 21120"
    assert kept_with("PASS").failed_once == "38400 samples, not 21120"  # and goes on saying it
    kept_with("FAIL", "once", "eager")
    assert kept_with("PASS", tier="eager").failed_once == ""


def test_it_holds_for_the_same_content(before):
    assert holds(before)
    assert kept.found("graph", One(), before) is None


@pytest.mark.parametrize(
    ("changed", "stands"),
    [
        ({"runner.py": RUNNER.replace("return 2", "return 3")}, True),
        ({"runner.py": "# a comment\n" + RUNNER}, True),
        ({"unused.py": "B = 1\n"}, True),
        ({"runner.py": RUNNER.replace("return 1", "return 3")}, False),
        ({"runner.py": RUNNER + "\n    def more(self):\n        pass\n"}, False),
        ({"helper.py": "A = 2\n"}, False),
        ({"new.py": ""}, False),
        ({"stages.yaml": "a: 1\n"}, False),
    ],
)
def test_of_other_content_it_holds_when_nothing_that_ran_is_other(tmp_path, before, changed, stands):
    assert holds(packages(tmp_path, "omni-2", **changed)) is stands


BRANCH = """class Runner:
    def step(self, pooling=False):
        if pooling:
            return 0
        return 1
"""


@pytest.mark.parametrize(
    ("tier", "changed", "stands"),
    [
        ("eager", ("return 0", "pass\n            return 2"), True),
        ("eager", ("class", "from vllm_omni.helper import A\n\n\nclass"), True),
        ("eager", ("class", "from vllm_omni import helper\n\n\nclass"), False),  # the package itself was not
        ("eager", ("class", "from vllm_omni.unused import B\n\n\nclass"), False),
        ("eager", ("return 1", "return 2"), False),
        ("graph", ("return 0", "pass\n            return 2"), False),  # what is compiled leaves no lines
        ("serve", ("return 0", "pass\n            return 2"), False),
    ],
)
def test_an_edit_of_a_block_that_no_run_entered_needs_no_other_run(tmp_path, tier, changed, stands):
    before = packages(tmp_path, "omni-1", **{"runner.py": BRANCH})
    files = [str(before.path(f"vllm_omni/{name}.py")) for name in ("runner", "helper")]
    outcome = Outcome(tier, "ar", "PASS", lines={files[0]: [1, 2, 3, 5]})
    kept.keep(kept.record(outcome, One(), before, files, set()))
    text = BRANCH.replace(*changed)
    now = packages(tmp_path, "omni-2", **{"runner.py": text})
    found = kept.found(tier, One(), now)
    assert (found is not None) is stands
    if found:
        lines = executed_lines(text, found.executed["vllm_omni/runner.py"])
        assert {"return 1", "if pooling:"} <= {text.splitlines()[line - 1].strip() for line in lines}
        assert not {"return 2", "pass"} & {text.splitlines()[line - 1].strip() for line in lines}


@pytest.mark.parametrize(
    ("changed", "since"),
    [
        ({}, set()),
        ({"runner.py": RUNNER.replace("return 1", "return 3")}, {"Runner.step"}),
        ({"runner.py": RUNNER.replace("return 2", "return 3")}, set()),  # it did not run
        ({"runner.py": RUNNER + "\n    def more(self):\n        pass\n"}, {"Runner.more"}),
        ({"helper.py": "A = 2\n"}, None),  # nobody watched what of it ran
    ],
)
def test_what_was_edited_since_a_run_passed(tmp_path, before, changed, since):
    edited = packages(tmp_path, "omni-2", **changed)
    assert kept.changed_since("eager", One(), edited, "vllm_omni") == since
    assert kept.changed_since("graph", One(), edited, "vllm_omni") is None


def test_what_failed_or_ran_beside_another_upstream_says_nothing_of_an_edit(tmp_path):
    environment = packages(tmp_path, "omni-1")
    kept.keep(ran(environment, "FAIL"))
    assert kept.changed_since("eager", One(), packages(tmp_path, "omni-2"), "vllm_omni") is None
    kept.keep(ran(environment))
    assert kept.changed_since("eager", One(), packages(tmp_path, "omni-3"), "vllm_ascend") is None


def test_a_failed_server_tells_too_little_to_hold_for_other_content(tmp_path):
    """Its process died before it could say what it had imported and run."""
    before = packages(tmp_path, "omni-1")
    died = Outcome("serve", "ar", "FAIL", lines={str(before.path("vllm_omni/runner.py")): []})
    kept.keep(kept.record(died, One(), before, [], set()))
    assert kept.found("serve", One(), before)
    assert not kept.found("serve", One(), packages(tmp_path, "omni-2", **{"unused.py": "B = 1\n"}))


def test_another_environment_is_another_run(before):
    assert not holds(replace(before, python=Path("env-2/bin/python")))


@pytest.mark.parametrize(
    ("path", "stands"),
    [
        ("dry_run/checks.py", False),
        ("dry_run/stages/plain.py", False),
        ("dry_run/models/dense.py", False),
        ("operators/rope.py", False),
        ("operators/lora.py", True),
        ("dry_run/stages/other.py", True),
        ("dry_run/catalogue.py", True),
    ],
)
def test_a_change_of_the_emulator_counts_where_the_run_used_it(emulator, before, path, stands):
    (emulator / path).write_text((emulator / path).read_text() + "# other\n")
    forget()
    assert holds(before) is stands


def test_another_scenario_of_that_name_is_another_run_but_its_words_do_not_matter(before):
    assert holds(before, One(words=("step",), shows="more", core=True))
    assert not holds(before, One(seconds=10))


def test_statements_are_kept_by_function_and_classes_are_named(before):
    one = kept.found("eager", One(), before)
    assert [name for name, ran in one.executed["vllm_omni/runner.py"].items() if ran] == ["", "Runner.step"]
    assert kept.exercised(one).classes == {"vllm_omni/runner.py": ["Runner"]}


def test_of_a_run_in_several_processes_any_operator_may_count(emulator, tmp_path):
    split = One(options={"tensor_parallel_size": 2})
    environment = packages(tmp_path, "omni-1")
    kept.keep(kept.record(Outcome("eager", "ar", "PASS"), split, environment, [], set()))
    assert holds(environment, split)
    (emulator / "operators/lora.py").write_text("@reference('npu::lora')\ndef lora(other): ...\n")
    forget()
    assert not holds(environment, split)


def test_only_so_many_are_kept(tmp_path):
    for number in range(kept._KEPT + 3):
        kept.keep(ran(packages(tmp_path, f"omni-{number}", **{"helper.py": f"A = {number}\n"})))
    assert len(list(kept.all_kept("eager", "ar"))) == kept._KEPT


def test_a_damaged_one_is_as_if_it_never_was(before):
    (path,) = kept._place("eager", "ar").glob("*.json")
    path.write_text("{")
    assert not holds(before)


def checkout(tmp_path: Path, text: str) -> Triple:
    """A folder with all three packages, as trees."""
    for name in ("vllm", "vllm_ascend", "vllm_omni"):
        folder = tmp_path / name / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(text)
        (folder / "_version.py").write_text(f"made = {len(text)}\n")
    omni, ascend, vllm = (open_source(f"dir:{tmp_path / n}") for n in ("vllm_omni", "vllm_ascend", "vllm"))
    return Triple(omni, ascend, vllm)


def test_a_checkout_with_the_python_of_a_release_has_its_outcomes(tmp_path, monkeypatch):
    released = checkout(tmp_path / "a", "A = 1\n")
    known = kept.Known("FAIL", 9.0, kept.version(One(), ("rope",)), ("rope",), "KeyError: 1")
    data = kept.Released({"a pair": kept.ReleasedPair(kept.trees_key(released), {"eager ar": known})})
    monkeypatch.setattr(kept, "released", lambda: data)
    pair = kept.of_release(checkout(tmp_path / "b", "A = 1\n"))
    found = kept.released_outcome(pair, "eager", One())
    assert found is not None
    assert (found.state, found.why) == ("FAIL", "KeyError: 1")
    assert kept.released_outcome(pair, "graph", One()) is None
    assert kept.released_outcome(pair, "eager", One(seconds=10)) is None
    assert kept.of_release(checkout(tmp_path / "c", "A = 2\n")) is None


def test_the_map_has_what_the_newest_run_executed_and_seconds_that_do_not_move(tmp_path, monkeypatch):
    known = {"eager ar": kept.Known("PASS", 9.0, "-"), "graph ar": kept.Known("FAIL", 0.0, "-")}
    monkeypatch.setattr(kept, "released", lambda: kept.Released({"a pair": kept.ReleasedPair({}, known)}))
    for number in (1, 2):
        kept.keep(ran(packages(tmp_path, f"omni-{number}", **{"helper.py": f"A = {number}\n"})))
    executed, seconds = kept.executed_by()
    assert executed["Runner.step"] == {"eager ar"}
    assert executed["Runner.idle"] == set()
    assert seconds == {"eager ar": 9.0, "graph ar": 0.0}


def test_what_a_run_of_any_kind_is_observed_with_counts(emulator):
    before = kept.version(One(), ())
    (emulator / "dry_run/plugin.py").write_text("from npu_emulator.dry_run import costs\n")
    (emulator / "dry_run/costs.py").write_text("")
    forget()
    with_costs = kept.version(One(), ())
    (emulator / "dry_run/costs.py").write_text("PARTS = 2\n")
    forget()
    assert len({before, with_costs, kept.version(One(), ())}) == 3
