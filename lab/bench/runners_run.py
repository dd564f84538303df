"""Run the runners' checks and their throughput in the environments that the project keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runners_cells import MODELS, OMNI, RAY, REAL, SERVED, Cell
from bench.shared import ROOT, Run
from npu_upgrade.audit.triples import open_triple
from npu_upgrade.environments.store import EnvSpec, ensure
from npu_upgrade.gates.emulation.environment import prepare
from npu_upgrade.gates.vllm_cpu import DEFAULT, cpu_python
from npu_upgrade.ground.errors import UpgradeError
from npu_upgrade.ground.progress import say
from npu_upgrade.sources.tree import open_source

PATHS = [str(ROOT / name) for name in ("runners", "lab", "emulator")]
CHECKPOINT_LARGE = "large"
SECONDS = 900
BLOCKED = "blocked"
OMNI_FOLDER = "RUNNER_CHECKS_OMNI"  # as runner_checks.released reads it
ONLY_RAY = EnvSpec("ray", ("ray==2.60.0",), size_mb=300)
V2_MODULES = ("worker.gpu.model_runner.", "worker.v2.model_runner.")  # of vLLM and vllm-ascend


@dataclass(frozen=True)
class Decoding:
    """One batch: seconds of its steps, clock ("cpu", "wall") -> variant, and of each handing over."""

    steps: dict[str, dict[str, list[float]]]
    delivery: list[float]


@dataclass(frozen=True)
class Throughput:
    """What was measured, by batch."""

    vllm: str
    cosine: float
    batches: dict[int, Decoding]


@dataclass(frozen=True)
class Result:
    """``state`` for the table, ``why`` it failed."""

    state: str
    why: str = ""


def make_checkpoints(folder: Path) -> None:
    """All tiny models, and one whose step takes a while."""
    run_json(cpu_python(), ["-m", "runner_checks.checkpoint", str(folder), CHECKPOINT_LARGE], {}, lines=False)


def measure(checkpoint: Path, batches: tuple[int, ...], tokens: int, repetitions: int) -> Throughput:
    """Decode throughput on the default release. Raises UpgradeError."""
    plan = {"folder": str(checkpoint), "batches": batches, "tokens": tokens, "repetitions": repetitions}
    found = run_json(cpu_python(DEFAULT), ["-m", "runner_checks.throughput", json.dumps(plan)], {})
    decodings = {int(batch): Decoding(**one) for batch, one in found["batches"].items()}
    return Throughput(found["vllm"], found["cosine"], decodings)


def play_all(cells: Sequence[Cell], folder: Path, run: Run, at_once: int) -> list[Result]:
    """The results in the order of the cells; ``folder`` holds the checkpoints. What passed is kept."""

    def one(cell: Cell) -> Result:
        def played() -> Result:
            say(cell.label)
            result = play(cell, folder)
            print(f"{cell.label}: {result.state}", file=sys.stderr, flush=True)
            return result

        judged = [cell.plan(""), cell.served()]
        return run.result(cell.label, judged, Result, played, good=lambda it: it.state.startswith("pass"))

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, cells))


def play(cell: Cell, folder: Path) -> Result:
    """One engine and its checks."""
    try:
        python, variables = _environment(cell)
        found = (
            _served(cell, python, folder, variables)
            if cell.kind == SERVED
            else _probed(cell, python, folder, variables)
        )
    except UpgradeError as error:
        return Result(BLOCKED, error.what)
    except RuntimeError as error:
        return Result("fail: the engine", str(error)[-1500:])
    failed = {name: why for name, why in found["checks"].items() if why}
    if failed:
        return Result(f"fail: {', '.join(failed)}", "\n".join(failed.values())[-1500:])
    bases = " ".join(found.get("runner", ()))
    if bases and (cell.runner == "V2") != any(part in bases for part in V2_MODULES):
        return Result(f"fail: not {cell.runner}", f"another runner than {cell.runner} ran: {bases}")
    graphs = found["graphs"].get("replayed", 0)
    if "graph" in cell.mode and not graphs:
        return Result("fail: no graph was replayed", "no graph was replayed")
    return Result(f"pass {len(found['checks'])} checks" + (f", {graphs} replays" if graphs else ""))


def _probed(cell: Cell, python: Path, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    command = ["-m", "runner_checks.probe", json.dumps(cell.plan(str(folder)))]
    if cell.kind in REAL:
        variables = variables | {OMNI_FOLDER: str(open_source(f"pypi:vllm-omni=={OMNI}").root)}
    if RAY not in cell.mode:
        return run_json(python, command, variables)
    with _ray_alone() as ray:
        paths = os.pathsep.join([variables.get("PYTHONPATH", ""), str(ray)])
        return run_json(python, command, variables | {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"})


@contextmanager
def _ray_alone() -> Generator[Path]:
    """A folder for PYTHONPATH with Ray's own package alone: what it requires comes with vLLM."""
    (packages,) = (ensure(ONLY_RAY).parents[1] / "lib").glob("python*/site-packages")
    with tempfile.TemporaryDirectory(prefix="bench-runners-") as folder:
        for found in [packages / "ray", *packages.glob("ray-*.dist-info")]:
            (Path(folder) / found.name).symlink_to(found)
        yield Path(folder)


def _served(cell: Cell, python: Path, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-runners-") as scratch:
        command = ["-m", "runner_checks.served", str(folder / MODELS[SERVED]), scratch]
        checks = run_json(python, [*command, json.dumps(cell.served())], variables)
    return {"checks": checks, "graphs": {}}


def _environment(cell: Cell) -> tuple[Path, dict[str, str]]:
    if cell.project == "vllm":
        # two processes, each bound to a core of its own: vLLM would look for two NUMA nodes
        two = "tp2" in cell.mode or "pp2" in cell.mode
        return cpu_python(cell.version), {"VLLM_CPU_OMP_THREADS_BIND": "0|1"} if two else {}
    triple = open_triple(None, f"pypi:vllm-ascend=={cell.version}", None)
    prepared = prepare(None, triple.ascend, triple.vllm)
    own = {"NPU_EMULATOR_DEVICES": "2" if "2" in cell.mode else "1"}
    own["VLLM_USE_V2_MODEL_RUNNER"] = str(int(cell.runner == "V2"))
    return prepared.python, prepared.variables | own


def run_json(python: Path, command: list[str], variables: dict[str, str], lines: bool = True) -> Any:
    """The JSON line that a command prints. Raises RuntimeError with the end of its output."""
    paths = [*PATHS, *filter(None, [variables.get("PYTHONPATH")])]
    own = {"OMP_NUM_THREADS": "1", **variables, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        ended = subprocess.run(
            [str(python), *command], env=os.environ | own, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no end after {SECONDS} s") from error
    found = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode or (lines and not found):
        raise RuntimeError(f"exit code {ended.returncode}: {(ended.stdout + ended.stderr)[-3000:]}")
    return json.loads(found[-1]) if found else None
