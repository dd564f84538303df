"""The runners as a user installs them: a wheel in an environment with vLLM, and no PYTHONPATH."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npu_upgrade.gates.vllm_cpu import cpu_python

ROOT = Path(__file__).resolve().parents[2]
START = """
import sys, vllm
options = dict(zip(("worker_cls", "scheduler_cls"), [one or None for one in sys.argv[2:]]))
options = {name: value for name, value in options.items() if value}
engine = vllm.LLM(sys.argv[1], enforce_eager=True, max_model_len=128, dtype="float32", **options)
answer = engine.generate([{"prompt_token_ids": [7, 9, 11]}], vllm.SamplingParams(max_tokens=3))[0]
print("rows", len(__import__("omni_runners.client").client.take(answer).tensors["hidden"]))
"""
WORKER, SCHEDULER = "omni_runners.cpu.CPUARWorker", "omni_runners.schedulers.ARScheduler"

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="no vLLM for this CPU"
    ),
]


def called(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    return subprocess.run(
        list(map(str, command)), env=clean | variables, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """An environment of its own with the wheel, which sees the packages of the one that has vLLM."""
    place = tmp_path_factory.mktemp("installed")
    uv, base = Path(sys.executable).with_name("uv"), cpu_python()
    (packages,) = (base.parents[1] / "lib").glob("python*/site-packages")
    for command in (
        (uv, "build", "--wheel", "--out-dir", place, ROOT / "runners"),
        (uv, "venv", "--python", base, place / "env"),
        (
            uv,
            "pip",
            "install",
            "--python",
            place / "env",
            "--no-deps",
            place / "omni_runners-0.1.0-py3-none-any.whl",
        ),
    ):
        done = called(*command)
        assert done.returncode == 0, done.stderr
    (own,) = (place / "env/lib").glob("python*/site-packages")
    (own / "vllm.pth").write_text(f"{packages}\n")
    return place / "env/bin/python"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    paths = os.pathsep.join(str(ROOT / name) for name in ("runners", "lab", "emulator"))
    done = called(cpu_python(), "-m", "runner_checks.checkpoint", folder, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    return folder / "plain"


def started(python, checkpoint, *classes):
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    return called(python, "-c", START, checkpoint, *classes, **variables)


def test_a_worker_with_its_scheduler_answers(python, checkpoint):
    done = started(python, checkpoint, WORKER, SCHEDULER)
    assert "rows 5" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ((WORKER, ""), f"the worker is {WORKER} and the scheduler vLLM's own"),
        (("", SCHEDULER), f"the worker is vllm.v1.worker.cpu_worker.CPUWorker and the scheduler {SCHEDULER}"),
        ((WORKER, "omni_runners.schedulers.GenerationScheduler"), "for one kind of stage"),
    ],
    ids=["worker alone", "scheduler alone", "two kinds"],
)
def test_one_without_the_other_is_refused_before_anything_loads(python, checkpoint, classes, said):
    done = started(python, checkpoint, *classes)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert said in text, text[-2000:]
    assert "try: --worker-cls" in text
    assert "Loading weights" not in text
