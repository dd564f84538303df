"""The runners on real vLLM on this machine's CPU; one server, the rest in engines without one.

Asynchronous scheduling and the V2 runner are used on a CPU through labelled hooks (runner_checks.platform).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.runners_cells import OMNI
from bench.runners_run import OMNI_FOLDER
from npu_upgrade.gates.vllm_cpu import cpu_python
from npu_upgrade.sources.tree import open_source

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / name) for name in ("runners", "lab", "emulator")]
SECONDS = 400
INSIDE = """
import sys
sys.path.append(sys.argv[1])  # where pytest is; the environment's own packages come first
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", sys.argv[2]]))
"""

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


def on_vllm(*command: str) -> str:
    """The standard output of a command of the environment's Python."""
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS), "OMP_NUM_THREADS": "1"}
    variables[OMNI_FOLDER] = str(open_source(f"pypi:vllm-omni=={OMNI}").root)
    ended = subprocess.run(
        [str(cpu_python()), *command],
        env=variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def result_of(output: str) -> dict:
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> Path:
    """One tiny checkpoint under the name of each model."""
    folder = tmp_path_factory.mktemp("checkpoints")
    on_vllm("-m", "runner_checks.checkpoint", str(folder))
    return folder


def test_the_parts_behave_where_vllm_is():
    where = str(Path(pytest.__file__).resolve().parents[1])
    assert " passed" in on_vllm("-c", INSIDE, where, str(ROOT / "tests" / "runners" / "inside"))


@pytest.mark.parametrize(
    ("kind", "model", "hooks"),
    [
        ("ar", "Multimodal", []),
        ("ar", "Multimodal", ["v2", "asynchronous"]),
        ("lora", "plain", []),
        ("sampler", "Thinker", []),
        ("sampler", "Thinker", ["asynchronous"]),
        ("sampler", "Thinker", ["v2"]),
        ("real_sampler", "Recaptioner", ["asynchronous"]),
        ("real_sampler", "Speaker", ["v2"]),
        ("broken", "Broken", []),
        ("talker", "Talker", ["asynchronous"]),
        ("generation", "Waveform", []),
        ("generation", "Waveform", ["v2"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value) or "v1",
)
def test_an_engine(checkpoints, kind, model, hooks):
    plan = {"kind": kind, "folder": str(checkpoints / model), "hooks": hooks}
    result = result_of(on_vllm("-m", "runner_checks.probe", json.dumps(plan)))
    assert set(result["checks"].values()) == {""}, json.dumps(result["checks"], indent=2)
    assert result["async_scheduling"] is ("asynchronous" in hooks)
    assert result["runner"][1].startswith("omni_runners.core.")
    base = "vllm.v1.worker.gpu.model_runner" if "v2" in hooks else "vllm.v1.worker.gpu_model_runner"
    assert f"{base}.GPUModelRunner" in result["runner"]


def test_a_server(checkpoints, tmp_path):
    found = result_of(on_vllm("-m", "runner_checks.served", str(checkpoints / "Thinker"), str(tmp_path)))
    assert set(found.values()) == {""}, found
