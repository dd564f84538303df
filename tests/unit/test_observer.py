"""The observer inside real processes: packages of our own, loaded as vLLM loads its plugins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from enum import Enum
from pathlib import Path
from types import SimpleNamespace as Plain

import pytest
import serving_kit as kit

from npu_upgrade.evidence.observed import Observed
from npu_upgrade.gates.serving import observer as observing
from npu_upgrade.gates.serving.device import CPU, EMULATED, NPU, Device
from npu_upgrade.gates.serving.gate import Options, judge
from npu_upgrade.gates.serving.observation import PLUGIN, Observer
from npu_upgrade.gates.serving.record import record
from npu_upgrade.ground.files import sha256
from npu_upgrade.ground.verdict import Verdict
from npu_upgrade.sources.installed import Installed, Package

RUNNER = """
    import functools

    def doubled(function):
        @functools.wraps(function)
        def twice(*arguments):
            return function(*arguments)
        return twice

    class Base:
        def __init__(self):
            self.vllm_config = None
        def load_model(self):
            pass
        def execute_model(self, step):
            return self.inner(step)
        @doubled
        def inner(self, step):
            return [self.nested() for _ in range(2)]
        def nested(self):
            def innermost():
                return 1
            return innermost()
        def never(self):
            return 0

    class Runner(Base):
        def execute_model(self, step):
            return super().execute_model(step)
"""
LOADS = """
    import importlib.metadata, os, signal, sys, time
    for point in importlib.metadata.entry_points(group="vllm.general_plugins"):
        point.load()()
"""
PYTHONS = [
    python
    for folder in (Path(sys.base_prefix).parent, Path("/usr/bin"), Path("/usr/local/bin"))
    for version in ("3.10", "3.12", "3.13")
    for python in [*folder.glob(f"{version}*/bin/python{version}"), *folder.glob(f"python{version}")][:1]
]


def tree(folder: Path) -> Path:
    """A package ``vllm_omni`` with a runner in a folder of its own."""
    package = folder / "site/vllm_omni/worker"
    package.mkdir(parents=True)
    for made in (package, package.parent):
        (made / "__init__.py").write_text("")
    (package / "runner.py").write_text(textwrap.dedent(RUNNER))
    (package / "idle.py").write_text("def unused():\n    return 1\n")
    old = time.time() - 100
    for path in package.parent.rglob("*.py"):
        os.utime(path, (old, old))
    return package


def run(
    folder: Path, program: str, python: str | Path = sys.executable, **variables: str
) -> tuple[subprocess.CompletedProcess, Observer, dict[int, Observed]]:
    """What the processes of a program told, by process."""
    observer = Observer(folder / "observed")
    environment = observer.lay(["vllm_omni"], {**os.environ, **variables, "PYTHONPATH": str(folder / "site")})
    code = textwrap.dedent(LOADS) + textwrap.dedent(program)
    done = subprocess.run([str(python), "-c", code], env=environment, capture_output=True, text=True)
    pids = [int(path.name.partition(".")[0]) for path in observer.folder.glob("seen/*.process.json")]
    return done, observer, {pid: observer.told(pid, Device(CPU)) for pid in pids}


STEPS = """
    from vllm_omni.worker.runner import Runner
    import vllm_omni.worker.idle
    runner = Runner()
    for step in range(3):
        runner.execute_model(step)
"""
BASE = """
    from vllm_omni.worker.runner import Base
    Base().execute_model(0)
"""


@pytest.mark.parametrize("python", [sys.executable, *PYTHONS], ids=lambda path: Path(path).name)
def test_a_built_class_its_steps_and_the_functions_that_were_called(python: str, tmp_path: Path) -> None:
    package = tree(tmp_path)
    done, _, told = run(tmp_path, STEPS, python)
    assert done.returncode == 0, done.stderr
    ((pid, found),) = told.items()
    (process,) = found.processes
    assert process.problems == ()
    (built,) = process.built
    assert (built.role, built.steps) == ("runner", 3)
    names = ["vllm_omni.worker.runner.Runner", "vllm_omni.worker.runner.Base"]
    assert [one.name for one in built.classes] == names
    path = "vllm_omni/worker/runner.py"
    digest = sha256((package / "runner.py").read_bytes())
    assert {(one.path, one.sha256) for one in built.classes} == {(path, digest)}
    assert process.files[path].sha256 == digest
    version = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True
    )
    assert process.watched == (int(version.stdout) >= 11)
    if process.watched:
        called = process.files[path].functions
        assert {"Base.inner", "Base.nested", "Base.nested.<locals>.innermost", "doubled"} <= set(called)
        assert {"Runner.execute_model", "Base.execute_model"} <= set(called)
        assert not {"Base.never", "Base", "Runner"} & set(called)
        assert process.files["vllm_omni/worker/idle.py"].functions == ()
    assert pid == process.pid


def test_a_step_of_a_base_that_is_built_too_counts_once(tmp_path: Path) -> None:
    tree(tmp_path)
    _, _, told = run(tmp_path, BASE + STEPS)
    ((_, found),) = told.items()
    assert sorted(one.steps for one in found.built("runner")) == [1, 3]


def test_an_overlay_is_told_and_the_cann_toolkit_is_none(tmp_path: Path) -> None:
    tree(tmp_path)
    observer, toolkit = Observer(tmp_path / "observed"), tmp_path / "cann"
    paths = os.pathsep.join([str(tmp_path / "site"), str(toolkit / "python")])
    given = {**os.environ, "PYTHONPATH": paths, "ASCEND_HOME_PATH": str(toolkit)}
    code = textwrap.dedent(LOADS) + textwrap.dedent(STEPS)
    subprocess.run([sys.executable, "-c", code], env=observer.lay(["vllm_omni"], given), check=True)
    assert observer.told(0, Device(CPU)).pythonpath == (str(tmp_path / "site"),)


def test_what_ran_before_the_observer_came_is_seen_too(tmp_path: Path) -> None:
    tree(tmp_path)
    early = "from vllm_omni.worker.runner import Runner as Early\nEarly().never()\n"
    program = textwrap.dedent(STEPS)
    observer = Observer(tmp_path / "observed")
    variables = observer.lay(["vllm_omni"], {**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    code = early + textwrap.dedent(LOADS) + program
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (process,) = observer.told(0, Device(CPU)).processes
    assert {one.steps for one in process.built} == {3}
    assert "Base.never" in process.files["vllm_omni/worker/runner.py"].functions
    assert "Base.inner" in process.files["vllm_omni/worker/runner.py"].functions


def test_a_process_that_is_killed_has_told_what_it_did(tmp_path: Path) -> None:
    tree(tmp_path)
    done, _, told = run(tmp_path, STEPS + "    time.sleep(1.2)\n    os.kill(os.getpid(), 9)\n")
    assert done.returncode == -signal.SIGKILL
    ((_, found),) = told.items()
    assert [one.steps for one in found.built("runner")] == [3]


def test_a_fork_tells_of_itself_and_not_of_its_parent(tmp_path: Path) -> None:
    tree(tmp_path)
    program = (
        STEPS
        + """
    child = os.fork()
    if not child:
        grandchild = os.fork()
        if not grandchild:
            Runner().execute_model(1)
            time.sleep(1.2)
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    _, _, told = run(tmp_path, program)
    every = next(iter(told.values())).processes
    steps = sorted(sum(one.steps for one in process.built) for process in every)
    assert steps == [0, 1, 3]


def test_a_file_that_changes_while_the_server_starts_has_no_hash(tmp_path: Path) -> None:
    package = tree(tmp_path)
    observer = Observer(tmp_path / "observed")
    variables = observer.lay(["vllm_omni"], {**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    edit = f"open({str(package / 'runner.py')!r}, 'a').write('# later')\n"
    code = "import vllm_omni.worker.runner\n" + edit + textwrap.dedent(LOADS)
    subprocess.run([sys.executable, "-c", code], env=variables, check=True)
    (process,) = observer.told(0, Device(CPU)).processes
    assert process.files["vllm_omni/worker/runner.py"].sha256 == ""
    assert process.files["vllm_omni/__init__.py"].sha256 == sha256(b"")


@pytest.mark.parametrize("damage", ["settings", "folder"])
def test_an_error_of_its_own_harms_nobody(damage: str, tmp_path: Path) -> None:
    tree(tmp_path)
    observer = Observer(tmp_path / "observed")
    variables = observer.lay(["vllm_omni"], {**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    if damage == "settings":
        (observer.folder / "settings.json").write_text("{")
    else:
        shutil.rmtree(observer.folder / "seen")
    code = textwrap.dedent(LOADS) + textwrap.dedent(STEPS) + "print('served')"
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "served\n", "")
    if damage == "settings":
        (raw,) = observer.folder.glob("seen/*.process.json")
        assert "JSONDecodeError" in json.loads(raw.read_text())["problems"][0]


def test_the_traceback_of_a_failed_import_is_what_it_was(tmp_path: Path) -> None:
    package = tree(tmp_path)
    (package / "broken.py").write_text("import vllm_omni.worker.worse\n")
    (package / "worse.py").write_text("raise RuntimeError('no')\n")
    done, _, _ = run(tmp_path, "import vllm_omni.worker.broken\n")
    plain = "import vllm_omni.worker.broken\n"
    variables = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    expected = subprocess.run([sys.executable, "-c", plain], env=variables, capture_output=True, text=True)
    assert done.stderr.splitlines()[2:] == expected.stderr.splitlines()[2:]


def test_a_module_that_waits_for_its_first_use_goes_on_waiting(tmp_path: Path) -> None:
    tree(tmp_path)
    lazy = """
    import importlib.util, sys
    spec = importlib.util.find_spec("vllm_omni.worker.idle")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[spec.name] = lazy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lazy)
    """
    seen = "print('unused' in object.__getattribute__(lazy, '__dict__'))"
    used = f"time.sleep(1.2)\n{seen}\nlazy.unused()\n{seen}\n"
    observer = Observer(tmp_path / "observed")
    variables = observer.lay(["vllm_omni"], {**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    code = textwrap.dedent(lazy) + textwrap.dedent(LOADS) + used
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_a_list_of_plugins_has_the_observer_in_it_and_is_told_without(tmp_path: Path) -> None:
    tree(tmp_path)
    observer = Observer(tmp_path / "observed")
    assert observer.lay([], {"VLLM_PLUGINS": "ascend"})["VLLM_PLUGINS"] == f"ascend,{PLUGIN}"
    assert "VLLM_PLUGINS" not in observer.lay([], {})
    _, _, told = run(tmp_path, "", VLLM_PLUGINS="ascend", OMNI_X="1", VLLM_X="2", HOME_X="3")
    ((_, found),) = told.items()
    kept = {name: value for name, value in found.variables.items() if name[-2:] in ("_X", "NS")}
    assert kept == {"VLLM_PLUGINS": "ascend", "OMNI_X": "1", "VLLM_X": "2"}
    assert found.pythonpath == (str(tmp_path / "site"),)


@pytest.mark.parametrize(
    ("fault", "expected", "omni", "state", "label", "why"),
    [
        ("none", CPU, False, "PASS", "CPU dummy", "plain, Runner on cpu"),
        ("none", CPU, True, "PASS", "CPU dummy", "omni, Runner on cpu"),
        ("plain", CPU, True, "FAIL", "CPU dummy", "asked for in omni mode, and its processes ran in plain"),
        ("unseen", CPU, False, "INCONCLUSIVE", "CPU dummy", "the observer was not loaded"),
        ("idle", CPU, False, "INCONCLUSIVE", "CPU dummy", "was built and executed no step"),
        ("none", NPU, False, "FAIL", "CPU dummy", "its parameters live on cpu, expected npu"),
        ("npu", NPU, False, "PASS", "NPU dummy", "plain, Runner on npu"),
        ("npu", CPU, False, "FAIL", "emulated dry-run", "its parameters live on npu, expected cpu"),
        ("npu", EMULATED, False, "FAIL", "emulated dry-run", "no driver shows an NPU, and no emulator"),
        ("emulated", NPU, False, "PASS", "emulated dry-run", "plain, Runner on npu emulated"),
        ("emulated", EMULATED, False, "PASS", "emulated dry-run", "plain, Runner on npu emulated"),
    ],
)
def test_the_label_and_the_verdict_follow_what_was_observed(
    fault: str, expected: str, omni: bool, state: str, label: str, why: str, tmp_path: Path
) -> None:
    launch = kit.launch(tmp_path, fault, "dummy", omni=omni)
    options = Options(quiet=0.2, budgets=kit.BUDGETS, answer=20.0, patience=5.0)
    served = judge(launch, Device(expected), options, tmp_path / "log")
    (check,) = (one for one in served.checks if one.name == "observed")
    assert (check.state, served.label) == (state, label), check.why
    assert why in check.why
    assert (served.verdict is Verdict.PASS) == (state == "PASS")


def test_a_wrong_answer_is_not_all_that_is_said_of_a_run(tmp_path: Path) -> None:
    options = Options(quiet=0.2, budgets=kit.BUDGETS, answer=20.0, patience=5.0)
    served = judge(kit.launch(tmp_path, "empty", "real"), Device(CPU), options, tmp_path / "log")
    states = {one.name: one.state for one in served.checks}
    assert (states["generation"], states["metrics"], states["observed"]) == ("FAIL", "PASS", "PASS")


def test_the_evidence_holds_what_was_observed_without_secrets(tmp_path: Path, monkeypatch) -> None:
    from npu_upgrade.evidence.observed import observed_in
    from npu_upgrade.evidence.store import Store

    monkeypatch.setenv("VLLM_API_KEY", "open-sesame-1234")
    served = kit.serve(tmp_path, "none", "dummy", quiet=1.5)  # until the last step was told
    (tmp_path / "vllm.py").write_text("")
    asked = ["torch==2.10.0", "Torch-NPU>=2", 'transformers>4; extra == "a"']
    packages = [
        Package("torch", "2.9.0", "/x"),
        Package("vllm-ascend", "1.0", "/x", {}, asked),
    ]
    installed = Installed("3.11", packages, {"vllm": str(tmp_path / "vllm.py")})
    given = {"verdict": served.verdict, "summary": served.summary}
    _, result = record(Store(tmp_path / "e"), "serve", [served], installed, **given)
    folder = Path(result["folder"])
    (found,) = observed_in(folder)
    assert "observed.json" in json.loads((folder / "manifest.json").read_text())["files"]
    assert "open-sesame" not in "".join(path.read_text() for path in folder.iterdir())
    assert found.variables["VLLM_API_KEY"] == "[redacted]"
    assert (found.versions["torch"], found.required) == ("2.9.0", {"torch": "==2.10.0", "torch-npu": ">=2"})
    assert result["resolved"] == found.config
    assert found.config == {
        "load_format": "dummy", "max_model_len": 64, "enable_expert_parallel": False, "is_multimodal": False,
    }  # fmt: skip
    (row,) = result["observed"]["processes"]
    assert row["runner"]["class"] == "fake_model.Runner"
    assert row["runner"]["steps"] >= 4


def test_the_configuration_is_told_as_it_was_resolved() -> None:
    """Whatever forms its values have, and without what this release lacks of it."""
    mode = Enum("Mode", ["NONE", "FULL_DECODE_ONLY"])
    config = Plain(
        model_config=Plain(
            dtype="float16", enforce_eager=False, quantization="fp8", stage_id=1,
            hf_config=Plain(architectures=["TideForCausalLM"]),
            multimodal_config=Plain(limit_per_prompt={"image": Plain(count=2)}),
        ),
        parallel_config=Plain(tensor_parallel_size=2, enable_expert_parallel=True),
        compilation_config=Plain(cudagraph_mode=mode.FULL_DECODE_ONLY, cudagraph_capture_sizes=[1, 2, 4]),
        speculative_config=Plain(method="mtp", num_speculative_tokens=1, draft=Plain(layers=1)),
    )  # fmt: skip
    found, stage = observing._config_of(Plain(vllm_config=config))
    assert stage == 1
    assert found == {
        "dtype": "float16", "enforce_eager": False, "quantization": "fp8", "is_multimodal": True,
        "architectures": ["TideForCausalLM"], "limit_mm_per_prompt": {"image": {"count": 2}},
        "tensor_parallel_size": 2, "enable_expert_parallel": True,
        "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4],
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1, "draft": {"layers": 1}},
    }  # fmt: skip


def test_an_object_that_is_gone_before_it_was_told_is_told() -> None:
    class Model:
        pass

    seen = observing._Seen("model", thing := Model(), None)
    del thing
    assert [one["name"].rpartition(".")[2] for one in observing._classes(seen)] == ["Model"]
